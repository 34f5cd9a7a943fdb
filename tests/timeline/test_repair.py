"""`lemming repair`: every fault is told in plain words, and put right without anything being lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from terminal import Ran
from typed import bell, typed

from lemming.engine import load_tick, run_once
from lemming.errors import CorruptState, TickAlreadyCommitted
from lemming.events import Event, ModelAsked
from lemming.journal.file import is_committed
from lemming.journal.ledger import read_state
from lemming.testing import Crash, crash_at, journal_lines, make_org, resume, say, tree
from lemming.tick.runtime import open_org
from lemming.timeline.repair.repair import find_repairs
from lemming.timeline.repair.unknown import mark_call
from lemming.timeline.verify.files import verify

Repair = Callable[..., Ran]


@pytest.fixture
def repair(base: Path, capsys: pytest.CaptureFixture[str]) -> Repair:
    """`lemming repair` on the organisation in `base`."""

    def run_it(*words: str) -> Ran:
        return typed(capsys, base, "repair", *words)

    return run_it


def make(base: Path, *, ticks: int = 3) -> Path:
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": say("news")}])
    for _ in range(ticks):
        run_once(base)
    return base


def journal(base: Path, tick: int) -> Path:
    return base / f"logs/ticks/{tick:08d}.jsonl"


def damage(file: Path, line: int) -> bytes:
    """Change a letter of one line of a file (from 1), and return what the file was before."""
    before = file.read_bytes()
    lines = before.splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(b"e", b"E", 1)
    file.write_bytes(b"".join(lines))
    return before


def interrupt(base: Path, agent: str = "bob") -> None:
    """Begin a tick and die when this agent's model is asked."""

    def die(event: Event) -> None:
        if isinstance(event, ModelAsked) and event.agent == agent:
            raise Crash

    with pytest.raises(Crash):
        run_once(base, notify=die)


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
    assert '  would: write {"current_tick": 4} into it: tick 3 is the last one committed' in ran.out
    assert ran.err == "1 repair to make: `lemming repair --yes` makes them\n"
    assert state(base) == before
    ran = repair("--yes")
    assert ran.status == 0
    assert '  done: write {"current_tick": 4} into it' in ran.out
    assert load_tick(base) == 4
    assert (aside_of(base) / "tick.json").read_text() == "{oops"
    assert run_once(base).tick == 4
    assert repair().status == 0


def test_a_missing_counter_names_the_tick_that_was_interrupted(base: Path, repair: Repair) -> None:
    interrupt(make(base))
    (base / "tick.json").unlink()
    assert '{"current_tick": 4} into it: tick 4 was interrupted and goes on' in repair().out
    repair("--yes")
    assert not (base / "aside").exists()
    run_once(base)
    assert [read_state(base, name).turns for name in ("ada", "bob")] == [4, 4]


def test_a_counter_moved_back_is_moved_on(base: Path, repair: Repair) -> None:
    (make(base) / "tick.json").write_text('{"current_tick": 2}')
    with pytest.raises(TickAlreadyCommitted):
        run_once(base)
    assert "it names tick 2, but tick 2 is over: tick 3 has begun" in repair().out
    repair("--yes")
    assert run_once(base).tick == 4


def test_a_counter_moved_back_to_a_quiet_tick_is_moved_on(base: Path, repair: Repair) -> None:
    make(base)
    (base / "logs/ticks/00000002.jsonl").unlink()
    (base / "tick.json").write_text('{"current_tick": 2}')
    with pytest.raises(TickAlreadyCommitted):
        run_once(base)
    assert "it names tick 2, but tick 2 is over: tick 3 has begun" in repair().out
    repair("--yes")
    assert run_once(base).tick == 4


def test_a_counter_moved_past_an_unfinished_tick_goes_back_to_it(base: Path, repair: Repair) -> None:
    interrupt(make(base))
    (base / "tick.json").write_text('{"current_tick": 5}')
    with pytest.raises(CorruptState):
        run_once(base)
    assert "it names tick 5, but tick 4 was interrupted in the turn of bob" in repair().out
    repair("--yes")
    assert run_once(base).tick == 4


def test_a_counter_that_no_journal_can_tell_is_left_to_the_person(base: Path, repair: Repair) -> None:
    (make(base, ticks=0) / "tick.json").write_text("?")
    ran = repair("--yes")
    assert ran.status == 0
    assert '  for you: no journal tells the number: write {"current_tick": N} into it yourself' in ran.out
    assert (base / "tick.json").read_text() == "?"


# --- journals ------------------------------------------------------------------------------------


def test_a_damaged_journal_of_a_finished_tick_costs_only_the_record(base: Path, repair: Repair) -> None:
    before = damage(journal(make(base), 2), 3)
    ran = repair()
    assert ran.out.startswith("logs/ticks/00000002.jsonl:3: the journal is damaged")
    assert (
        "  would: move it aside: the record of tick 2 is lost; what the tick wrote stays as it is" in ran.out
    )
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
    assert "keep its first 3 lines, which are whole: tick 4 goes on after them" in repair().out
    assert "asked, and paid, again" in repair().out
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
    assert "move it aside: tick 4 runs afresh, and its models are asked, and paid, again" in repair().out
    repair("--yes")
    assert run_once(base).tick == 4
    assert journal_lines(base, 4)[-1]["type"] == "tick_committed"


def test_a_link_in_the_place_of_a_journal_is_moved_aside(base: Path, repair: Repair) -> None:
    make(base)
    journal(base, 1).rename(base / "elsewhere")
    journal(base, 1).symlink_to(base / "elsewhere")
    assert "symbolic link refused" in repair().out
    repair("--yes")
    assert (aside_of(base) / "logs/ticks/00000001.jsonl").is_symlink()
    assert repair().status == 0


def test_damaged_packed_journals_are_moved_aside(base: Path, repair: Repair) -> None:
    packed = make(base) / "logs/ticks/sealed/00000000-00000099.jsonl.xz"
    packed.parent.mkdir()
    packed.write_bytes(b"no archive")
    ran = repair()
    assert "logs/ticks/sealed/00000000-00000099.jsonl.xz: the sealed journals are damaged" in ran.out
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
    assert "agents/ada/turns.jsonl: its last 3 lines are not what the engine wrote" in ran.out
    assert "ada goes on from its turn of tick 2; what it read and spent after that is forgotten" in ran.out
    repair("--yes")
    assert ledger.read_bytes() == whole[0] + whole[1]
    assert (aside_of(base) / "agents/ada/turns.jsonl").read_bytes() == broken
    assert [turn.status for turn in run_once(base).turns] == ["done", "done"]


def test_a_ledger_with_nothing_readable_is_moved_aside(base: Path, repair: Repair) -> None:
    (make(base) / "agents/ada/turns.jsonl").write_text("garbage\n")
    assert "move it aside: ada starts anew, what it has read and spent is forgotten" in repair().out
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
    assert f"{place}: left by a write that was cut off" in repair().out
    repair("--yes")
    assert not left.exists()
    assert (aside_of(base) / place).exists()


def test_odd_files_in_an_outbox_are_listed_and_left(base: Path, repair: Repair) -> None:
    odd = make(base) / "agents/ada/outbox/readme.txt"
    odd.write_text("hello")
    ran = repair("--yes")
    assert ran.status == 0
    assert "agents/ada/outbox/readme.txt: ignored: not an entry's file name" in ran.out
    assert "  for you: entries are named like 00000042_3fa9c1d2e0b7.json" in ran.out
    assert ran.err == "nothing to repair; 1 thing for you to decide\n"
    assert odd.exists()


# --- calls whose outcome is unknown --------------------------------------------------------------


def with_unknown_call(base: Path) -> Path:
    ring = say("ringing", tool_calls=[{"tool": "bell", "args": {"loud": True}}])
    make_org(
        base,
        resume("ada", permissions={"read_outboxes": [], "tools": ["bell"]}, schedule={"wake": "changed"}),
        script=[{"agent": "ada", "tick": 1, "reply": ring}, {"reply": say("quiet")}],
    )
    with bell(dies=True), pytest.raises(Crash):
        run_once(base)
    return base


def test_a_call_whose_outcome_is_unknown_is_listed(base: Path, repair: Repair) -> None:
    run_once(with_unknown_call(base))
    ran = repair()
    assert ran.status == 0
    assert '1/ada/0: ada called bell {"loud":true} in tick 1; the engine ended while it ran' in ran.out
    assert "`lemming repair --mark done 1/ada/0` or `--mark failed 1/ada/0`" in ran.out
    (told,) = repair("--json").objects
    assert told["call"] == {
        "id": "1/ada/0",
        "tick": 1,
        "agent": "ada",
        "index": 0,
        "tool": "bell",
        "args": {"loud": True},
        "was_retried": False,
    }
    assert told["is_for_a_person"] is True


@pytest.mark.parametrize(("mark", "words"), [("done", "it did happen"), ("failed", "it did not happen")])
def test_what_a_person_found_out_is_in_the_agents_next_prompt(
    base: Path, repair: Repair, mark: str, words: str
) -> None:
    run_once(with_unknown_call(base))
    run_once(base)
    ran = repair("--mark", mark, "1/ada/0")
    assert ran.status == 0
    assert ran.err.startswith('ada will read in its next prompt that bell {"loud":true} did ')
    assert repair().err == "nothing to repair\n"
    report = run_once(base)
    assert report.turns[0].status == "done"
    started = next(r for r in journal_lines(base, report.tick) if r["type"] == "turn_started")
    assert f"A person has found out about this call of tick 1: {words}." in started["prompt"][-1]["content"]
    assert read_state(base, "ada").results == ()
    assert repair().err == "nothing to repair\n"  # the journal remembers the mark


def test_a_mark_waits_until_the_tick_is_finished(base: Path, repair: Repair) -> None:
    run_once(with_unknown_call(base))
    interrupt(base, "ada")
    ran = repair("--mark", "done", "1/ada/0")
    assert ran.status == 2
    assert "tick 2 is unfinished" in ran.err


@pytest.mark.parametrize("number", range(1, 5))
def test_a_mark_that_dies_costs_the_agent_nothing_it_knew(base: Path, repair: Repair, number: int) -> None:
    run_once(with_unknown_call(base))
    before = read_state(base, "ada")
    with pytest.raises(Crash), crash_at(number):
        mark_call(base, "1/ada/0", happened=True)
    after = read_state(base, "ada")
    assert replace(after, results=()) == replace(before, results=())
    assert after.results[: len(before.results)] == before.results


@pytest.mark.parametrize("words", [["--mark", "done"], ["1/ada/0"], ["--mark", "done", "1/ada/7"]])
def test_a_mark_needs_a_call_that_is_unknown(base: Path, repair: Repair, words: list[str]) -> None:
    run_once(with_unknown_call(base))
    assert repair(*words).status == 2


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


# --- files that are gone -------------------------------------------------------------------------


def remembering(base: Path) -> Path:
    said = say("news", memory_updates=[{"key": "last", "value": 1}])
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": said}])
    for _ in range(3):
        run_once(base)
    return base


def entries(base: Path, agent: str) -> list[Path]:
    return sorted((base / f"agents/{agent}/outbox").iterdir())


def test_lost_entries_and_memories_are_written_again_when_asked_for(base: Path, repair: Repair) -> None:
    before = tree(remembering(base))
    for file in (*entries(base, "ada")[1:], base / "agents/bob/memory/last.json"):
        file.unlink()
    assert verify(base).errors
    told = repair("--json")
    assert told.status == 1
    assert [(one["kind"], one["is_for_a_person"]) for one in told.objects] == [("lost", False)] * 3
    assert len(entries(base, "ada")) == 1, "nothing comes back before it is asked for"
    assert [one.kind for one in find_repairs(base, newest=20)] == ["lost"] * 3, "which is what doctor tells"
    assert repair("--yes").status == 0
    assert tree(base) == before
    assert verify(base).findings == ()
    assert repair().status == 0


def test_what_people_and_retention_removed_stays_removed(base: Path, repair: Repair) -> None:
    said = say("news", memory_updates=[{"key": "last", "value": 1}])
    other = say("more", memory_updates=[{"key": "other", "value": 1}])
    script = [{"tick": 1, "reply": said}, {"reply": other}]
    make_org(base, resume("ada"), org={"retention_ticks": 2}, script=script)
    for _ in range(5):
        run_once(base)
    assert len(entries(base, "ada")) < 5
    (base / "agents/ada/memory/last.json").unlink()  # which no newer turn has written
    assert repair("--yes", "--json").objects == []


def test_nothing_of_an_agent_that_is_gone_comes_back(base: Path, repair: Repair) -> None:
    remembering(base)
    shutil.rmtree(base / "agents/ada")
    assert repair("--yes", "--json").objects == []


def test_another_agent_of_the_same_name_does_not_get_its_entries(base: Path, repair: Repair) -> None:
    remembering(base)
    shutil.rmtree(base / "agents/ada/outbox")
    (base / "agents/ada/turns.jsonl").unlink()
    assert repair("--yes", "--json").objects == []


def test_a_lost_file_of_a_workspace_is_only_told_of(base: Path, repair: Repair) -> None:
    writes = [{"tool": "file_write", "args": {"path": "a.txt", "content": "1"}}]
    files = {"allow_read": ["./workspace"], "allow_write": ["./workspace"]}
    ada = resume("ada", permissions={"tools": ["file_write"], "file_access": files})
    make_org(base, ada, script=[{"reply": say("news", tool_calls=writes)}])
    run_once(base)
    file = base / "agents/ada/workspace/a.txt"
    file.unlink()
    told = repair("--yes", "--json")
    assert [(one["kind"], one["is_for_a_person"]) for one in told.objects] == [("lost", True)]
    assert (told.status, file.exists()) == (0, False)


def test_an_entry_that_a_damaged_tick_may_have_removed_does_not_come_back(base: Path, repair: Repair) -> None:
    remembering(base)
    entries(base, "ada")[0].unlink()
    damage(journal(base, 2), 1)
    assert [one["kind"] for one in repair("--json").objects] == ["journal"]


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
