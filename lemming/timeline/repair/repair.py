"""What needs a person's decision after damage: found, told in plain words, and put right when asked to.

Nothing is ever deleted. What is in the way is moved to `aside/<time>/` in the organisation's folder, and
what is cut is copied there first. Looking and acting are apart: `find_repairs` changes nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lemming.history.journals import set_journals_aside
from lemming.history.rewind import place_aside
from lemming.kernel.agents import agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.files.temporary import is_left_over, is_temporary
from lemming.kernel.journal.file import is_committed, journal_ticks, last_record, read_journal
from lemming.kernel.journal.ledger import FILE_LIMIT_BYTES as LEDGER_LIMIT_BYTES
from lemming.kernel.journal.ledger import AgentState, parse_state
from lemming.kernel.journal.records import ModelReplied, Record, TickCommitted, TurnStarted
from lemming.kernel.messages import list_outbox
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.counter import load_tick, persist_tick, tick_by_files
from lemming.kernel.tick.next_tick import find_next_tick
from lemming.kernel.tick.runtime import Runtime
from lemming.service.unfinished_rename import rename_begun, rename_text
from lemming.timeline.outbox_problems import outbox_problems
from lemming.timeline.renaming import rename
from lemming.timeline.repair.unknown import UnknownCall, find_unknown_calls
from lemming.timeline.verify.lost_files import LastWrites, LostFile

Kind = Literal["rename", "tick", "journal", "ledger", "lost", "leftover", "outbox", "call"]

FILE_LIMIT_BYTES = 1 << 30
WHERE_THE_ENGINE_WRITES = ("agents", "config", "logs", "shared", "trust", ".lemming")


@dataclass(frozen=True)
class RepairStep:
    """One change: move a file aside; cut it to `number` bytes, a copy aside; make `number` the next tick;
    move all journals after tick `number` aside; write a file with this `content` where there is none;
    finish the rename of an agent.
    """

    does: Literal["move", "cut", "tick", "journals", "write", "rename"]
    file: str
    number: int = 0
    content: bytes = b""


@dataclass(frozen=True)
class Repair:
    """Something that is wrong. `action` says what `steps` do and what that means.

    Without steps it is for a person: `action` is advice then.
    """

    kind: Kind
    where: str
    found: str
    action: str
    steps: tuple[RepairStep, ...] = ()
    call: UnknownCall | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the repair as JSON values."""
        facts = {key: getattr(self, key) for key in ("kind", "where", "found", "action")}
        call = self.call.as_json() if self.call else None
        return {**facts, "is_for_a_person": not self.steps, "call": call}


def find_repairs(base: OrgPath, *, newest: int | None = None, with_outboxes: bool = True) -> list[Repair]:
    """Return all that is wrong and can be told from the files; `newest` limits how many journals are read.

    Changes nothing. Safe beside an engine, but what an engine is writing may then look torn.
    """
    if names := rename_begun(base):  # until it is done nobody can tell what else is wrong
        action = f"give the rest the new name. {_AGAIN}"
        steps = (RepairStep("rename", paths.RENAMING_FILE),)
        return [Repair("rename", paths.RENAMING_FILE, rename_text(*names), action, steps)]
    try:
        ticks = journal_ticks(base)
    except CorruptState as error:
        action = f"move it aside: the record of its ticks is lost, everything else stays. {_AGAIN}"
        return [Repair("journal", error.where, error.message, action, (RepairStep("move", error.where),))]
    read = ticks if newest is None else ticks[-newest:]
    # the counter first: by it a journal is one of a finished tick, or one that goes on
    next_tick, repairs = _tick_repairs(base, ticks)
    writes = LastWrites()
    repairs += _journal_repairs(base, read, next_tick, writes)
    if not (ticks and ticks[-1] >= next_tick):  # else the files are meant to be those before a tick
        repairs += map(_lost_file_repair, writes.lost(base))
    repairs += [repair for name in _agents(base) if (repair := _ledger_repair(base, name))]
    repairs += _leftovers(base)
    if with_outboxes:
        repairs += _odd_entries(base)
    return repairs + [_call_repair(call) for call in find_unknown_calls(base, read)]


def make_repairs(runtime: Runtime, repairs: list[Repair]) -> str:
    """Take the steps of these repairs and return the folder with what was moved; empty when nothing was.

    Raises `DiskError`; doing it again finishes what was begun.
    """
    base, aside = runtime.base, place_aside(runtime)
    for step in (step for repair in repairs for step in repair.steps):
        if step.does == "journals":
            set_journals_aside(base, after=step.number, folder=aside)
        else:
            _take(base, step, f"{aside}/{step.file}")
    fs.sync_file_system(base)
    return aside if (base / aside).exists() else ""


def _take(base: OrgPath, step: RepairStep, aside: str) -> None:
    if step.does == "move":
        fs.move(Path(base), step.file, aside)
    elif step.does == "cut":
        # flushed before the cut: a power cut must not take both
        fs.publish(Path(base), aside, fs.read_bytes(base / step.file, FILE_LIMIT_BYTES), sync=True)
        with fs.AppendFile(Path(base), step.file) as file:
            file.truncate(step.number)
    elif step.does == "write":
        fs.create(Path(base), step.file, step.content)
    elif step.does == "rename":
        if names := rename_begun(base):
            rename(base, *names)
    else:
        persist_tick(base, step.number, sync=True)


# --- the tick counter ----------------------------------------------------------------------------

_AGAIN = "Then run `lemming repair` again"


def _take_back_the_rest(base: OrgPath, tick: int, ticks: list[int]) -> Repair:
    found = f"the files are those before tick {tick}, but there are journals up to tick {ticks[-1]}"
    action = (
        f"move the journals from tick {tick} on aside, and entries of theirs that are still there, so that "
        f"tick {tick} runs afresh. {_spent(base, [later for later in ticks if later >= tick])} To keep them "
        f"instead, bring back the files after tick {ticks[-1]}"
    )
    later = [
        RepairStep("move", entry.file)
        for name in _agents(base)
        for entry in list_outbox(base, name)
        # not what a person wrote: entries of turns are written anew, under the same ids
        if entry.is_derived and entry.tick >= tick
    ]
    steps = (*later, RepairStep("journals", paths.JOURNALS, tick - 1))
    return Repair("tick", paths.JOURNALS, found, action, steps)


def _spent(base: OrgPath, ticks: list[int]) -> str:
    """Say what the turns of these ticks spent, and how to count it all the same once it is not counted."""
    spent: dict[str, float] = {}
    for tick in ticks:
        with contextlib.suppress(CorruptState):
            for record in read_journal(base, tick):
                if isinstance(record, ModelReplied):
                    spent[record.agent] = spent.get(record.agent, 0.0) + record.credits
    lines = [f"`lemming credits grant {name} -{n:.10g}`" for name, n in sorted(spent.items()) if n]
    if not lines:
        return "They spent nothing."
    total = f"{sum(spent.values()):.10g}"
    return f"They spent {total} credits, which is then no longer counted; to count it: {', '.join(lines)}."


def _tick_repairs(base: OrgPath, ticks: list[int]) -> tuple[int, list[Repair]]:
    """Return the tick that runs next once `tick.json` is right, and what is to be done to it."""
    try:
        counted = load_tick(base)
    except CorruptState as error:
        tick, known = tick_by_files(base, ticks)
        if not ticks and tick == 1:
            action = 'no journal tells the number: write {"current_tick": N} into it yourself'
            return 1, [Repair("tick", paths.TICK_FILE, error.message, action)]
        return tick, [_set_tick(base, tick, error.message, known)]
    try:
        found = find_next_tick(base, counted, ticks, boot_id=SystemClock().boot_id)
    except CorruptState:  # a journal's own trouble, and told as such
        return counted, []
    if found.trouble == "taken back":
        return found.tick, [_take_back_the_rest(base, found.tick, ticks)]
    if found.error is None:
        return found.tick, []
    message = f"it names tick {counted}, but {found.error.message}"
    return found.tick, [_set_tick(base, found.tick, message, tick_by_files(base, ticks)[1])]


def _set_tick(base: OrgPath, tick: int, found: str, known: str) -> Repair:
    """Return the repair of the counter; `known`: what tells the tick, unless its own journal does."""
    why = f"tick {tick} was interrupted and goes on" if last_record(base, tick) is not None else known
    is_there = os.path.lexists(base / paths.TICK_FILE)
    steps = (
        *([RepairStep("move", paths.TICK_FILE)] if is_there else []),
        RepairStep("tick", paths.TICK_FILE, tick),
    )
    return Repair("tick", paths.TICK_FILE, found, f'write {{"current_tick": {tick}}} into it: {why}', steps)


# --- journals ------------------------------------------------------------------------------------


def _journal_repairs(base: OrgPath, ticks: list[int], next_tick: int, writes: LastWrites) -> Iterator[Repair]:
    """Yield what is wrong with journals, and note what those that can be read say was written."""
    for tick in ticks:
        try:
            records = read_journal(base, tick)
            writes.note(tick, records)
            _require_starts(records)
        except CorruptState as error:
            writes.note_damaged()
            yield _journal_repair(base, tick, next_tick, error)


def _require_starts(records: list[Record]) -> None:
    """Raise `CorruptState` for a turn that cannot go on: journals with what it started from are gone."""
    is_over = bool(records) and isinstance(records[-1], TickCommitted)
    for record in () if is_over else records:
        if isinstance(record, TurnStarted):
            record.as_json()


def _journal_repair(base: OrgPath, tick: int, next_tick: int, error: CorruptState) -> Repair:
    file = paths.journal_file(tick)
    if not os.path.lexists(base / file):
        action = "restore it from a backup if you need the record of its ticks; nothing else depends on it"
        return Repair("journal", error.where, error.message, action)
    move = RepairStep("move", file)
    if tick < next_tick:
        action = f"move it aside: the record of tick {tick} is lost; what the tick wrote stays as it is"
        return Repair("journal", error.where, error.message, action, (move,))
    if is_committed(base, tick):
        action = f"move it aside and go on with tick {tick + 1}: the record of tick {tick} is lost"
        steps = (move, RepairStep("tick", paths.TICK_FILE, tick + 1))
        return Repair("journal", error.where, error.message, action, steps)
    kept = _lines_before(error)
    if not kept:
        action = f"move it aside: tick {tick} runs afresh, and its models are asked, and paid, again"
        return Repair("journal", error.where, error.message, action, (move,))
    action = (
        f"copy it aside and keep its first {kept} lines, which are whole: tick {tick} goes on after them; "
        "turns recorded below are taken again, and their models are asked, and paid, again"
    )
    lines = fs.read_bytes(base / file, FILE_LIMIT_BYTES).splitlines(keepends=True)
    size = sum(map(len, lines[:kept]))
    return Repair("journal", error.where, error.message, action, (RepairStep("cut", file, size),))


def _lines_before(error: CorruptState) -> int:
    """Return how many lines stand before the damaged one that the error names; 0 when it names none."""
    number = error.where.rpartition(":")[2]
    return int(number) - 1 if number.isdigit() else 0


# --- ledgers -------------------------------------------------------------------------------------


def _ledger_repair(base: OrgPath, name: str) -> Repair | None:
    file = paths.ledger_file(name)
    try:
        raw = fs.read_bytes(base / file, LEDGER_LIMIT_BYTES)
    except FileNotFoundError:
        return None
    except OSError:
        action = "the ledger must be a regular file: put it back, or move this away to start anew"
        return Repair("ledger", file, "something that is not a regular file stands here", action)
    if len(raw) > LEDGER_LIMIT_BYTES:
        found = f"it is larger than the {LEDGER_LIMIT_BYTES >> 20} MiB of a ledger"
        action = f"move it aside: {name} starts anew, what it has read and spent is forgotten"
        return Repair("ledger", file, found, action, (RepairStep("move", file),))
    lines = raw.split(b"\n")
    whole, torn = lines[:-1], lines[-1]
    good = len(whole)
    while good and _state_in(whole[good - 1]) is None:
        good -= 1
    bad = len(whole) - good + bool(torn)
    if not bad:
        return None
    found = f"{'its last line is' if bad == 1 else f'its last {bad} lines are'} not what the engine wrote"
    state = _state_in(whole[good - 1]) if good else None
    if state is None:
        action = f"move it aside: {name} starts anew, what it has read and spent is forgotten"
        return Repair("ledger", file, found, action, (RepairStep("move", file),))
    action = (
        f"copy it aside and cut {'that line' if bad == 1 else 'them'}: {name} goes on from its turn of "
        f"tick {state.tick}; what it read and spent after that is forgotten"
    )
    size = sum(len(line) + 1 for line in whole[:good])
    return Repair("ledger", file, found, action, (RepairStep("cut", file, size),))


def _state_in(line: bytes) -> AgentState | None:
    try:
        return parse_state(line)
    except ValueError:  # what the strict parser and the check of the types raise
        return None


# --- what is gone, and what lies around ------------------------------------------------------------


def _lost_file_repair(lost: LostFile) -> Repair:
    found = f"it is gone; {lost.agent} wrote it in tick {lost.tick}"
    if lost.content is None:
        action = f"write it again if it is missed: `lemming tick {lost.tick}` tells what the turn did"
        return Repair("lost", lost.file, found, action)
    action = "write it again as the journal has it; if you removed it yourself, leave it at that"
    return Repair("lost", lost.file, found, action, (RepairStep("write", lost.file, content=lost.content),))


def _leftovers(base: OrgPath) -> Iterator[Repair]:
    """Yield the files that a write left half-way when the process died."""
    for place in _leftover_files(base):
        action = "move it aside: the write it belongs to was never finished, or was done again"
        yield Repair(
            "leftover", place, "left by a write that was cut off", action, (RepairStep("move", place),)
        )


def _leftover_files(base: OrgPath) -> Iterator[str]:
    """Yield what no writer is at work on any more; somebody may be writing a memory at this moment."""
    for name in sorted(os.listdir(base)):
        if is_temporary(name) and is_left_over(f"{base}/{name}"):
            yield name
    for top in WHERE_THE_ENGINE_WRITES:
        for _, inner, files in walk(base / top):
            # git's own temporary files are git's
            inner[:] = sorted(name for name in inner if not name.endswith(".git"))
            for path in sorted(file.path for file in files if is_temporary(file.name)):
                if is_left_over(path):
                    yield Path(path).relative_to(base).as_posix()


def _odd_entries(base: OrgPath) -> Iterator[Repair]:
    for name in _agents(base):
        for problem in outbox_problems(base, name):
            advice = problem.hint or "no agent sees it; mend it, or move it away"
            yield Repair("outbox", problem.where, problem.message, advice)


def _call_repair(call: UnknownCall) -> Repair:
    found = f"{call.agent} called {call.text} in tick {call.tick}; {call.why}"
    if call.was_retried:
        found += ", and so did the repair that ran it again"
    action = (
        f"find out whether it happened, then `lemming repair --mark done {call.id}` or "
        f"`--mark failed {call.id}`, or have it run again with `lemming repair --retry {call.id} --yes`: "
        f"{call.agent} is told in its next prompt"
    )
    return Repair("call", call.id, found, action, call=call)


def _agents(base: OrgPath) -> list[str]:
    return [name for name in agent_folders(base) if paths.AGENT_NAME.match(name)]
