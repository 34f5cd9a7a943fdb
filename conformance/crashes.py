"""Checks: the journal, and what a killed engine leaves to the next one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from conformance.answering import Call, say
from conformance.bench import TICK_IS_OVER, Bench, Org, silent
from conformance.check import holds
from conformance.reading import (
    answered,
    differences,
    files_of,
    journal_of,
    of_type,
    records_in,
    records_of,
    require,
    same,
    state_of,
    texts_of,
    with_line,
)
from conformance.ticks import whole_files

TICKS = 2
LINE = ("tick_started", "turn_started", "model_replied", "turn_committed", "tick_committed")


def work(call: Call) -> Any:
    """Answer as agents that use everything: `bo` is corrected once a turn."""
    if call.agent == "bo" and call.number == 0:
        return "Let me think."
    seen = [f"{entry['agent']}/{entry['tick']}" for entry in call.values["inbox"]]
    told = [result["success"] for result in call.values["results"]]
    text = f"{call.agent} {call.tick} saw {seen}, was told {told}"
    writes = {"tool": "file_write", "args": {"path": f"workspace/{call.tick}.txt", "content": text}}
    return say(
        text, f"more of {call.agent}", tool_calls=[writes], memory_updates=[{"key": "last", "value": text}]
    )


def working(bench: Bench, answer: Callable[[Call], Any] = work) -> Org:
    """Return an organisation of three, one of whom is asked twice a turn."""
    org = bench.org(answer)
    for name in ("al", "bo", "cy"):
        org.agent(name, "*", permissions={"tools": ["file_write"]}, credits={"max_credits": 50})
    return org


@holds("JRN-1", "JRN-2", "JRN-3", "JRN-7")
def a_journal_is_a_chain_that_tells_the_tick(bench: Bench) -> None:
    """Every line has its check; the plan is first, the end last, each turn in between and in order."""
    org = working(bench)
    org.tick(TICKS)
    for tick in range(1, TICKS + 1):
        raw = journal_of(org.folder, tick).read_bytes()
        records = records_in(raw)
        same(len(records), raw.count(b"\n"), f"whole lines of tick {tick}")
        require(all(type(record.get("epoch")) is int for record in records), "a record without an epoch")
        types = [record["type"] for record in records]
        same((types[0], types[-1]), (LINE[0], LINE[-1]), "the first and the last record")
        same(
            (records[0]["tick"], records[-1]["tick"]),
            (tick, tick),
            "the tick in the first and the last record",
        )
        for agent in ("al", "bo", "cy"):
            own = [record["type"] for record in records if record.get("agent") == agent]
            calls = ["model_replied"] * (2 if agent == "bo" else 1)
            same(own, ["turn_started", *calls, "tool_finished", "turn_committed"], f"records of {agent}")
        for turn in of_type(records, "turn_committed"):
            require(len(turn["files"]) == 4, "a turn's entries, memory and workspace file are not all named")
            for file in turn["files"]:
                is_kept = "last.json" not in file["path"] or tick == TICKS
                digest = sha256((org.folder / file["path"]).read_bytes()).hexdigest()
                require(digest == file["sha256"] or not is_kept, f"the digest of {file['path']} is another")


@holds("JRN-4", "JRN-8")
def the_journal_is_ahead_of_the_files(bench: Bench) -> None:
    """A turn's start is recorded before its model is asked, and an answer before anything that it causes."""
    late: list[str] = []

    def hear(call: Call) -> Any:
        records = records_of(org.folder, call.tick)
        if call.agent not in [record["agent"] for record in of_type(records, "turn_started")]:
            late.append(f"{call.agent} is asked before its turn_started")
        replied = {record["agent"] for record in of_type(records, "model_replied")}
        written = {path.split("/")[1] for path in files_of(org.folder) if f"outbox/{call.tick:08}" in path}
        late.extend(f"an entry of {name} before its answer" for name in written - replied)
        return work(call)

    org = working(bench, hear)
    org.tick(TICKS)
    same(late, [], "what was not in the journal in time")


@holds("JRN-9")
def a_journal_of_a_tick_that_is_over_stays(bench: Bench) -> None:
    """Later ticks do not change the journal of one that is over."""
    org = working(bench)
    org.tick()
    before = journal_of(org.folder, 1).read_bytes()
    org.tick()
    same(journal_of(org.folder, 1).read_bytes() == before, True, "the journal of tick 1 is the same")


@dataclass(frozen=True)
class Calm:
    """What comes of a run that nobody disturbs."""

    state: dict[str, bytes]
    calls: int
    lines: list[int]
    made: int


def calm_run(bench: Bench) -> Calm:
    """Run the organisation in peace."""
    org = working(bench)
    org.tick(TICKS)
    lines = [journal_of(org.folder, tick).read_bytes().count(b"\n") for tick in range(1, TICKS + 1)]
    return Calm(state_of(org.folder), len(org.calls), lines, made_in(org))


def made_in(org: Org) -> int:
    """Return how many entries, memories and workspace files there are."""
    files = (file for file in org.folder.glob("agents/*/*/*") if file.parent.name != "logs")
    return sum(1 for file in files if not file.name.startswith("."))


def survives(org: Org, calm: Calm, kill_when: Callable[[], bool] | None, where: str) -> None:
    """Run all ticks, killing the engine once; the files and the calls must be those of a run in peace."""
    run_until_killed(org, kill_when, where)
    for path, raw in whole_files(org.folder):
        require(_is_json(raw), f"{where}: {path} is torn")
    recorded, until_then = answered(org.folder, TICKS), len(org.calls)
    org.tick(max(0, TICKS + 1 - org.next_tick()))
    again = {(*call.turn, call.number) for call in org.calls[until_then:]}
    require(not again & recorded, f"{where}: asked again although recorded: {sorted(again & recorded)}")
    count = Counter((*call.turn, call.number) for call in org.calls)
    require(len(org.calls) <= calm.calls + 1, f"{where}: {len(org.calls) - calm.calls} calls were repeated")
    same(len(count), calm.calls, f"{where}: different calls")
    found = differences(state_of(org.folder), calm.state)
    require(not found, f"{where}: other than in a run in peace: {', '.join(found)}")


def run_until_killed(org: Org, kill_when: Callable[[], bool] | None, where: str) -> None:
    """Run all ticks, or as many as the engine does before it is killed."""
    for _ in range(TICKS):
        status, said = org.run(kill_when)
        if status < 0:
            return
        require(status in TICK_IS_OVER, f"{where}: the engine ended with {status}: {said}")


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except ValueError:
        return False
    return True


def killing(org: Org, number: int) -> Callable[[Call], Any]:
    """Answer as ever, but kill the engine in its call of this number."""

    def answer(call: Call) -> Any:
        if len(org.calls) == number:
            org.kill()
        return work(call)

    return answer


@holds("CRA-1", "CRA-2", "CRA-3", "CRA-4", "FIL-5")
def killed_while_a_model_is_asked(bench: Bench) -> None:
    """Killed during any call, the next run comes to the same files and repeats that call only."""
    calm = calm_run(bench)
    for number in bench.sample(calm.calls):
        org = working(bench)
        org.models.answer = killing(org, number)
        survives(org, calm, None, f"killed during call {number}")


@holds("CRA-1", "CRA-2", "CRA-3", "CRA-4", "FIL-5", "JRN-4")
def killed_as_the_journal_grows(bench: Bench) -> None:
    """Killed after any line of a journal, the next run comes to the same files, and asks nothing twice."""
    calm = calm_run(bench)
    points = [(tick, line) for tick, lines in enumerate(calm.lines, 1) for line in range(1, lines + 1)]
    for point in bench.sample(len(points)):
        tick, line = points[point - 1]
        org = working(bench)

        def has_grown(org: Org = org, tick: int = tick, line: int = line) -> bool:
            file = journal_of(org.folder, tick)
            return file.exists() and file.read_bytes().count(b"\n") >= line

        survives(org, calm, has_grown, f"killed after line {line} of tick {tick}")


@holds("CRA-1", "CRA-2", "CRA-3", "CRA-4", "FIL-5", "JRN-4")
def killed_as_files_appear(bench: Bench) -> None:
    """Killed as soon as there is one more file, the next run comes to the same files."""
    calm = calm_run(bench)
    for point in bench.sample(calm.made):
        org = working(bench)

        def is_there(count: int = point, org: Org = org) -> bool:
            return made_in(org) >= count

        survives(org, calm, is_there, f"killed when there were {point} files")


def begun(bench: Bench) -> tuple[Org, bytes]:
    """Return an organisation before tick 2, and that tick's journal up to where its turn is committed."""
    org = bench.org(_corrected(0))
    org.agent("ada", permissions={"tools": ["file_write"]})
    org.tick()
    after = bench.copy(org, _corrected(0))
    after.tick()
    lines = journal_of(after.folder, 2).read_bytes().splitlines(keepends=True)
    types = [record["type"] for record in records_of(after.folder, 2)]
    return org, b"".join(lines[: types.index("turn_committed")])


def _corrected(recorded: int) -> Callable[[Call], Any]:
    """Answer the first call of a turn with what is no contract; `recorded` calls were answered before."""
    return lambda call: work(call) if call.number + recorded else "Let me think."


@holds("JRN-5", "CRA-1", "CRA-2", "CRA-6")
def any_beginning_of_a_journal_is_gone_on_from(bench: Bench) -> None:
    """From each line on, and from the middle of the one after, a tick goes on where its journal ends."""
    org, whole = begun(bench)
    peace = bench.copy(org, _corrected(0))
    peace.tick()
    expected = state_of(peace.folder)
    lines = whole.splitlines(keepends=True)
    for count in bench.sample(len(lines)):
        torn = lines[count][: len(lines[count]) // 2] if count < len(lines) else b""
        for left in {b"".join(lines[:count]), b"".join(lines[:count]) + torn}:
            kept = len(of_type(records_in(left), "model_replied"))
            other = bench.copy(org, _corrected(kept))
            other.write("logs/ticks/00000002.jsonl", left)
            same(len(other.tick()), 2 - kept, f"calls of a tick with {kept} answers in {count} lines")
            found = differences(state_of(other.folder), expected)
            require(not found, f"from line {count} on: other files: {', '.join(found)}")
            records_in(journal_of(other.folder, 2).read_bytes())


@holds("JRN-6")
def a_damaged_journal_stops_the_engine(bench: Bench) -> None:
    """A line before the last whose check is wrong is damage: nothing is run, nothing is changed."""
    org, whole = begun(bench)
    for damaged in (whole.replace(b'"order":["ada"]', b'"order":["adb"]', 1), whole.split(b"\n", 1)[1]):
        require(damaged != whole, "the journal has no plan to damage")
        other = bench.copy(org)
        file = other.write("logs/ticks/00000002.jsonl", damaged)
        other.refused("a damaged journal")
        same(file.read_bytes() == damaged, True, "the damaged journal is as it was")


@holds("JRN-10")
def a_record_that_cannot_stand_there_stops_the_engine(bench: Bench) -> None:
    """A line with a valid check that is no record, or not one that may follow, is not passed over."""
    org, whole = begun(bench)
    start = next(record for record in records_in(whole) if record["type"] == "turn_started")
    start.pop("check")
    misplaced: list[dict[str, Any]] = [
        {"type": "gossip", "epoch": 1, "agent": "ada"},
        {"type": "tool_finished", "epoch": 1, "agent": "ada"},
        {"type": "turn_resumed", "epoch": 1, "agent": "../ada"},
        {"type": "turn_resumed", "epoch": 1, "agent": "bob"},
        start,
    ]
    for plain in misplaced:
        other = bench.copy(org)
        other.write("logs/ticks/00000002.jsonl", with_line(whole, plain))
        other.refused(f"a journal with {plain['type']} of {plain['agent']}")


@holds("CRA-7")
def a_turn_that_kills_its_engine_ends(bench: Bench) -> None:
    """A turn in which the engine died `max_attempts` times without an answer fails; the tick goes on."""

    def answer(call: Call) -> Any:
        if call.agent == "ada":
            org.kill()
        return silent(call)

    org = bench.org(answer)
    org.write("config/org.json", {"max_attempts": 2})
    org.agent("ada")
    org.agent("bob", "*")
    statuses = [org.run()[0] for _ in range(2)]
    require(all(status < 0 for status in statuses), f"the engine was not killed: {statuses}")
    org.tick()
    same([call.agent for call in org.calls], ["ada", "ada", "bob"], "calls")
    same((texts_of(org.folder, "ada"), texts_of(org.folder, "bob")), ([], ["bob 1"]), "entries")
    turns = of_type(records_of(org.folder, 1), "turn_committed")
    failed = [turn["agent"] for turn in turns if turn["status"] == "failed"]
    same(failed, ["ada"], "turns that are recorded as failed")
