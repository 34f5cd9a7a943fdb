"""Checks of the turns in a tick, their order, and the resulting files."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from conformance.answering import Call, make_reply
from conformance.bench import TICK_DONE_STATUSES, Bench, answer_with_position
from conformance.check import covers
from conformance.reading import (
    find_differences,
    journal_path,
    load_records,
    load_state,
    load_state_files,
    load_texts,
    require,
    require_equal,
)


@covers("ENG-1", "ENG-2", "ORD-1", "ORD-3")
def an_agent_is_due_by_arithmetic_on_the_tick(bench: Bench) -> None:
    """An agent is due when (tick + phase_offset) % run_every_n_ticks is 0, from tick 1 on."""
    org = bench.make_org()
    schedules = {"always": (1, 0), "third": (3, 0), "shifted": (3, 1), "even": (2, 0)}
    for name, (every, offset) in schedules.items():
        org.add_agent(name, schedule={"run_every_n_ticks": every, "phase_offset": offset})
    org.run_ticks(4)
    for name, (every, offset) in schedules.items():
        expected = [tick for tick in range(1, 5) if (tick + offset) % every == 0]
        require_equal(sorted(call.tick for call in org.calls if call.agent == name), expected, f"ticks of {name}")
    require_equal(org.load_next_tick(), 5, "tick.json after four ticks")


@covers("ORD-2", "ORD-5", "JRN-3")
def turns_are_in_the_order_of_fire_points(bench: Bench) -> None:
    """Turns run by fire point, then by name, and the plan records the order."""
    org = bench.make_org()
    offsets = {"d": 0, "c": 1, "b": 2, "a": 3, "z": 4, "y": 0}
    for name, offset in offsets.items():
        org.add_agent(name, "*", schedule={"run_every_n_ticks": 4, "phase_offset": offset})
    org.write_file("tick.json", {"current_tick": 4})
    org.run_ticks()
    require_equal([call.agent for call in org.calls], ["d", "y", "z"], "order in tick 4")
    for name, offset in offsets.items():
        org.add_agent(name, "*", schedule={"run_every_n_ticks": 1, "phase_offset": offset})
    org.run_ticks()
    require_equal([call.agent for call in org.calls[3:]], sorted(offsets), "order in tick 5")
    require_equal(load_records(org.folder, 4)[0]["order"], ["d", "y", "z"], "order in the plan of tick 4")
    require_equal(load_records(org.folder, 5)[0]["order"], sorted(offsets), "order in the plan of tick 5")


@covers("ORD-2")
def fire_points_come_before_names(bench: Bench) -> None:
    """An agent with an earlier fire point runs first, regardless of the name."""
    org = bench.make_org()
    org.add_agent("first", "*", schedule={"run_every_n_ticks": 2, "phase_offset": 0})
    org.add_agent("a", "*", schedule={"run_every_n_ticks": 4, "phase_offset": 2})
    org.add_agent("b", "*", schedule={"run_every_n_ticks": 3, "phase_offset": 1})
    org.write_file("tick.json", {"current_tick": 2})
    org.run_ticks()
    require_equal([call.agent for call in org.calls], ["first", "a", "b"], "order by 0, 1/2, 2/3")


@covers("ORD-6")
def a_quiet_tick_leaves_nothing_but_the_counter(bench: Bench) -> None:
    """A tick without a due agent advances the counter and has no journal."""
    org = bench.make_org()
    org.add_agent("ada", schedule={"run_every_n_ticks": 2})
    org.run_ticks()
    require_equal((len(org.calls), org.load_next_tick()), (0, 2), "calls and counter after a quiet tick")
    require(not journal_path(org.folder, 1).exists(), "a quiet tick has a journal")
    org.run_ticks()
    require_equal([call.tick for call in org.calls], [2], "ticks with a turn")


@covers("ORD-7", "MSG-4")
def results_do_not_depend_on_how_many_turns_run_at_once(bench: Bench) -> None:
    """Sequential and concurrent turns give the same bytes, except for times of day."""
    states = []
    for concurrency in (1, 8):
        org = bench.make_org(answer_with_visible_entries)
        org.write_file("config/org.json", {"max_parallel": concurrency})
        for name, authors in {"a": "b", "b": "a", "c": "", "d": "c", "e": "*", "f": ""}.items():
            org.add_agent(name, *authors)
        org.run_ticks(2)
        states.append(load_state(org.folder))
    require(not find_differences(*states), f"1 and 8 at once differ in {', '.join(find_differences(*states))}")


def answer_with_visible_entries(call: Call) -> dict[str, Any]:
    """Answer with the visible entries, and store the list as a memory."""
    visible_entries = ", ".join(f"{entry['agent']}/{entry['tick']}" for entry in call.values["inbox"])
    return make_reply(f"{call.agent} saw {visible_entries}", memory_updates=[{"key": "seen", "value": visible_entries}])


@covers("ORD-8")
def who_is_paused_takes_no_turn(bench: Bench) -> None:
    """A paused agent takes no turn; with `paused` in the settings no agent does."""
    org = bench.make_org()
    org.add_agent("ada", paused="on leave")
    org.add_agent("bob")
    org.run_ticks()
    require_equal([call.agent for call in org.calls], ["bob"], "who was asked while ada is paused")
    org.write_file("config/org.json", {"paused": "all of them"})
    org.run_ticks()
    require_equal([call.agent for call in org.calls], ["bob"], "who was asked while all are paused")


@covers("ENG-3")
def a_second_engine_is_refused(bench: Bench) -> None:
    """While an engine runs in a folder, another engine changes nothing there."""
    statuses: list[int] = []

    def start_second_engine(call: Call) -> dict[str, Any]:
        if not statuses:
            statuses.append(-1)
            statuses[0] = org.run_engine()[0]
        return answer_with_position(call)

    org = bench.make_org(start_second_engine)
    org.add_agent("ada")
    org.run_ticks()
    require(statuses[0] not in TICK_DONE_STATUSES, f"a second engine ended with {statuses[0]}")
    require_equal(len(org.calls), 1, "calls of two engines")


@covers("ENG-4")
def all_state_is_in_the_folder(bench: Bench) -> None:
    """A copy of the folder in another place continues like the original."""
    org = bench.make_org(answer_with_visible_entries)
    for name in ("ada", "bob"):
        org.add_agent(name, "*")
    org.run_ticks()
    copy = bench.copy_org(org, answer_with_visible_entries)
    org.run_ticks()
    copy.run_ticks()
    changed_files = find_differences(load_state(copy.folder), load_state(org.folder))
    require(not changed_files, f"the copy differs in {', '.join(changed_files)}")


@covers("ENG-5", "FIL-4")
def what_people_write_stays_as_it_is(bench: Bench) -> None:
    """A tick changes no resume, no settings and no entry of another author."""
    org = bench.make_org()
    org.add_agent("ada", "*")
    by_hand = b'{"instructions":  "Go on.",\n\t"name": "odd", "unknown_key": 1}'
    org.write_file("agents/odd/resume.json", by_hand)
    org.write_file("config/org.json", b'{"inbox_limit":  7}')
    org.add_entry("bob", 0, "byhand", "hello")
    org.write_file("shared/notes.txt", b"notes")
    old_files = load_state_files(org.folder)
    org.run_ticks(2)
    new_files = load_state_files(org.folder)
    require_equal([path for path in old_files if new_files.get(path) != old_files[path]], [], "files that changed")


@covers("FIL-1", "FIL-2", "FIL-3")
def a_broken_resume_stops_nobody_else(bench: Bench) -> None:
    """An agent with an invalid resume takes no turn; all other agents do."""
    org = bench.make_org()
    org.add_agent("good")
    resume_json = {"name": "broken", "instructions": "Go on."}
    good = json.dumps(resume_json)
    broken: dict[str, bytes] = {
        "torn": good[:-5].encode(),
        "twice": good[:-1].encode() + b', "instructions": "again"}',
        "nan": good[:-1].encode() + b', "credits": {"max_credits": NaN}}',
        "latin": good.replace("Go", "G\u00f6").encode("latin-1"),
        "other": json.dumps({**resume_json, "name": "somebody"}).encode(),
        "silent": json.dumps({"name": "silent"}).encode(),
        "typed": json.dumps({**resume_json, "name": "typed", "schedule": {"run_every_n_ticks": "2"}}).encode(),
    }
    for name, raw in broken.items():
        org.write_file(f"agents/{name}/resume.json", raw)
    os.symlink("../good/resume.json", org.write_file("agents/link/workspace/x", b"").parents[1] / "resume.json")
    old_files = load_state_files(org.folder)
    org.run_ticks()
    require_equal([call.agent for call in org.calls], ["good"], "who was asked")
    require(set(load_records(org.folder, 1)[0]["broken"]) >= broken.keys(), "the plan does not name the broken")
    require_equal(
        [path for path in old_files if load_state_files(org.folder)[path] != old_files[path]], [], "files that changed"
    )


@covers("FIL-6")
def an_unreadable_counter_is_never_replaced(bench: Bench) -> None:
    """With an invalid `tick.json` no tick runs, and the file stays unchanged."""
    for raw in (b"", b'{"current_tick": "3"}', b'{"current_tick": 3', b'{"current_tick": -1}', b"[]"):
        org = bench.make_org()
        org.add_agent("ada")
        org.write_file("tick.json", raw)
        org.require_refusal(f"tick.json holds {raw!r}")


@covers("FIL-7")
def an_unknown_format_is_refused(bench: Bench) -> None:
    """A folder in an unknown format stays unchanged, and the engine exits with status 3."""
    org = bench.make_org()
    org.add_agent("ada")
    org.write_file("config/org.json", {"format": 999999})
    org.require_refusal("format 999999")
    require_equal(org.run_engine()[0], 3, "status for a format that is not known")


@covers("FIL-7")
def settings_that_cannot_be_used_are_refused(bench: Bench) -> None:
    """With unreadable settings no tick runs."""
    org = bench.make_org()
    org.add_agent("ada")
    org.write_file("config/org.json", b'{"visibility": "order"')
    org.require_refusal("torn settings")


@covers("FIL-9")
def settings_that_are_gone_are_refused(bench: Bench) -> None:
    """After a settings file of the last tick is deleted, no tick runs until the file contains `{}`."""
    org = bench.make_org()
    org.add_agent("ada")
    org.write_file("config/org.json", {"retention_ticks": 7})
    org.run_ticks()
    (org.folder / "config/org.json").unlink()
    org.require_refusal("settings that are gone")
    require_equal(org.run_engine()[0], 3, "status for settings that are gone")
    org.write_file("config/org.json", {})
    org.run_ticks()


@covers("ORD-4", "CRA-5")
def a_tick_is_applied_once(bench: Bench) -> None:
    """A counter reset to an earlier tick repeats nothing."""
    org = bench.make_org()
    org.add_agent("ada")
    org.run_ticks(2)
    org.write_file("tick.json", {"current_tick": 1})
    old_files = load_state_files(org.folder)
    org.run_engine()
    require_equal([call.tick for call in org.calls], [1, 2], "ticks in which a model was asked")
    changed = [path for path in find_differences(load_state_files(org.folder), old_files) if path != "tick.json"]
    require(not changed, f"a tick that is over changed {', '.join(changed)}")


@covers("ORD-4", "JRN-4")
def the_counter_moves_last(bench: Bench) -> None:
    """During the turns of a tick, `tick.json` does not show the next tick."""
    counters: list[int] = []

    def record_counter(call: Call) -> dict[str, Any]:
        counters.append(org.load_next_tick())
        return answer_with_position(call)

    org = bench.make_org(record_counter)
    org.add_agent("ada")
    org.add_agent("bob", "*")
    org.run_ticks(2)
    require_equal(counters, [1, 1, 2, 2], "tick.json at each call")


@covers("FIL-5")
def nobody_finds_half_a_file(bench: Bench) -> None:
    """Concurrent readers find only complete JSON files."""
    org = bench.make_org(lambda call: make_reply("x" * 50_000, memory_updates=[{"key": "big", "value": "y" * 50_000}]))
    for name in ("ada", "bob", "cy"):
        org.add_agent(name, "*")
    torn: list[str] = []
    is_over = threading.Event()
    reader = threading.Thread(target=poll_json_files, args=(org.folder, is_over, torn))
    reader.start()
    try:
        org.run_ticks(2)
    finally:
        is_over.set()
        reader.join()
    require_equal(torn, [], "files that a reader found torn")
    require_equal(len(load_texts(org.folder, "ada")), 2, "entries of ada")


def poll_json_files(base: Path, stopped: threading.Event, torn: list[str]) -> None:
    """Read all JSON files in a loop."""
    while not stopped.wait(0.002):
        for path, raw in load_json_files(base):
            try:
                json.loads(raw)
            except ValueError:
                torn.append(path)


def load_json_files(base: Path) -> list[tuple[str, bytes]]:
    """Return the currently readable JSON files."""
    files = []
    for file in base.glob("**/*.json"):
        try:
            if not file.name.startswith(".") and ".lemming" not in file.parts and "logs" not in file.parts:
                files.append((str(file), file.read_bytes()))
        except FileNotFoundError:
            continue  # replaced meanwhile, by another name
    return files
