"""Retention removes no entry that somebody who is due has not been shown, or says so."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from test_addressed import QUIET, prompt_of
from test_inbox import seen, speak

from lemming.engine import run_once
from lemming.facts.problems import problems_of_agents
from lemming.journal.events import ProblemFound
from lemming.journal.ledger import read_state
from lemming.messages import entry_id, list_outbox
from lemming.org.config import load_config
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines, make_org, resume, say, tree
from lemming.timeline.verify.files import verify

HUMAN = {"human": {"provider": "human"}}


def org(base: Path, *, retention: int, every: int, **reader: Any) -> Path:
    """An agent that speaks in every tick, and one that reads it less often."""
    return make_org(
        base,
        resume("ada", permissions={}),
        resume(
            "reader", schedule={"run_every_n_ticks": every}, permissions={"read_outboxes": ["*"]}, **reader
        ),
        script=[{"agent": "ada", "reply": say("x")}, {"reply": QUIET}],
        org={"retention_ticks": retention},
    )


def run(base: Path, ticks: int) -> list[ProblemFound]:
    """Run some ticks, and return what people were told."""
    told: list[ProblemFound] = []
    for _ in range(ticks):
        hear = lambda event: told.append(event) if isinstance(event, ProblemFound) else None  # noqa: E731
        run_once(base, clock=FrozenClock(), notify=hear)
    return told


def expired(base: Path, tick: int) -> list[dict[str, Any]]:
    return [record for record in journal_lines(base, tick) if record["type"] == "entries_expired"]


def test_entries_wait_for_a_reader_that_is_due_less_often_than_they_are_kept(base: Path) -> None:
    org(base, retention=3, every=10)
    assert run(base, 20) == []
    assert seen(base, 10, "reader") == [entry_id(tick, "ada", 0) for tick in range(1, 11)]
    assert seen(base, 20, "reader") == [entry_id(tick, "ada", 0) for tick in range(11, 21)]
    assert [name.tick for name in list_outbox(base, "ada")] == [17, 18, 19, 20]
    assert not expired(base, 9)


def test_what_nobody_waits_for_goes_at_its_age(base: Path) -> None:
    org(base, retention=3, every=1)
    run(base, 8)
    assert [name.tick for name in list_outbox(base, "ada")] == [5, 6, 7, 8]


def test_what_expires_unread_is_said_everywhere(base: Path) -> None:
    org(base, retention=1, every=20)
    told = run(base, 19)
    assert [name.tick for name in list_outbox(base, "ada")] == list(range(9, 20))  # ten times the retention
    assert len(told) == 8
    assert str(told[0].problem.message) == "1 entry expired in tick 12 before reader was shown it"
    assert "entry expired in tick 12" in (base / "logs/engine.log").read_text()
    assert expired(base, 19)[0]["unread"] == {"reader": 1}
    assert read_state(base, "reader").expired_unread == 8
    run(base, 1)
    assert "8 entries expired unread" in prompt_of(base, 20, "reader")
    assert read_state(base, "reader").expired_unread == 0
    assert not [finding for finding in verify(base).findings if finding.is_error]


def test_one_that_is_out_of_credits_does_not_keep_everything(base: Path) -> None:
    org(base, retention=3, every=1, credits={"max_credits": 1})
    told = run(base, 12)
    assert [name.tick for name in list_outbox(base, "ada")] == list(range(7, 13))  # two intervals more
    assert read_state(base, "reader").expired_unread == len(told) == 5


def test_what_was_addressed_to_others_is_not_told_as_missed(base: Path) -> None:
    entry = {"kind": "message", "payload": {"text": "x", "target": "cyd"}, "tags": []}
    make_org(
        base,
        resume("ada", permissions={}),
        resume("bob", schedule={"wake": "changed"}),
        resume("cyd"),
        script=[{"agent": "ada", "reply": {**QUIET, "outbox_entries": [entry]}}, {"reply": QUIET}],
        org={"retention_ticks": 2},
    )
    assert run(base, 8) == []
    assert min(name.tick for name in list_outbox(base, "ada")) == 4  # bob is waited for, and was not asked
    assert read_state(base, "bob").tick == 1


def test_a_person_keeps_nothing_from_expiring(base: Path) -> None:
    make_org(
        base, resume("ada", permissions={}), resume("human", model={"key": "human"}),
        models=HUMAN, org={"retention_ticks": 2},
    )  # fmt: skip
    speak(base, "nobody reads this")
    assert run(base, 5) == []
    assert [list_outbox(base, "human"), min(name.tick for name in list_outbox(base, "ada"))] == [[], 3]


@pytest.mark.sample(2)
@pytest.mark.parametrize("durability", ["turn", "tick", "off"])
def test_a_crash_while_entries_expire_unread_leaves_what_no_crash_would(
    tmp_path: Path, durability: str
) -> None:
    whole = org(tmp_path / "whole", retention=1, every=20)
    settings = f'{{"retention_ticks": 1, "durability": "{durability}"}}'
    (whole / "config/org.json").write_text(settings)
    run(whole, 13)
    before = org(tmp_path / "before", retention=1, every=20)
    (before / "config/org.json").write_text(settings)
    run(before, 11)
    number = 0
    while True:
        number += 1
        base = shutil.copytree(before, tmp_path / str(number))
        with crash_at(number):
            try:
                run(base, 1)
            except Crash:
                pass
            else:
                break
        run(base, 1)
        if read_state(base, "ada").tick == 12:
            run(base, 1)
        assert tree(base) == tree(whole), number
    assert number > 5


def test_an_agent_due_less_often_than_entries_are_kept_is_warned_of(base: Path) -> None:
    org(base, retention=3, every=10)
    messages = [str(problem) for problem in problems_of_agents(base, load_config(base), None)]
    assert any("due every 10 ticks, while entries are kept for 3" in message for message in messages)
    org(base, retention=3, every=3)
    assert list(problems_of_agents(base, load_config(base), "reader")) == []
