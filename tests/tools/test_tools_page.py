"""docs/tools.md is true: its commands run, its functions load and give what they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lemming.cli import run

PAGE = Path(__file__).parents[2] / "docs/tools.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE.read_text())


def test_the_page_works_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shell = [text for kind, text in BLOCKS if kind == "sh"]
    for line in "".join(shell).replace(" && cd desk", "").splitlines():
        words = shlex.split(line)
        assert run(words[1:] if words[1] == "init" else ["-C", "desk", *words[1:]]) == 0, line
    assert capsys.readouterr().out.endswith("3\n")
    for kind, text in BLOCKS:
        if kind == "python":
            Path("desk", text.partition("\n")[0].removeprefix("# ")).write_text(text)
    org = ["-C", "desk"]
    assert run([*org, "tools", "call", "forecast", "city=Rome", "days=2", "unit=F"]) == 0
    assert capsys.readouterr().out == '{"city":"Rome","degrees":[62.6,62.6]}\n'
    assert run([*org, "tools", "call", "forecast", "city=Paris"]) == 1
    assert capsys.readouterr().out == "Paris is not known here; known are Oslo, Rome\n"
    resume = Path("desk/agents/planner/resume.json")
    resume.write_text(resume.read_text().replace('"forecast"', '"forecast", "note"'))
    assert run([*org, "tools", "call", "note", "text=hello", "--yes"]) == 0
    assert Path("desk/agents/planner/memory/state.note.json").exists()
    assert Path("desk/agents/planner/workspace/notes.txt").read_text() == "hello"
    capsys.readouterr()
    assert run([*org, "outbox", "planner"]) == 0
    assert "noted: hello" in capsys.readouterr().out
