"""A counter that is gone, or behind what other files tell: no tick twice, and nothing spent is forgotten."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lemming.cli import run
from lemming.engine import load_tick, persist_tick, run_once, ticks
from lemming.kernel.base.errors import TickAlreadyCommitted
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event, ProblemFound
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.messages import entry_id
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, tree


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


def test_without_counter_and_journals_the_next_tick_is_known_and_nothing_spent_is_forgotten(spent: Path) -> None:
    forget(spent)
    told: list[str] = []
    report = run_once(
        spent, notify=lambda event: told.append(event.problem.hint) if isinstance(event, ProblemFound) else None
    )
    assert (report.tick, report.turns[0].error) == (4, "OutOfCredits")
    assert "check tick 4, the next by the ledgers and outboxes" in told[0]
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
    assert "agents/ada/turns.jsonl holds a turn of tick 3" in str(refused.value)
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
    fs.write_atomic(base, "agents/ada/turns.jsonl", b'{"tick":999999999999,"status":"done"}\n')
    late = entry_id(999_999_999_999, "bob", 0)
    fs.write_atomic(base, f"agents/bob/outbox/999999999999_{late}.json", b"{}")
    report = run_once(base, clock=FrozenClock())
    assert (report.tick, [turn.status for turn in report.turns]) == (1, ["failed", "done"])
    assert "agents/ada/turns.jsonl" in report.turns[0].reason


def ahead(heard: list[Event]) -> list[str]:
    return [it.problem.message for it in heard if isinstance(it, ProblemFound)]


def test_a_counter_that_was_set_ahead_is_told(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_org(base, resume("ada"))
    for _ in range(4):
        run_once(base)
    (base / "tick.json").write_text('{"current_tick": 99}')
    said = "current_tick must be 5, where the engine left it, got 99: ticks 5 to 98 are skipped"
    for command in ("validate", "check"):
        assert run(["-C", str(base), command]) == 0
        assert said in "".join(capsys.readouterr())
    heard: list[Event] = []
    assert run_once(base, notify=heard.append).tick == 99
    assert ahead(heard) == [said]
    run_once(base, notify=heard.append)
    assert ahead(heard) == [said]


def test_a_counter_that_is_set_ahead_while_an_engine_runs_is_told(base: Path) -> None:
    make_org(base, resume("ada"))
    heard: list[Event] = []
    running = ticks(base, interval_s=0, max_ticks=3, clock=FrozenClock(), notify=heard.append)
    next(running)
    (base / "tick.json").write_text('{"current_tick": 99}')
    assert [report.tick for report in running] == [99, 100]
    assert ahead(heard) == ["current_tick must be 2, where the engine left it, got 99: ticks 2 to 98 are skipped"]


def test_ticks_that_are_slept_through_count_and_are_no_surprise(base: Path) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 9}))
    heard: list[Event] = []
    for _ in range(2):
        for _ in ticks(base, interval_s=0.01, until_tick=20, wake_on_change=True, notify=heard.append):
            pass
    run_once(base, notify=heard.append)
    assert ahead(heard) == []
