"""`lemming repair`: every fault is told in plain words, and put right without anything being lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from broken import Repair, damage, interrupt, journal, make
from typed import typed

from lemming.engine import load_tick, run_forever, run_once
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.errors import CorruptState, TickAlreadyCommitted
from lemming.kernel.journal.engine_events import Event, ModelAsked
from lemming.kernel.journal.journal_file import is_committed, journal_ticks
from lemming.kernel.journal.ledger import read_state
from lemming.libraries.outbox_files import write_person_entry
from lemming.operations.open_org import open_org
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines, make_org, resume, say, tree


def aside_of(base: Path) -> Path:
    (folder,) = (base / "aside").iterdir()
    return folder


def state(base: Path) -> dict[str, bytes]:
    return {path: raw for path, raw in tree(base, without=()).items() if path != ".lemming/lock"}


def test_a_sound_organisation_needs_nothing(base: Path, repair: Repair) -> None:
    make(base)
    before = state(base)
    for words in ([], ["--yes"]):
        ran = repair(*words)
        assert (ran.status, ran.out, ran.err) == (0, "", "nothing to repair\n")
    assert state(base) == before


def test_an_interrupted_tick_needs_nothing(base: Path, repair: Repair) -> None:
    interrupt(make(base))
    assert repair().status == 0


# --- tick.json -----------------------------------------------------------------------------------


def test_an_unreadable_counter_is_written_anew_from_the_journals(base: Path, repair: Repair) -> None:
    (make(base) / "tick.json").write_text("{oops")
    before = state(base)
    ran = repair()
    assert ran.status == 1
    assert "tick.json: cannot read the tick counter" in ran.out
    assert '  would: write {"current_tick": 4} into the file: the last journal is of tick 3' in ran.out
    assert ran.err == "1 repair possible: `lemming repair --yes` applies them\n"
    assert state(base) == before
    ran = repair("--yes")
    assert ran.status == 0
    assert '  done: write {"current_tick": 4} into the file' in ran.out
    assert load_tick(base) == 4
    assert (aside_of(base) / "tick.json").read_text() == "{oops"
    assert run_once(base).tick == 4
    assert repair().status == 0


@pytest.mark.parametrize(
    ("journals_gone", "known"),
    [
        ("0000000[23]", "a ledger has tick 3, whose journal is missing"),
        ("*", "no journal exists, and ledgers and outboxes have ticks up to 3"),
    ],
)
def test_an_unreadable_counter_does_not_go_back_before_what_ledgers_tell(
    base: Path, repair: Repair, journals_gone: str, known: str
) -> None:
    (make(base) / "tick.json").write_text("{oops")
    for file in (base / "logs/ticks").glob(f"{journals_gone}.jsonl"):
        file.unlink()
    with pytest.raises(CorruptState, match=f'write {{"current_tick": 4}} into the file; {known}'):
        run_once(base)
    assert f'write {{"current_tick": 4}} into the file: {known}' in repair("--yes").out
    assert run_once(base).tick == 4


def test_an_unreadable_counter_does_not_go_back_before_what_was_sent_in_a_quiet_tick(
    base: Path, repair: Repair
) -> None:
    make_org(base, resume("ada", schedule={"wake": "changed"}), resume("human", model={"key": "human"}))
    for _ in range(4):
        run_once(base)
    assert journal_ticks(base) == [1]
    write_person_entry(
        base,
        "human",
        tick=5,
        kind="message",
        payload={"text": "hello"},
        tags=[],
        created_at=timestamp(FrozenClock().now()),
    )
    (base / "tick.json").write_text("{oops")
    repair("--yes")
    assert run_once(base).tick == 5
    assert read_state(base, "ada").turns == 2


def test_a_counter_moved_back_is_led_past_what_ledgers_tell(base: Path, repair: Repair) -> None:
    (make(base) / "tick.json").write_text('{"current_tick": 1}')
    (base / "logs/ticks/00000003.jsonl").unlink()
    with pytest.raises(TickAlreadyCommitted, match='"current_tick": 4'):
        run_once(base)
    repair("--yes")
    assert run_once(base).tick == 4


def test_a_missing_counter_names_the_tick_that_was_interrupted(base: Path, repair: Repair) -> None:
    interrupt(make(base))
    (base / "tick.json").unlink()
    assert '{"current_tick": 4} into the file: tick 4 was interrupted and continues' in repair().out
    repair("--yes")
    assert not (base / "aside").exists()
    run_once(base)
    assert [read_state(base, name).turns for name in ("ada", "bob")] == [4, 4]


def test_a_counter_moved_back_is_moved_on(base: Path, repair: Repair) -> None:
    (make(base) / "tick.json").write_text('{"current_tick": 2}')
    with pytest.raises(TickAlreadyCommitted):
        run_once(base)
    assert "current_tick is 2, but tick 2 is over: tick 3 has started" in repair().out
    repair("--yes")
    assert run_once(base).tick == 4


def test_a_counter_moved_back_to_a_quiet_tick_is_moved_on(base: Path, repair: Repair) -> None:
    make(base)
    (base / "logs/ticks/00000002.jsonl").unlink()
    (base / "tick.json").write_text('{"current_tick": 2}')
    with pytest.raises(TickAlreadyCommitted):
        run_once(base)
    assert "current_tick is 2, but tick 2 is over: tick 3 has started" in repair().out
    repair("--yes")
    assert run_once(base).tick == 4


def test_a_counter_moved_past_an_unfinished_tick_goes_back_to_it(base: Path, repair: Repair) -> None:
    interrupt(make(base))
    (base / "tick.json").write_text('{"current_tick": 5}')
    with pytest.raises(CorruptState):
        run_once(base)
    assert "current_tick is 5, but tick 4 was interrupted in the turn of bob" in repair().out
    repair("--yes")
    assert run_once(base).tick == 4


def test_a_counter_that_no_journal_can_tell_is_left_to_the_person(base: Path, repair: Repair) -> None:
    (make(base, ticks=0) / "tick.json").write_text("?")
    ran = repair("--yes")
    assert ran.status == 0
    assert '  for you: write {"current_tick": N} into the file yourself: no journal has the number' in ran.out
    assert (base / "tick.json").read_text() == "?"


# --- journals ------------------------------------------------------------------------------------


def test_a_damaged_journal_of_a_finished_tick_costs_only_the_record(base: Path, repair: Repair) -> None:
    before = damage(journal(make(base), 2), 3)
    ran = repair()
    assert ran.out.startswith("logs/ticks/00000002.jsonl:3: the journal is damaged")
    assert "  would: move it aside: the record of tick 2 is lost; the files of the tick stay" in ran.out
    damaged = journal(base, 2).read_bytes()
    files = tree(base)
    repair("--yes")
    assert (aside_of(base) / "logs/ticks/00000002.jsonl").read_bytes() == damaged != before
    assert not journal(base, 2).exists()
    assert {path: raw for path, raw in tree(base).items() if not path.startswith("aside/")} == files
    assert run_once(base).tick == 4


def test_a_damaged_unfinished_journal_goes_on_after_its_last_whole_line(base: Path, repair: Repair) -> None:
    interrupt(make(base))
    whole = journal(base, 4).read_bytes().splitlines(keepends=True)
    before = damage(journal(base, 4), 4)
    assert len(whole) == 5
    with pytest.raises(CorruptState):
        run_once(base)
    assert "keep its first 3 lines, which are whole: tick 4 continues after them" in repair().out
    assert "called, and paid, again" in repair().out
    repair("--yes")
    assert journal(base, 4).read_bytes() == b"".join(whole[:3])
    assert (aside_of(base) / "logs/ticks/00000004.jsonl").read_bytes() != before
    asked: list[str] = []
    run_once(base, notify=lambda event: asked.append(event.agent) if isinstance(event, ModelAsked) else None)
    assert asked == ["bob"]  # what ada's model had answered stands above the damage
    assert is_committed(base, 4)


def test_a_journal_damaged_in_its_first_line_runs_afresh(base: Path, repair: Repair) -> None:
    interrupt(make(base))
    damage(journal(base, 4), 1)
    assert "move it aside: tick 4 runs anew, and its models are called, and paid, again" in repair().out
    repair("--yes")
    assert run_once(base).tick == 4
    assert journal_lines(base, 4)[-1]["type"] == "tick_committed"


def test_a_turn_whose_beginning_stood_in_a_journal_that_is_gone_is_taken_anew(base: Path, repair: Repair) -> None:
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": say("news")}])

    def die(event: Event) -> None:
        if isinstance(event, ModelAsked) and event.agent == "bob" and load_tick(base) == 3:
            raise Crash

    with pytest.raises(Crash):
        run_forever(base, interval_s=0, max_ticks=4, notify=die)
    journal(base, 1).unlink()  # as power loss may with durability "off"
    with pytest.raises(CorruptState, match="cannot be rebuilt"):
        run_once(base)
    (found,) = repair("--json").objects
    assert found["where"] == "logs/ticks/00000003.jsonl:2"
    assert repair("--yes").status == 0
    assert [turn.status for turn in run_once(base).turns] == ["done", "done"]
    assert load_tick(base) == 4


def test_a_link_in_the_place_of_a_journal_is_moved_aside(base: Path, repair: Repair) -> None:
    make(base)
    journal(base, 1).rename(base / "elsewhere")
    journal(base, 1).symlink_to(base / "elsewhere")
    assert "got a symbolic link" in repair().out
    repair("--yes")
    assert (aside_of(base) / "logs/ticks/00000001.jsonl").is_symlink()
    assert repair().status == 0


def test_damaged_packed_journals_are_moved_aside(base: Path, repair: Repair) -> None:
    packed = make(base) / "logs/ticks/sealed/00000000-00000099.jsonl.xz"
    packed.parent.mkdir()
    packed.write_bytes(b"no archive")
    ran = repair()
    assert "logs/ticks/sealed/00000000-00000099.jsonl.xz: the packed journals are damaged" in ran.out
    assert "move it aside: the record of its ticks is lost, everything else stays" in ran.out
    repair("--yes")
    assert (aside_of(base) / "logs/ticks/sealed" / packed.name).read_bytes() == b"no archive"
    assert repair().status == 0


# --- ledgers -------------------------------------------------------------------------------------


def test_a_damaged_end_of_a_ledger_is_cut_and_kept(base: Path, repair: Repair) -> None:
    ledger = make(base) / "agents/ada/turns.jsonl"
    whole = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(whole[0] + whole[1] + b'{"tick": "three"}\n' + b"garbage\n" + b'{"ti')
    broken = ledger.read_bytes()
    with pytest.raises(CorruptState):
        read_state(base, "ada")
    ran = repair()
    assert "agents/ada/turns.jsonl: its last 3 lines are not a record of the engine" in ran.out
    assert "ada continues from its turn of tick 2; later reading and spending is forgotten" in ran.out
    repair("--yes")
    assert ledger.read_bytes() == whole[0] + whole[1]
    assert (aside_of(base) / "agents/ada/turns.jsonl").read_bytes() == broken
    assert [turn.status for turn in run_once(base).turns] == ["done", "done"]


def test_a_ledger_with_nothing_readable_is_moved_aside(base: Path, repair: Repair) -> None:
    (make(base) / "agents/ada/turns.jsonl").write_text("garbage\n")
    assert "move it aside: ada starts anew, its read entries and spent credits are forgotten" in repair().out
    repair("--yes")
    assert read_state(base, "ada").turns == 0


# --- what lies around ----------------------------------------------------------------------------


def test_what_a_crash_left_half_written_is_moved_aside(base: Path, repair: Repair) -> None:
    make(base, ticks=0)
    number = 0
    while not list(base.rglob(".*.tmp")):
        number += 1
        with pytest.raises(Crash), crash_at(number):
            run_once(base)
        if not list(base.rglob(".*.tmp")):
            run_once(base)
    (left,) = list(base.rglob(".*.tmp"))
    place = left.relative_to(base)
    assert f"{place}: left by an interrupted write" in repair().out
    repair("--yes")
    assert not left.exists()
    assert (aside_of(base) / place).exists()


def test_odd_files_in_an_outbox_are_listed_and_left(base: Path, repair: Repair) -> None:
    odd = make(base) / "agents/ada/outbox/readme.txt"
    odd.write_text("hello")
    ran = repair("--yes")
    assert ran.status == 0
    assert "agents/ada/outbox/readme.txt: the file name must be TICK_ID.json; the file is ignored" in ran.out
    assert "  for you: name entries like 00000042_3fa9c1d2e0b7.json" in ran.out
    assert ran.err == "nothing to repair; 1 thing for you to decide\n"
    assert odd.exists()


# --- manners -------------------------------------------------------------------------------------


def test_several_faults_are_put_right_at_once_and_only_once(base: Path, repair: Repair) -> None:
    make(base)
    (base / "tick.json").unlink()
    damage(journal(base, 1), 2)
    (base / "agents/bob/turns.jsonl").write_text("?\n")
    (told, *rest) = repair("--yes", "--json").objects
    assert [one["kind"] for one in [told, *rest]] == ["tick", "journal", "ledger"]
    assert all(one["is_done"] and one["aside"] == f"aside/{aside_of(base).name}" for one in [told, *rest])
    assert repair().status == 0
    assert run_once(base).tick == 4


def test_two_repairs_never_share_a_folder(base: Path, repair: Repair) -> None:
    make(base)
    for text in ("first", "second"):
        (base / "tick.json").write_text(text)
        repair("--yes")
    kept = sorted(folder / "tick.json" for folder in (base / "aside").iterdir())
    assert sorted(file.read_text() for file in kept) == ["first", "second"]


def test_a_repair_does_not_run_beside_an_engine(base: Path, repair: Repair) -> None:
    make(base)
    with open_org(base):
        assert repair("--yes").status == 4


@pytest.mark.sample(4)
@pytest.mark.parametrize("number", range(1, 12))
def test_a_repair_that_dies_is_finished_by_the_next_one(base: Path, repair: Repair, number: int) -> None:
    make(base)
    (base / "tick.json").write_text("?")
    damage(journal(base, 1), 2)
    ledger = base / "agents/bob/turns.jsonl"
    ledger.write_bytes(ledger.read_bytes() + b"?\n")
    try:
        with crash_at(number):
            repair("--yes")
    except Crash:
        repair("--yes")
    repair("--yes")
    assert repair().status == 0
    assert run_once(base).tick == 4


def test_doctor_finds_what_repair_would_see_to(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(base)
    damage(journal(base, 2), 2)
    (base / "agents/bob/turns.jsonl").write_text("?\n")
    found = [f for f in typed(capsys, base, "doctor", "--json").objects if f["about"] == "repair"]
    assert [(f["level"], f["fix"]) for f in found] == [("fail", "lemming repair")] * 2
    assert found[0]["text"].startswith("logs/ticks/00000002.jsonl:2: the journal is damaged")


def test_journals_of_ticks_that_were_taken_back_say_what_they_spent(base: Path, repair: Repair) -> None:
    make(base, ticks=1)
    at_one = base.parent / "backup"
    shutil.copytree(base, at_one)
    run_once(base)
    run_once(base)
    shutil.rmtree(at_one / "logs")
    shutil.copytree(base / "logs", at_one / "logs")
    shutil.rmtree(base)
    at_one.rename(base)
    (told,) = repair("--json").objects
    assert told["kind"] == "tick"
    assert "They spent 4 credits" in told["action"]
    assert "`lemming credits grant ada -2`, `lemming credits grant bob -2`" in told["action"]
