"""`wake_on_change`: how long the engine sleeps, what wakes it, and that no change is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asleep import CHANGED, EVERY_TENTH, MINUTE, Alarm, asleep, human, reader, send

from lemming.engine import load_tick, run_once, run_opened, ticks
from lemming.kernel.files.fs import AppendFile
from lemming.kernel.files.stat_cache import has_exact_mtime, probe_mtime_resolution, to_identity
from lemming.kernel.journal.engine_events import Sleeping, Woken
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.operations.change_detector import ChangeDetector
from lemming.operations.change_poller import MAX_POLL_S, MAX_SLEEP_S, ChangePoller
from lemming.operations.open_org import open_org
from lemming.testing import FrozenClock, make_org, resume, say, tree

# --- how long ------------------------------------------------------------------------------------


def test_somebody_due_in_the_next_tick_ends_the_sleep_after_one_interval(base: Path) -> None:
    make_org(base, resume("ada"))
    with asleep(base) as night:
        night.tick()
    assert (night.alarm.now, night.passed) == (MINUTE, 0)


def test_ticks_in_which_nobody_is_due_are_slept_through_and_counted(base: Path) -> None:
    make_org(base, resume("ada", schedule=EVERY_TENTH))
    with asleep(base) as night:
        assert night.tick().is_quiet
        assert (night.alarm.now, night.passed, load_tick(base)) == (9 * MINUTE, 8, 10)
        assert [turn.status for turn in night.tick().turns] == ["done"]
    assert night.told(Sleeping)[0].until_tick == 10
    assert night.told(Sleeping)[0].due == ["ada"]
    assert night.told(Woken)[0].slept_through == 8


def test_who_found_nothing_new_keeps_nobody_awake(base: Path) -> None:
    make_org(base, reader("ada"), human())
    with asleep(base) as night:
        assert [turn.status for turn in night.tick().turns] == ["done", "skipped"]
        assert night.alarm.now == MINUTE
        assert night.tick().is_quiet
        assert night.alarm.now == MINUTE + MAX_SLEEP_S
        assert night.tick().tick == 2 + MAX_SLEEP_S / MINUTE
        assert night.told(Sleeping)[-1].due == []


def test_the_longer_nothing_happens_the_more_seldom_it_looks(base: Path) -> None:
    make_org(base, resume("ada", schedule=EVERY_TENTH))
    with asleep(base) as night:
        night.tick()
    pauses = night.alarm.waits[:-1]
    assert pauses == sorted(pauses)
    assert pauses[0] < 1
    assert pauses[-1] == MAX_POLL_S


def test_without_an_interval_nobody_due_does_not_make_it_spin(base: Path) -> None:
    make_org(base, reader("ada"), human())
    alarm = Alarm()
    with open_org(base, stop=alarm) as runtime:
        sleeper = ChangePoller(runtime, lambda: alarm.now)
        for _ in range(2):
            with sleeper.around_tick():
                report = run_opened(runtime, load_tick(base), advance=True)
            assert sleeper.sleep(report, 0.0, float("inf")) == 0
    assert report.is_quiet
    assert alarm.now == MAX_SLEEP_S


# --- what wakes it -------------------------------------------------------------------------------


def test_an_entry_by_a_person_wakes_it_and_the_reader_takes_its_turn(base: Path) -> None:
    make_org(base, reader("ada"), human())
    with asleep(base) as night:
        night.tick()
        night.alarm.planned = [(MINUTE + 150.0, lambda: send(base))]
        night.tick()
        assert MINUTE + 150 < night.alarm.now < MINUTE + 155
        assert night.told(Woken)[-1].changed == ["agents/human/outbox"]
        assert night.passed == 2
        assert [turn.status for turn in night.tick().turns] == ["done", "skipped"]


@pytest.mark.parametrize(
    "file",
    [
        "agents/ada/resume.json",
        "agents/ada/memory/note.json",
        "agents/bob/resume.json",
        "config/models.json",
        "config/credits.json",
        "shared/facts.txt",
    ],
)
def test_these_files_wake_it_when_they_change(base: Path, file: str) -> None:
    access = {"read_outboxes": [], "file_access": {"allow_read": ["./shared"]}}
    ada = reader("ada", schedule=EVERY_TENTH, permissions=access, context=[{"file": "./shared/facts.txt"}])
    make_org(base, ada)
    (base / "shared").mkdir()
    (base / "shared/facts.txt").write_text("one")
    with asleep(base) as night:
        night.alarm.planned = [(10.0, lambda: _add_a_blank(base, file))]
        night.tick()
        assert night.told(Woken)[-1].changed == [file]
        assert night.alarm.now < MINUTE


def _add_a_blank(base: Path, file: str) -> None:
    (base / file).parent.mkdir(parents=True, exist_ok=True)
    before = (base / file).read_text() if (base / file).exists() else '{"key": "note", "value": 1}'
    (base / file).write_text(before + " ")


@pytest.mark.parametrize("file", ["agents/ada/workspace/draft.txt", "logs/engine.log", "shared/nobodys.txt"])
def test_these_files_let_it_sleep(base: Path, file: str) -> None:
    make_org(base, resume("ada", schedule=EVERY_TENTH))
    with asleep(base) as night:
        night.alarm.planned = [(10.0, lambda: _add_a_blank(base, file))]
        night.tick()
        assert night.alarm.now == 9 * MINUTE


def test_an_edit_of_the_same_size_within_one_granule_of_the_clock_wakes_it(base: Path) -> None:
    make_org(base, resume("ada", schedule=EVERY_TENTH))
    file = base / "agents/ada/resume.json"
    with asleep(base) as night:
        night.alarm.planned = [(10.0, lambda: file.write_text(file.read_text().replace("Ada", "Eva")))]
        night.tick()
        assert night.told(Woken)[-1].changed == ["agents/ada/resume.json"]


def test_a_file_still_being_written_is_waited_for(base: Path) -> None:
    make_org(base, resume("ada", schedule=EVERY_TENTH))
    file = base / "agents/ada/resume.json"
    whole = file.read_text()
    with asleep(base) as night:
        night.alarm.planned = [
            (10.0, lambda: file.write_text(whole[:20])),
            (12.9, lambda: file.write_text(whole + " ")),
        ]
        night.tick()
        assert file.read_text() == whole + " "
        assert night.tick().totals["failed"] == 0


def test_a_change_just_before_the_tick_of_one_who_rests_is_in_time(base: Path) -> None:
    make_org(base, reader("ada", schedule={**CHANGED, **EVERY_TENTH}), human())
    with asleep(base) as night:
        assert [night.tick().tick for _ in range(2)] == [1, 10]
        began = night.alarm.now
        night.alarm.planned = [(began + 10 * MINUTE - 0.1, lambda: send(base, tick=20))]
        assert night.tick().is_quiet
        report = night.tick()
        assert (report.tick, [turn.status for turn in report.turns]) == (30, ["done", "skipped"])


# --- nothing is lost, and nothing of its own wakes it ----------------------------------------------


def test_a_change_during_a_tick_begins_the_next_one_at_once(base: Path) -> None:
    make_org(base, reader("ada"), human())
    with asleep(base) as night:
        night.tick(meanwhile=lambda: send(base))
        assert night.alarm.now == 0
        assert night.told(Woken)[-1].changed == ["agents/human/outbox"]
        assert [turn.status for turn in night.tick().turns] == ["done", "skipped"]
        assert night.alarm.now == MINUTE


def test_a_persons_entry_beside_one_that_the_engine_wrote_is_noticed(base: Path) -> None:
    make_org(base, resume("ada", permissions={}))
    with asleep(base) as night:
        night.tick(meanwhile=lambda: _drop(base / "agents/ada/outbox/00000001_ffffffffffff.json"))
        assert night.told(Woken)[-1].changed == ["agents/ada/outbox"]
        assert night.alarm.now == 0


def _drop(file: Path) -> None:
    file.write_text("{}")


def test_what_the_engine_wrote_itself_does_not_wake_it(base: Path) -> None:
    note = {"key": "note", "value": 1}
    both = {"schedule": CHANGED, "permissions": {"read_outboxes": ["*"]}}
    make_org(base, resume("ada", **both), resume("bob", **both), script=[{"reply": say("hi", memory_updates=[note])}])
    with asleep(base) as night:
        for minutes in range(1, 5):
            assert night.tick().totals["done"] == 2
            assert night.alarm.now == minutes * MINUTE
        assert {event.why for event in night.told(Woken)} == {"time"}


def test_a_change_as_the_next_tick_begins_is_kept_for_one_who_is_due_later(base: Path) -> None:
    nobody: dict[str, Any] = {"permissions": {}}
    seventh = {"schedule": {**CHANGED, "run_every_n_ticks": 7}}
    make_org(base, reader("ada", schedule={**CHANGED, **EVERY_TENTH}, **nobody), reader("bob", **seventh), human())
    with asleep(base) as night:
        assert [night.tick().tick for _ in range(5)] == [1, 7, 10, 14, 20]
        send(base, tick=20)
        assert night.tick().tick == 20 + MAX_SLEEP_S / MINUTE
        report = night.tick()
        assert (report.tick, [turn.status for turn in report.turns]) == (84, ["done", "skipped"])


def test_changes_in_two_ticks_running_bring_only_one_forward(base: Path) -> None:
    make_org(base, reader("ada"), human())
    with asleep(base) as night:
        night.tick(meanwhile=lambda: send(base, identity="a" * 12))
        night.tick(meanwhile=lambda: send(base, identity="b" * 12))
        assert night.alarm.now == MINUTE
        assert [turn.status for turn in night.tick().turns] == ["done", "skipped"]


class Scribble(Tool):
    """Writes a memory behind the engine's back."""

    name = "scribble"
    description = "scribble"

    def execute(self, agent_name: str, base_path: Path) -> ToolResult:
        (base_path / "agents/ada/memory").mkdir(exist_ok=True)
        (base_path / "agents/ada/memory/x.json").write_text('{"key": "x", "value": 1}')
        return ToolResult(True, "done")


def test_what_a_tool_of_ones_own_changed_waits_for_the_interval(base: Path) -> None:
    ToolRegistry.register(Scribble())
    reply = {"outbox_entries": [], "tool_calls": [{"tool": "scribble", "args": {}}], "memory_updates": [], "notes": ""}
    try:
        make_org(base, resume("ada", permissions={"tools": ["scribble"]}), script=[{"reply": reply}])
        with asleep(base) as night:
            assert [tool["success"] for tool in night.tick().turns[0].tools] == [True]
            assert night.alarm.now == MINUTE
    finally:
        ToolRegistry.unregister("scribble")


@pytest.mark.parametrize("place", ["shared/facts.txt", "outside/facts.txt"])
def test_a_context_file_that_the_engine_wrote_for_an_agent_does_not_wake_it(base: Path, place: str) -> None:
    folder = (base / place).parent if place.startswith("shared") else base.parent / "outside"
    folder.mkdir(parents=True)
    file = str(folder / "facts.txt")
    Path(file).write_text("none yet")
    access = {"allow_read": [str(folder)], "allow_write": [str(folder)]}
    call = {"tool": "file_write", "args": {"path": file, "content": "new"}}
    make_org(
        base,
        resume("ada", permissions={"tools": ["file_write"], "file_access": access}, context=[{"file": file}]),
        script=[{"reply": {"outbox_entries": [], "tool_calls": [call], "memory_updates": [], "notes": ""}}],
    )
    with asleep(base) as night:
        night.tick()
        assert Path(file).read_text() == "new"
        assert night.alarm.now == MINUTE


def test_sleeping_changes_no_byte(base: Path, tmp_path: Path) -> None:
    ran = []
    for org, sleeps in ((base, True), (tmp_path / "other", False)):
        schedules = [CHANGED, EVERY_TENTH, {"run_every_n_ticks": 7, "phase_offset": 3, **CHANGED}]
        make_org(org, *(resume(f"a{n}", schedule=schedule) for n, schedule in enumerate(schedules)))
        reports = list(ticks(org, interval_s=0, until_tick=40, wake_on_change=sleeps, clock=FrozenClock()))
        assert [report.tick for report in reports if not report.is_quiet][:4] == [1, 4, 5, 10]
        ran.append((len(reports), tree(org)))
    (few, slept), (all_of_them, awake) = ran
    assert few < all_of_them == 40
    assert slept == awake


# --- how it ends ---------------------------------------------------------------------------------


def test_a_stop_ends_the_sleep_and_counts_the_ticks_that_had_their_time(base: Path) -> None:
    make_org(base, resume("ada", schedule=EVERY_TENTH))
    with asleep(base) as night:
        night.alarm.planned = [(3.5 * MINUTE, night.alarm.set)]
        night.tick()
        assert night.alarm.now == 3.5 * MINUTE
        assert load_tick(base) == 5
        assert night.told(Woken)[-1].why == "stop"


def test_a_tick_that_was_stopped_half_way_is_not_slept_through(base: Path) -> None:
    make_org(base, resume("ada", schedule=EVERY_TENTH))
    with asleep(base) as night:
        night.alarm.now = 5 * MINUTE
        assert night.sleeper.sleep(TickReport(tick=1, turns=(), is_complete=False), MINUTE, 100) == 0


def test_ticks_slept_through_count_towards_max_ticks_and_until_tick(base: Path) -> None:
    make_org(base, resume("ada", schedule=EVERY_TENTH))
    ran = ticks(base, interval_s=0, wake_on_change=True, max_ticks=15)
    assert [(report.tick, report.is_quiet) for report in ran] == [(1, True), (10, False), (15, True)]
    assert load_tick(base) == 16
    more = ticks(base, interval_s=0, wake_on_change=True, until_tick=18)
    assert [report.tick for report in more] == [16, 18]


def test_the_next_look_at_files_that_rest_is_one_stat_each(base: Path) -> None:
    make_org(base, resume("ada"), org={}, models={})
    run_once(base, clock=FrozenClock())
    with AppendFile(base, "stamps") as file:
        probe_mtime_resolution(file.restamp)
        if not has_exact_mtime(to_identity(file.initial_status)):
            pytest.skip("the stamps of this disk do not tell every change, so files have to rest for seconds")
    watch = ChangeDetector(base)
    assert watch.is_unchanged
    assert watch.find_changes() == []
    for file in ("agents/ada/resume.json", "config/org.json", "agents/ada/memory/mood.json"):
        (base / file).parent.mkdir(exist_ok=True)
        (base / file).write_text("{}")
        assert not watch.is_unchanged
        assert file in watch.find_changes()
        watch.find_changes()
        assert watch.is_unchanged
