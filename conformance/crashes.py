"""Checks of the journal and of recovery after a killed engine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from conformance.answering import Call, make_reply
from conformance.bench import TICK_DONE_STATUSES, Bench, Org, answer_with_position
from conformance.check import covers
from conformance.reading import (
    append_line,
    filter_by_type,
    find_answered_calls,
    find_differences,
    journal_path,
    load_records,
    load_state,
    load_state_files,
    load_texts,
    parse_records,
    require,
    require_equal,
)
from conformance.ticks import load_json_files

TICKS = 2
RECORD_TYPES = ("tick_started", "turn_started", "model_replied", "turn_committed", "tick_committed")


def answer_with_actions(call: Call) -> Any:
    """Answer with messages, a tool call and a memory update. Agent `bo` needs a correction in each turn."""
    if call.agent == "bo" and call.number == 0:
        return "Let me think."
    visible_entries = [f"{entry['agent']}/{entry['tick']}" for entry in call.values["inbox"]]
    successes = [result["success"] for result in call.values["results"]]
    text = f"{call.agent} {call.tick} saw {visible_entries}, was told {successes}"
    tool_call = {"tool": "file_write", "args": {"path": f"workspace/{call.tick}.txt", "content": text}}
    return make_reply(
        text, f"more of {call.agent}", tool_calls=[tool_call], memory_updates=[{"key": "last", "value": text}]
    )


def make_working_org(bench: Bench, answer: Callable[[Call], Any] = answer_with_actions) -> Org:
    """Return an organisation of three agents. Agent `bo` makes two calls per turn."""
    org = bench.make_org(answer)
    for name in ("al", "bo", "cy"):
        org.add_agent(name, "*", permissions={"tools": ["file_write"]}, credits={"max_credits": 50})
    return org


@covers("JRN-1", "JRN-2", "JRN-3", "JRN-7")
def a_journal_is_a_chain_that_tells_the_tick(bench: Bench) -> None:
    """Every line has a valid check. The plan comes first, the end last, and the turns in order between."""
    org = make_working_org(bench)
    org.run_ticks(TICKS)
    for tick in range(1, TICKS + 1):
        raw = journal_path(org.folder, tick).read_bytes()
        records = parse_records(raw)
        require_equal(len(records), raw.count(b"\n"), f"whole lines of tick {tick}")
        require(all(type(record.get("epoch")) is int for record in records), "a record without an epoch")
        types = [record["type"] for record in records]
        require_equal((types[0], types[-1]), (RECORD_TYPES[0], RECORD_TYPES[-1]), "the first and the last record")
        require_equal(
            (records[0]["tick"], records[-1]["tick"]), (tick, tick), "the tick in the first and the last record"
        )
        for agent in ("al", "bo", "cy"):
            agent_types = [record["type"] for record in records if record.get("agent") == agent]
            calls = ["model_replied"] * (2 if agent == "bo" else 1)
            require_equal(
                agent_types, ["turn_started", *calls, "tool_finished", "turn_committed"], f"records of {agent}"
            )
        for turn in filter_by_type(records, "turn_committed"):
            require(len(turn["files"]) == 4, "a turn's entries, memory and workspace file are not all named")
            for file in turn["files"]:
                is_current = "last.json" not in file["path"] or tick == TICKS
                digest = sha256((org.folder / file["path"]).read_bytes()).hexdigest()
                require(digest == file["sha256"] or not is_current, f"the digest of {file['path']} is another")


@covers("JRN-4", "JRN-8")
def the_journal_is_ahead_of_the_files(bench: Bench) -> None:
    """A turn's start is recorded before the model call, and an answer before its effects."""
    violations: list[str] = []

    def check_and_answer(call: Call) -> Any:
        records = load_records(org.folder, call.tick)
        if call.agent not in [record["agent"] for record in filter_by_type(records, "turn_started")]:
            violations.append(f"{call.agent} is asked before its turn_started")
        replied = {record["agent"] for record in filter_by_type(records, "model_replied")}
        written = {path.split("/")[1] for path in load_state_files(org.folder) if f"outbox/{call.tick:08}" in path}
        violations.extend(f"an entry of {name} before its answer" for name in written - replied)
        return answer_with_actions(call)

    org = make_working_org(bench, check_and_answer)
    org.run_ticks(TICKS)
    require_equal(violations, [], "what was not in the journal in time")


@covers("JRN-9")
def a_journal_of_a_tick_that_is_over_stays(bench: Bench) -> None:
    """Later ticks do not change the journal of an earlier tick."""
    org = make_working_org(bench)
    org.run_ticks()
    old_content = journal_path(org.folder, 1).read_bytes()
    org.run_ticks()
    require_equal(journal_path(org.folder, 1).read_bytes() == old_content, True, "the journal of tick 1 is the same")


@dataclass(frozen=True)
class UndisturbedRun:
    """Result of a run without a kill."""

    state: dict[str, bytes]
    calls: int
    lines: list[int]
    file_count: int


def run_undisturbed(bench: Bench) -> UndisturbedRun:
    """Run the organisation without a kill."""
    org = make_working_org(bench)
    org.run_ticks(TICKS)
    lines = [journal_path(org.folder, tick).read_bytes().count(b"\n") for tick in range(1, TICKS + 1)]
    return UndisturbedRun(load_state(org.folder), len(org.calls), lines, count_written_files(org))


def count_written_files(org: Org) -> int:
    """Return the number of entries, memories and workspace files."""
    files = (file for file in org.folder.glob("agents/*/*/*") if file.parent.name != "logs")
    return sum(1 for file in files if not file.name.startswith("."))


def require_recovery(org: Org, undisturbed: UndisturbedRun, kill_when: Callable[[], bool] | None, case: str) -> None:
    """Run all ticks with a kill of the engine. Files and calls must equal the undisturbed run's."""
    run_until_killed(org, kill_when, case)
    for path, raw in load_json_files(org.folder):
        require(_is_json(raw), f"{case}: {path} is torn")
    recorded, earlier_count = find_answered_calls(org.folder, TICKS), len(org.calls)
    org.run_ticks(max(0, TICKS + 1 - org.load_next_tick()))
    repeated = {(*call.turn, call.number) for call in org.calls[earlier_count:]}
    require(not repeated & recorded, f"{case}: asked again although recorded: {sorted(repeated & recorded)}")
    call_counts = Counter((*call.turn, call.number) for call in org.calls)
    require(
        len(org.calls) <= undisturbed.calls + 1, f"{case}: {len(org.calls) - undisturbed.calls} calls were repeated"
    )
    require_equal(len(call_counts), undisturbed.calls, f"{case}: different calls")
    changed_files = find_differences(load_state(org.folder), undisturbed.state)
    require(not changed_files, f"{case}: other than in a run in peace: {', '.join(changed_files)}")


def run_until_killed(org: Org, kill_when: Callable[[], bool] | None, case: str) -> None:
    """Run all ticks, or as many as the engine completes before the kill."""
    for _ in range(TICKS):
        status, output = org.run_engine(kill_when)
        if status < 0:
            return
        require(status in TICK_DONE_STATUSES, f"{case}: the engine ended with {status}: {output}")


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except ValueError:
        return False
    return True


def kill_at_call(org: Org, number: int) -> Callable[[Call], Any]:
    """Return an answer function that kills the engine in the call of the given number."""

    def answer(call: Call) -> Any:
        if len(org.calls) == number:
            org.kill()
        return answer_with_actions(call)

    return answer


@covers("CRA-1", "CRA-2", "CRA-3", "CRA-4", "FIL-5")
def killed_while_a_model_is_asked(bench: Bench) -> None:
    """After a kill during any call, the next run gives the same files and repeats only this call."""
    undisturbed = run_undisturbed(bench)
    for number in bench.sample(undisturbed.calls):
        org = make_working_org(bench)
        org.models.answer = kill_at_call(org, number)
        require_recovery(org, undisturbed, None, f"killed during call {number}")


@covers("CRA-1", "CRA-2", "CRA-3", "CRA-4", "FIL-5", "JRN-4")
def killed_as_the_journal_grows(bench: Bench) -> None:
    """After a kill at any line of a journal, the next run gives the same files and repeats no call."""
    undisturbed = run_undisturbed(bench)
    points = [(tick, line) for tick, lines in enumerate(undisturbed.lines, 1) for line in range(1, lines + 1)]
    for point in bench.sample(len(points)):
        tick, line = points[point - 1]
        org = make_working_org(bench)

        def has_grown(org: Org = org, tick: int = tick, line: int = line) -> bool:
            file = journal_path(org.folder, tick)
            return file.exists() and file.read_bytes().count(b"\n") >= line

        require_recovery(org, undisturbed, has_grown, f"killed after line {line} of tick {tick}")


@covers("CRA-1", "CRA-2", "CRA-3", "CRA-4", "FIL-5", "JRN-4")
def killed_as_files_appear(bench: Bench) -> None:
    """After a kill at any new file, the next run gives the same files."""
    undisturbed = run_undisturbed(bench)
    for point in bench.sample(undisturbed.file_count):
        org = make_working_org(bench)

        def has_files(count: int = point, org: Org = org) -> bool:
            return count_written_files(org) >= count

        require_recovery(org, undisturbed, has_files, f"killed when there were {point} files")


def make_interrupted_tick(bench: Bench) -> tuple[Org, bytes]:
    """Return an organisation before tick 2, and the tick's journal up to the commit of its turn."""
    org = bench.make_org(_answer_with_correction(0))
    org.add_agent("ada", permissions={"tools": ["file_write"]})
    org.run_ticks()
    completed = bench.copy_org(org, _answer_with_correction(0))
    completed.run_ticks()
    lines = journal_path(completed.folder, 2).read_bytes().splitlines(keepends=True)
    types = [record["type"] for record in load_records(completed.folder, 2)]
    return org, b"".join(lines[: types.index("turn_committed")])


def _answer_with_correction(recorded: int) -> Callable[[Call], Any]:
    """Return an answer function with an invalid reply to the first call of a turn, unless already recorded."""
    return lambda call: answer_with_actions(call) if call.number + recorded else "Let me think."


@covers("JRN-5", "CRA-1", "CRA-2", "CRA-6")
def any_beginning_of_a_journal_is_gone_on_from(bench: Bench) -> None:
    """From every line of a journal, and from the middle of the next line, an interrupted tick continues."""
    org, full_journal = make_interrupted_tick(bench)
    completed = bench.copy_org(org, _answer_with_correction(0))
    completed.run_ticks()
    expected = load_state(completed.folder)
    lines = full_journal.splitlines(keepends=True)
    for count in bench.sample(len(lines)):
        torn = lines[count][: len(lines[count]) // 2] if count < len(lines) else b""
        for partial_journal in {b"".join(lines[:count]), b"".join(lines[:count]) + torn}:
            recorded_answers = len(filter_by_type(parse_records(partial_journal), "model_replied"))
            resumed_org = bench.copy_org(org, _answer_with_correction(recorded_answers))
            resumed_org.write_file("logs/ticks/00000002.jsonl", partial_journal)
            require_equal(
                len(resumed_org.run_ticks()),
                2 - recorded_answers,
                f"calls of a tick with {recorded_answers} answers in {count} lines",
            )
            changed_files = find_differences(load_state(resumed_org.folder), expected)
            require(not changed_files, f"from line {count} on: other files: {', '.join(changed_files)}")
            parse_records(journal_path(resumed_org.folder, 2).read_bytes())


@covers("JRN-6")
def a_damaged_journal_stops_the_engine(bench: Bench) -> None:
    """A wrong check before the last line is damage: the engine runs nothing and changes nothing."""
    org, full_journal = make_interrupted_tick(bench)
    for damaged in (full_journal.replace(b'"order":["ada"]', b'"order":["adb"]', 1), full_journal.split(b"\n", 1)[1]):
        require(damaged != full_journal, "the journal has no plan to damage")
        damaged_org = bench.copy_org(org)
        file = damaged_org.write_file("logs/ticks/00000002.jsonl", damaged)
        damaged_org.require_refusal("a damaged journal")
        require_equal(file.read_bytes() == damaged, True, "the damaged journal is as it was")


@covers("JRN-10")
def a_record_that_cannot_stand_there_stops_the_engine(bench: Bench) -> None:
    """An unknown or misplaced record with a valid check is not ignored."""
    org, full_journal = make_interrupted_tick(bench)
    start = next(record for record in parse_records(full_journal) if record["type"] == "turn_started")
    start.pop("check")
    misplaced: list[dict[str, Any]] = [
        {"type": "gossip", "epoch": 1, "agent": "ada"},
        {"type": "tool_finished", "epoch": 1, "agent": "ada"},
        {"type": "turn_resumed", "epoch": 1, "agent": "../ada"},
        {"type": "turn_resumed", "epoch": 1, "agent": "bob"},
        start,
    ]
    for misplaced_record in misplaced:
        damaged_org = bench.copy_org(org)
        damaged_org.write_file("logs/ticks/00000002.jsonl", append_line(full_journal, misplaced_record))
        damaged_org.require_refusal(f"a journal with {misplaced_record['type']} of {misplaced_record['agent']}")


@covers("CRA-7")
def a_turn_that_kills_its_engine_ends(bench: Bench) -> None:
    """A turn with `max_attempts` engine deaths and no answer fails, and the tick continues."""

    def answer(call: Call) -> Any:
        if call.agent == "ada":
            org.kill()
        return answer_with_position(call)

    org = bench.make_org(answer)
    org.write_file("config/org.json", {"max_attempts": 2})
    org.add_agent("ada")
    org.add_agent("bob", "*")
    statuses = [org.run_engine()[0] for _ in range(2)]
    require(all(status < 0 for status in statuses), f"the engine was not killed: {statuses}")
    org.run_ticks()
    require_equal([call.agent for call in org.calls], ["ada", "ada", "bob"], "calls")
    require_equal((load_texts(org.folder, "ada"), load_texts(org.folder, "bob")), ([], ["bob 1"]), "entries")
    turns = filter_by_type(load_records(org.folder, 1), "turn_committed")
    failed = [turn["agent"] for turn in turns if turn["status"] == "failed"]
    require_equal(failed, ["ada"], "turns that are recorded as failed")
