"""What docs/history.md gives to paste about rehearsals works, pasted as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lemming.cli import run

PAGE = (Path(__file__).parents[2] / "docs/history.md").read_text().partition("### Rehearsal\n")[2]


def test_the_block_of_the_page_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    for line in block.replace(" && ", "\n").splitlines():
        program, *words = shlex.split(line)
        if program == "cd":
            monkeypatch.chdir(words[0])
        else:
            assert run(words) == 0, capsys.readouterr().err
    told = capsys.readouterr()
    assert "no differences\n" in told.out
    assert "12 answers from the record, 0 calls made" in told.err
    assert "at least 4 of 12 questions would differ" in told.err
