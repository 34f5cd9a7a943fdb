"""A gate that is written while a turn is cut off holds: the turn is not taken up without it."""

from __future__ import annotations

import json
import shutil
from itertools import count
from pathlib import Path

import pytest
from sampling import KILL_STRIDE

from lemming.engine import run_once
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, say

pytestmark = pytest.mark.crash
BLOCK = [{"at": "out", "when": {"field": "kind", "op": "is", "value": "message"}, "then": "block"}]


@pytest.mark.parametrize("place", ["config/org.json", "agents/ada/resume.json"])
def test_a_turn_that_was_begun_without_a_gate_is_not_taken_up_against_it(tmp_path: Path, place: str) -> None:
    base = make_org(tmp_path / "org", resume("ada"), resume("bob"), script=[{"reply": say("hello")}])
    tried = 0
    for number in count(1, KILL_STRIDE):
        copy = tmp_path / str(number)
        shutil.copytree(base, copy)
        try:
            with crash_at(number):
                run_once(copy, clock=FrozenClock())
        except Crash:
            journal = copy / "logs/ticks/00000001.jsonl"
            lines = journal.read_text() if journal.exists() else ""
            if '"turn_started"' in lines and '"turn_committed"' not in lines:
                before = [*copy.glob("agents/ada/outbox/[0-9]*")]
                file = copy / place
                plain = json.loads(file.read_text()) if file.exists() else {}
                file.write_text(json.dumps({**plain, "gates": BLOCK}))
                turn = next(it for it in run_once(copy, clock=FrozenClock()).turns if it.agent == "ada")
                assert (turn.status, "which the turn was not begun with" in turn.reason) == ("failed", True)
                assert [*copy.glob("agents/ada/outbox/[0-9]*")] == before
                tried += 1
        else:
            break
        shutil.rmtree(copy)
    assert tried
