"""What a gate redacts at `out` is in no note of a turn: no log, ledger, report or prompt shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

REDACTS = {"at": "out", "redact": ["PIN [0-9]+"], "then": "rewrite"}
ABOUT_REPORTS = {"field": "kind", "op": "is", "value": "report"}


def noted(base: Path, *gates: dict[str, Any]) -> str:
    """Run a turn whose notes hold a number, and return what its log says."""
    make_org(base, resume("ada"), org={"gates": [*gates]}, script=[{"reply": say("hello", notes="PIN 1234")}])
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    assert run(["-C", str(base), "replay"]) == 0
    assert run(["-C", str(base), "verify"]) == 0
    return (base / "agents/ada/logs/activity.log").read_text()


@pytest.mark.parametrize("gate", [REDACTS, {**REDACTS, "when": ABOUT_REPORTS}])
def test_notes_are_redacted_as_entries_are(tmp_path: Path, gate: dict[str, Any]) -> None:
    assert "PIN" not in noted(tmp_path, gate)
    assert "PIN" not in (tmp_path / "agents/ada/turns.jsonl").read_text()
    ends = [it for it in journal_lines(tmp_path, 1) if it["type"] == "turn_committed"]
    assert [it["notes"] for it in ends] == ["[redacted]"]


@pytest.mark.parametrize("gate", [{**REDACTS, "at": "result"}, {**REDACTS, "redact": ["[a-z]{9}"]}])
def test_notes_stay_as_they_are_where_no_gate_at_out_redacts_them(tmp_path: Path, gate: dict[str, Any]) -> None:
    assert "PIN 1234" in noted(tmp_path, gate)


def test_the_journal_keeps_the_reply_as_it_came(tmp_path: Path) -> None:
    noted(tmp_path, REDACTS)
    (reply, *_) = [it for it in journal_lines(tmp_path, 1) if it["type"] == "model_replied"]
    assert "PIN 1234" in reply["text"]
