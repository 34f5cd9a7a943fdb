"""A counter that is gone, or behind what other files tell: no tick twice, and nothing spent is forgotten."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lemming.engine import load_tick, persist_tick, run_once
from lemming.kernel.base.clock import FrozenClock
from lemming.kernel.base.errors import TickAlreadyCommitted
from lemming.kernel.files import fs
from lemming.kernel.journal.events import ProblemFound
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.messages import entry_id
from lemming.testing import Crash, crash_at, make_org, resume, tree


@pytest.fixture
def spent(base: Path) -> Path:
    """An organisation that has spent 3 of 3 credits in three ticks."""
    make_org(base, resume("ada", credits={"max_credits": 3}))
    for _ in range(3):
        run_once(base)
    return base


def forget(base: Path) -> None:
    """What a git clone leaves out, and more."""
    shutil.rmtree(base / "logs")
    (base / "tick.json").unlink()


def test_without_counter_and_journals_the_next_tick_is_known_and_nothing_spent_is_forgotten(
    spent: Path,
) -> None:
    forget(spent)
    told: list[str] = []
    report = run_once(
        spent,
        notify=lambda event: told.append(event.problem.hint) if isinstance(event, ProblemFound) else None,
    )
    assert (report.tick, report.turns[0].error) == (4, "OutOfCredits")
    assert "by the ledgers and outboxes tick 4 is next" in told[0]
    assert read_state(spent, "ada").credits == 3


def test_a_process_that_ran_before_and_a_new_one_say_the_same_of_what_was_spent(spent: Path) -> None:
    run_once(spent)  # this process remembers that nobody may spend any more
    copies = [spent.parent / name for name in ("here", "there")]
    forget(spent)
    for copy in copies:
        shutil.copytree(spent, copy)
    run_once(spent)
    run_once(copies[0])
    command = [sys.executable, "-m", "lemming", "-C", str(copies[1]), "run-once", "--quiet"]
    subprocess.run(command, check=False)
    states = [tree(base, without=(".lemming", "logs")) for base in (spent, *copies)]
    assert states[0] == states[1] == states[2]


def test_a_lower_counter_than_the_ledgers_tell_is_refused_with_the_way_out(spent: Path) -> None:
    grant = spent / "agents/ada/resume.json"
    grant.write_text(grant.read_text().replace("3", "30"))
    shutil.rmtree(spent / "logs")
    persist_tick(spent, 1)
    before = tree(spent)
    with pytest.raises(TickAlreadyCommitted, match='"current_tick": 4') as refused:
        run_once(spent)
    assert "agents/ada/turns.jsonl tells of tick 3" in str(refused.value)
    assert tree(spent) == before


def test_an_interrupted_tick_whose_journal_is_gone_runs_afresh_and_its_spending_stays(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob", permissions={"read_outboxes": ["ada"]}))
    run_once(base)
    point = 0
    while read_state(base, "ada").tick < 2:
        point += 1
        with pytest.raises(Crash), crash_at(point):
            run_once(base)
    shutil.rmtree(base / "logs")
    assert run_once(base).tick == 2
    assert read_state(base, "ada").credits == 3, "one in tick 1, one that is lost, one in its place"
    assert read_state(base, "bob").credits == 2


def test_entries_alone_keep_the_engine_from_writing_over_them(spent: Path) -> None:
    forget(spent)
    (spent / "agents/ada/turns.jsonl").unlink()
    assert load_tick(spent) == 4


def test_what_tells_of_the_last_tick_of_all_stops_nobody_else(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob"))
    fs.publish(base, "agents/ada/turns.jsonl", b'{"tick":999999999999,"status":"done"}\n')
    late = entry_id(999_999_999_999, "bob", 0)
    fs.publish(base, f"agents/bob/outbox/999999999999_{late}.json", b"{}")
    report = run_once(base, clock=FrozenClock())
    assert (report.tick, [turn.status for turn in report.turns]) == (1, ["failed", "done"])
    assert "agents/ada/turns.jsonl" in report.turns[0].reason
