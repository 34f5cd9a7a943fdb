"""Checks: who takes a turn, in which order, and what a tick leaves."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from conformance.answering import Call, say
from conformance.bench import TICK_IS_OVER, Bench, silent
from conformance.check import holds
from conformance.reading import (
    differences,
    files_of,
    journal_of,
    records_of,
    require,
    same,
    state_of,
    texts_of,
)


@holds("ENG-1", "ENG-2", "ORD-1", "ORD-3")
def an_agent_is_due_by_arithmetic_on_the_tick(bench: Bench) -> None:
    """An agent is due when (tick + phase_offset) % run_every_n_ticks is 0, from tick 1 on."""
    org = bench.org()
    schedules = {"always": (1, 0), "third": (3, 0), "shifted": (3, 1), "even": (2, 0)}
    for name, (every, offset) in schedules.items():
        org.agent(name, schedule={"run_every_n_ticks": every, "phase_offset": offset})
    org.tick(4)
    for name, (every, offset) in schedules.items():
        expected = [tick for tick in range(1, 5) if (tick + offset) % every == 0]
        same(sorted(call.tick for call in org.calls if call.agent == name), expected, f"ticks of {name}")
    same(org.next_tick(), 5, "tick.json after four ticks")


@holds("ORD-2", "ORD-5", "JRN-3")
def turns_are_in_the_order_of_fire_points(bench: Bench) -> None:
    """Turns are taken by fire point, then by name; the plan says so."""
    org = bench.org()
    offsets = {"d": 0, "c": 1, "b": 2, "a": 3, "z": 4, "y": 0}
    for name, offset in offsets.items():
        org.agent(name, "*", schedule={"run_every_n_ticks": 4, "phase_offset": offset})
    org.write("tick.json", {"current_tick": 4})
    org.tick()
    same([call.agent for call in org.calls], ["d", "y", "z"], "order in tick 4")
    for name, offset in offsets.items():
        org.agent(name, "*", schedule={"run_every_n_ticks": 1, "phase_offset": offset})
    org.tick()
    same([call.agent for call in org.calls[3:]], sorted(offsets), "order in tick 5")
    same(records_of(org.folder, 4)[0]["order"], ["d", "y", "z"], "order in the plan of tick 4")
    same(records_of(org.folder, 5)[0]["order"], sorted(offsets), "order in the plan of tick 5")


@holds("ORD-2")
def fire_points_come_before_names(bench: Bench) -> None:
    """An agent whose fire point is earlier goes first, whatever its name."""
    org = bench.org()
    org.agent("first", "*", schedule={"run_every_n_ticks": 2, "phase_offset": 0})
    org.agent("a", "*", schedule={"run_every_n_ticks": 4, "phase_offset": 2})
    org.agent("b", "*", schedule={"run_every_n_ticks": 3, "phase_offset": 1})
    org.write("tick.json", {"current_tick": 2})
    org.tick()
    same([call.agent for call in org.calls], ["first", "a", "b"], "order by 0, 1/2, 2/3")


@holds("ORD-6")
def a_quiet_tick_leaves_nothing_but_the_counter(bench: Bench) -> None:
    """A tick in which nobody is due moves the counter on and has no journal."""
    org = bench.org()
    org.agent("ada", schedule={"run_every_n_ticks": 2})
    org.tick()
    same((len(org.calls), org.next_tick()), (0, 2), "calls and counter after a quiet tick")
    require(not journal_of(org.folder, 1).exists(), "a quiet tick has a journal")
    org.tick()
    same([call.tick for call in org.calls], [2], "ticks with a turn")


@holds("ORD-7", "MSG-4")
def results_do_not_depend_on_how_many_turns_run_at_once(bench: Bench) -> None:
    """One turn at a time and eight come to the same bytes, but for the times of day."""
    states = []
    for at_once in (1, 8):
        org = bench.org(telling_what_was_seen)
        org.write("config/org.json", {"max_parallel": at_once})
        for name, reads in {"a": "b", "b": "a", "c": "", "d": "c", "e": "*", "f": ""}.items():
            org.agent(name, *reads)
        org.tick(2)
        states.append(state_of(org.folder))
    require(not differences(*states), f"1 and 8 at once differ in {', '.join(differences(*states))}")


def telling_what_was_seen(call: Call) -> dict[str, Any]:
    """Answer with what the turn was shown, in numbers, and keep it."""
    seen = ", ".join(f"{entry['agent']}/{entry['tick']}" for entry in call.values["inbox"])
    return say(f"{call.agent} saw {seen}", memory_updates=[{"key": "seen", "value": seen}])


@holds("ORD-8")
def who_is_paused_takes_no_turn(bench: Bench) -> None:
    """A resume with `paused` takes no turn; with it in the settings, nobody does."""
    org = bench.org()
    org.agent("ada", paused="on leave")
    org.agent("bob")
    org.tick()
    same([call.agent for call in org.calls], ["bob"], "who was asked while ada is paused")
    org.write("config/org.json", {"paused": "all of them"})
    org.tick()
    same([call.agent for call in org.calls], ["bob"], "who was asked while all are paused")


@holds("ENG-3")
def a_second_engine_is_refused(bench: Bench) -> None:
    """While an engine works in a folder, another one changes nothing there."""
    statuses: list[int] = []

    def hear(call: Call) -> dict[str, Any]:
        if not statuses:
            statuses.append(-1)
            statuses[0] = org.run()[0]
        return silent(call)

    org = bench.org(hear)
    org.agent("ada")
    org.tick()
    require(statuses[0] not in TICK_IS_OVER, f"a second engine ended with {statuses[0]}")
    same(len(org.calls), 1, "calls of two engines")


@holds("ENG-4")
def all_state_is_in_the_folder(bench: Bench) -> None:
    """A copy of the folder at another place goes on as the folder itself would have."""
    org = bench.org(telling_what_was_seen)
    for name in ("ada", "bob"):
        org.agent(name, "*")
    org.tick()
    copy = bench.copy(org, telling_what_was_seen)
    org.tick()
    copy.tick()
    found = differences(state_of(copy.folder), state_of(org.folder))
    require(not found, f"the copy differs in {', '.join(found)}")


@holds("ENG-5", "FIL-4")
def what_people_write_stays_as_it_is(bench: Bench) -> None:
    """No resume, no setting and no entry of another is changed by a tick."""
    org = bench.org()
    org.agent("ada", "*")
    by_hand = b'{"instructions":  "Go on.",\n\t"name": "odd", "unknown_key": 1}'
    org.write("agents/odd/resume.json", by_hand)
    org.write("config/org.json", b'{"inbox_limit":  7}')
    org.entry("bob", 0, "byhand", "hello")
    org.write("shared/notes.txt", b"notes")
    before = files_of(org.folder)
    org.tick(2)
    after = files_of(org.folder)
    same([path for path in before if after.get(path) != before[path]], [], "files that changed")


@holds("FIL-1", "FIL-2", "FIL-3")
def a_broken_resume_stops_nobody_else(bench: Bench) -> None:
    """An agent whose resume cannot be used takes no turn; everybody else does."""
    org = bench.org()
    org.agent("good")
    plain = {"name": "broken", "instructions": "Go on."}
    good = json.dumps(plain)
    broken: dict[str, bytes] = {
        "torn": good[:-5].encode(),
        "twice": good[:-1].encode() + b', "instructions": "again"}',
        "nan": good[:-1].encode() + b', "credits": {"max_credits": NaN}}',
        "latin": good.replace("Go", "G\u00f6").encode("latin-1"),
        "other": json.dumps({**plain, "name": "somebody"}).encode(),
        "silent": json.dumps({"name": "silent"}).encode(),
        "typed": json.dumps({**plain, "name": "typed", "schedule": {"run_every_n_ticks": "2"}}).encode(),
    }
    for name, raw in broken.items():
        org.write(f"agents/{name}/resume.json", raw)
    os.symlink("../good/resume.json", org.write("agents/link/workspace/x", b"").parents[1] / "resume.json")
    before = files_of(org.folder)
    org.tick()
    same([call.agent for call in org.calls], ["good"], "who was asked")
    require(set(records_of(org.folder, 1)[0]["broken"]) >= broken.keys(), "the plan does not name the broken")
    same([path for path in before if files_of(org.folder)[path] != before[path]], [], "files that changed")


@holds("FIL-6")
def an_unreadable_counter_is_never_replaced(bench: Bench) -> None:
    """Where `tick.json` cannot be used, no tick is run and it stays as it is."""
    for raw in (b"", b'{"current_tick": "3"}', b'{"current_tick": 3', b'{"current_tick": -1}', b"[]"):
        org = bench.org()
        org.agent("ada")
        org.write("tick.json", raw)
        org.refused(f"tick.json holds {raw!r}")


@holds("FIL-7")
def an_unknown_format_is_refused(bench: Bench) -> None:
    """A folder of a format that the engine does not know is left alone, with status 3."""
    org = bench.org()
    org.agent("ada")
    org.write("config/org.json", {"format": 999999})
    org.refused("format 999999")
    same(org.run()[0], 3, "status for a format that is not known")


@holds("FIL-7")
def settings_that_cannot_be_used_are_refused(bench: Bench) -> None:
    """Where the organisation's settings cannot be read, no tick is run."""
    org = bench.org()
    org.agent("ada")
    org.write("config/org.json", b'{"visibility": "order"')
    org.refused("torn settings")


@holds("FIL-9")
def settings_that_are_gone_are_refused(bench: Bench) -> None:
    """Where a settings file is gone that the last tick ran with, no tick is run until it holds `{}`."""
    org = bench.org()
    org.agent("ada")
    org.write("config/org.json", {"retention_ticks": 7})
    org.tick()
    (org.folder / "config/org.json").unlink()
    org.refused("settings that are gone")
    same(org.run()[0], 3, "status for settings that are gone")
    org.write("config/org.json", {})
    org.tick()


@holds("ORD-4", "CRA-5")
def a_tick_is_applied_once(bench: Bench) -> None:
    """A counter that was set back runs nothing again."""
    org = bench.org()
    org.agent("ada")
    org.tick(2)
    org.write("tick.json", {"current_tick": 1})
    before = files_of(org.folder)
    org.run()
    same([call.tick for call in org.calls], [1, 2], "ticks in which a model was asked")
    changed = [path for path in differences(files_of(org.folder), before) if path != "tick.json"]
    require(not changed, f"a tick that is over changed {', '.join(changed)}")


@holds("ORD-4", "JRN-4")
def the_counter_moves_last(bench: Bench) -> None:
    """While turns of a tick are under way, `tick.json` does not show the next one."""
    seen: list[int] = []

    def hear(call: Call) -> dict[str, Any]:
        seen.append(org.next_tick())
        return silent(call)

    org = bench.org(hear)
    org.agent("ada")
    org.agent("bob", "*")
    org.tick(2)
    same(seen, [1, 1, 2, 2], "tick.json at each call")


@holds("FIL-5")
def nobody_finds_half_a_file(bench: Bench) -> None:
    """Whoever reads while an engine works finds whole JSON files only."""
    org = bench.org(lambda call: say("x" * 50_000, memory_updates=[{"key": "big", "value": "y" * 50_000}]))
    for name in ("ada", "bob", "cy"):
        org.agent(name, "*")
    torn: list[str] = []
    is_over = threading.Event()
    reader = threading.Thread(target=read_on, args=(org.folder, is_over, torn))
    reader.start()
    try:
        org.tick(2)
    finally:
        is_over.set()
        reader.join()
    same(torn, [], "files that a reader found torn")
    same(len(texts_of(org.folder, "ada")), 2, "entries of ada")


def read_on(base: Path, is_over: threading.Event, torn: list[str]) -> None:
    """Read all JSON files again and again."""
    while not is_over.wait(0.002):
        for path, raw in whole_files(base):
            try:
                json.loads(raw)
            except ValueError:
                torn.append(path)


def whole_files(base: Path) -> list[tuple[str, bytes]]:
    """Return the JSON files that can be read at this moment."""
    found = []
    for file in base.glob("**/*.json"):
        try:
            if not file.name.startswith(".") and ".lemming" not in file.parts and "logs" not in file.parts:
                found.append((str(file), file.read_bytes()))
        except FileNotFoundError:
            continue  # replaced meanwhile, by another name
    return found
