"""Files that a journal tells of and that are not there: storage that went back, a copy made while running."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lemming.engine import run_once
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.messages import list_outbox
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, say, tree

NEWS = say("news", memory_updates=[{"key": "last", "value": 1}])
Damage = Callable[[Path], None]


def lose_line(base: Path) -> None:
    ledger = base / "agents/ada/turns.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:-1]))


def lose_all(base: Path) -> None:
    lose_line(base)
    max((base / "agents/ada/outbox").iterdir()).unlink()
    (base / "agents/ada/memory/last.json").write_bytes(b"")


@pytest.fixture
def org(base: Path) -> Path:
    agents = resume("ada"), resume("bob", permissions={"read_outboxes": ["ada"]})
    make_org(base, *agents, org={"max_parallel": 1}, script=[{"reply": NEWS}])
    for _ in range(3):
        run_once(base, clock=FrozenClock(boot_id="this"))
    return base


@pytest.mark.parametrize("damage", [lose_line, lose_all])
@pytest.mark.parametrize("ticks_lost", [1, 2])
def test_a_copy_that_lacks_what_its_journals_tell_gets_it_from_them(org: Path, damage: Damage, ticks_lost: int) -> None:
    copy = org.parent / "copy"
    shutil.copytree(org, copy)
    for _ in range(ticks_lost):
        damage(copy)
    assert verify_org(copy).errors
    told: list[str] = []
    for base in (org, copy):
        run_once(base, clock=FrozenClock(boot_id="this"), notify=lambda event: told.append(str(event)))
    assert tree(copy) == tree(org)
    assert not verify_org(copy).errors
    assert sum("were written again from the journal" in text for text in told) == ticks_lost
    assert read_state(copy, "ada").credits == 4


def test_storage_that_goes_back_under_an_interrupted_tick_loses_nothing_though_the_machine_stays_up(org: Path) -> None:
    peace, crashed, point = org.parent / "peace", org, 0
    shutil.copytree(org, peace)
    run_once(peace, clock=FrozenClock(boot_id="this"))
    while read_state(crashed, "ada").tick < 4 or b'"turn_committed"' not in journal_of(crashed, 4):
        point += 1
        crashed = org.parent / f"crashed {point}"
        shutil.copytree(org, crashed)
        with pytest.raises(Crash), crash_at(point):
            run_once(crashed, clock=FrozenClock(boot_id="this"))
    lose_all(crashed)
    run_once(crashed, clock=FrozenClock(boot_id="this"))
    assert tree(crashed) == tree(peace)


@pytest.mark.parametrize("ticks", [1, 3])
def test_an_agent_that_is_removed_and_made_anew_gets_nothing_of_its_namesake(base: Path, ticks: int) -> None:
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": NEWS}])
    for _ in range(ticks):
        run_once(base, clock=FrozenClock(boot_id="this"))
    shutil.rmtree(base / "agents/ada")
    plain = resume("ada", title="Another Ada", permissions={"read_outboxes": []})
    fs.write_atomic(base, "agents/ada/resume.json", dump_pretty(plain))
    told: list[str] = []
    run_once(base, clock=FrozenClock(boot_id="this"), notify=lambda event: told.append(event.kind))
    assert read_state(base, "ada").turns == 1
    assert [name.tick for name in list_outbox(base, "ada")] == [ticks + 1]
    assert "problem_found" not in told


def test_a_first_turn_that_is_lost_is_written_again(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": NEWS}])
    run_once(base, clock=FrozenClock(boot_id="this"))
    (base / "agents/ada/turns.jsonl").unlink()
    told: list[str] = []
    run_once(base, clock=FrozenClock(boot_id="this"), notify=lambda event: told.append(event.kind))
    assert read_state(base, "ada").turns == 2
    assert told.count("problem_found") == 1, "and nothing is said of what the others wrote since"


def test_what_a_person_removed_stays_removed_where_no_line_is_missing(org: Path) -> None:
    newest = max((org / "agents/ada/outbox").iterdir())
    newest.unlink()
    run_once(org, clock=FrozenClock(boot_id="this"))
    assert not newest.exists()


def journal_of(base: Path, tick: int) -> bytes:
    file = base / f"logs/ticks/{tick:08d}.jsonl"
    return file.read_bytes() if file.exists() else b""
