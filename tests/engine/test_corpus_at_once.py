"""The organisations of the crash corpus, and imported ones: the same files however many turns run at once."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bill import Bill
from corpus import CASES
from parts import by_hand, call, remembers
from peace import run
from sampling import EVERYTHING
from sources import CLAUDE, made

from lemming.cli import run as lemming
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base.jsontext import dump_pretty, to_line
from lemming.kernel.files import fs
from lemming.testing import say, tree

Build = Callable[[Path, dict[str, Any]], object]
ORGANISATIONS: dict[str, tuple[Build, int]] = {case.name: (case.build, case.ticks) for case in CASES}


def imported(base: Path, org: dict[str, Any]) -> None:
    """Agents of another program, each of whom is asked something and has a file to list."""
    once = base.with_name("imported")  # one import for all: it says when it was made
    if not once.exists():
        folder = made(base.with_name("source"), CLAUDE)
        assert lemming(["import", "claude", str(folder), "--into", str(once)]) == 0
    shutil.copytree(once, base)
    settings = json.loads((base / "config/org.json").read_bytes())
    fs.write_atomic(base, "config/org.json", dump_pretty({**settings, **org}))
    scripted = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}}
    keys = json.loads((base / "config/models.json").read_bytes()).keys()
    models = {key: {"provider": "human"} if key == "human" else scripted for key in keys}
    fs.write_atomic(base, "config/models.json", dump_pretty(models))
    script = [
        {"step": 0, "reply": say("looking", tool_calls=[call("file_list"), call("file_read", path="a")])},
        {"reply": remembers("it is done", kind="response")},
    ]
    fs.write_atomic(base, "config/answers.jsonl", "".join(f"{json.dumps(line)}\n" for line in script).encode())
    for name in list_agent_folders(base):
        if name != "human":
            by_hand(base, "human", 0, f"for{name}", text="Please look.", target=name)


ORGANISATIONS["imported claude"] = imported, 3


def files_of(name: str, base: Path, **settings: Any) -> dict[str, bytes]:
    """Run an organisation to its end, and return its files but its settings and scripts."""
    build, ticks = ORGANISATIONS[name]
    build(base, settings)
    for script in (base / "config").glob("*.jsonl"):
        take_time(script)
    run(base, ticks, Bill())
    return {file: raw for file, raw in tree(base).items() if not file.startswith("config/")}


def take_time(script: Path) -> None:
    """Let answers take their time, each time another one."""
    lines = [json.loads(line) for line in script.read_text().splitlines()]
    for line in lines:
        line.setdefault("delay_s", random.choice([0, 0, 0.002]))
    script.write_text("".join(f"{to_line(line)}\n" for line in lines))


@pytest.mark.sample(11)
@pytest.mark.parametrize("visibility", ["order", "tick"])
@pytest.mark.parametrize("name", ORGANISATIONS)
def test_the_files_are_the_same_however_many_turns_are_taken_at_once(
    name: str, visibility: str, tmp_path: Path
) -> None:
    alone = files_of(name, tmp_path / "1", visibility=visibility, max_parallel=1)
    if name.startswith("imported"):
        assert [file for file, raw in alone.items() if b'"looking"' in raw]
    for at_once in (2, 64) if EVERYTHING and visibility == "order" else (8,):
        together = files_of(name, tmp_path / str(at_once), visibility=visibility, max_parallel=at_once)
        assert together == alone, at_once
