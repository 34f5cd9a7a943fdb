"""Files in outboxes that nobody is shown, and where a person is told of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal import Lemming

from lemming.engine import run_once
from lemming.kernel.messages import OutboxEntry
from lemming.messages import write_outbox_entry
from lemming.testing import make_org, resume

STRAY = "note.json: file names of entries must be TICK_ID.json; ignored"
TO_COME = "00000500_later.json is of tick 500: no agent sees it before that tick"


@pytest.fixture
def org(base: Path) -> Path:
    make_org(base, resume("ada"), resume("bob"))
    entry = OutboxEntry("later", 500, "ada", "message", {"text": "x"}, [], "2026-01-01T00:00:00Z")
    write_outbox_entry(base, "ada", entry)
    (base / "agents/ada/outbox/note.json").write_text("{}")
    return base


@pytest.mark.parametrize("command", ["status", "validate", "doctor"])
def test_commands_that_look_name_them(org: Path, lemming: Lemming, command: str) -> None:
    ran = lemming(command)
    shown = " ".join((ran.out + ran.err).split())
    assert "note.json" in shown
    assert TO_COME in shown or command == "doctor"  # which names the first, and how many there are


def test_the_log_says_it_once(org: Path) -> None:
    for _ in range(2):
        run_once(org)
    log = (org / "logs/engine.log").read_text()
    assert log.count(STRAY) == log.count(TO_COME) == 2  # once an engine


def test_status_is_silent_about_an_outbox_in_order(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    run_once(base)
    assert lemming("status", "--json").objects[0]["misplaced"] == []


def test_an_entry_of_a_tick_to_come_is_shown_when_it_comes(org: Path) -> None:
    from lemming.engine import persist_tick
    from lemming.testing import journal_lines

    persist_tick(org, 501)
    run_once(org)
    started = [r for r in journal_lines(org, 501) if r["type"] == "turn_started" and r["agent"] == "bob"]
    assert "later" in started[0]["entries"]
