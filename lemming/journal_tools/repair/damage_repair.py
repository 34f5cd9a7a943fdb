"""Finds damage in need of a person's decision, describes the repair, and makes the repair on request.

Nothing is ever deleted. Files in the way are moved to `aside/<time>/` in the organisation's folder, and
truncated files are copied there first. Searching and acting are separate: `find_repairs` changes nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lemming.git_history.rewind import archive_journals, make_archive_folder_name
from lemming.journal_tools.agent_rename import rename_agent
from lemming.journal_tools.outbox_validation import validate_outbox
from lemming.journal_tools.repair.lost_files import LostFile, find_lost_files
from lemming.journal_tools.repair.unknown_calls import UnknownCall, find_unknown_calls
from lemming.journal_tools.verify.journal_facts import JournalFacts, load_journal_facts
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.files.safe_folder import is_orphaned, is_temporary
from lemming.kernel.journal.journal_file import is_committed, journal_ticks, last_record, read_journal
from lemming.kernel.journal.journal_records import ModelReplied, TurnStarted
from lemming.kernel.journal.ledger import FILE_LIMIT_BYTES as LEDGER_LIMIT_BYTES
from lemming.kernel.journal.ledger import AgentState, parse_state
from lemming.kernel.messages import list_outbox
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.tick_counter import load_tick, persist_tick, tick_from_files
from lemming.operations.next_tick import find_next_tick
from lemming.operations.pending_rename import describe_pending_rename, find_pending_rename

Kind = Literal["rename", "tick", "journal", "ledger", "lost", "leftover", "outbox", "call"]

FILE_LIMIT_BYTES = 1 << 30
ENGINE_FOLDERS = ("agents", "config", "logs", "shared", "trust", ".lemming")


@dataclass(frozen=True)
class RepairStep:
    """A change of the files. Move a file aside; truncate a file to `number` bytes after copying it aside; set
    the next tick to `number`; move all journals after tick `number` aside; write a missing file with
    `content`; finish the rename of an agent.
    """

    does: Literal["move", "cut", "tick", "journals", "write", "rename"]
    file: str
    number: int = 0
    content: bytes = b""


@dataclass(frozen=True)
class Repair:
    """A problem with a repair. `action` describes `steps`, or without steps is advice to a person."""

    kind: Kind
    where: str
    found: str
    action: str
    steps: tuple[RepairStep, ...] = ()
    call: UnknownCall | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the repair as JSON values."""
        fields = {key: getattr(self, key) for key in ("kind", "where", "found", "action")}
        call = self.call.as_json() if self.call else None
        return {**fields, "is_for_a_person": not self.steps, "call": call}


def find_repairs(base: OrgPath, *, newest: int | None = None, with_outboxes: bool = True) -> list[Repair]:
    """Return all problems detectable in the files; `newest` limits the number of journals read.

    Changes nothing. Safe beside an engine, but an unfinished write of the engine can look torn.
    """
    if names := find_pending_rename(base):  # other damage shows only after the rename is finished
        action = f"give the rest the new name. {_RERUN_HINT}"
        steps = (RepairStep("rename", paths.RENAMING_FILE),)
        return [Repair("rename", paths.RENAMING_FILE, describe_pending_rename(*names), action, steps)]
    try:
        ticks = journal_ticks(base)
    except CorruptState as error:
        action = f"move it aside: the record of its ticks is lost, everything else stays. {_RERUN_HINT}"
        return [Repair("journal", error.where, error.message, action, (RepairStep("move", error.where),))]
    read_ticks = ticks if newest is None else ticks[-newest:]
    # The counter first: it decides if a journal's tick is finished or continues.
    next_tick, repairs = _find_tick_repairs(base, ticks)
    facts = load_journal_facts(base, only=newest)
    repairs += _find_journal_repairs(base, facts, next_tick)
    if ticks and ticks[-1] < next_tick:  # otherwise the files were rolled back
        repairs += map(_make_lost_file_repair, find_lost_files(base, facts))
    repairs += filter(None, (_find_ledger_repair(base, name) for name in _list_agents(base)))
    repairs += _find_leftovers(base)
    for name in _list_agents(base) if with_outboxes else []:
        for problem in validate_outbox(base, name):
            advice = problem.hint or "repair it, or move it away: no agent sees it"
            repairs.append(Repair("outbox", problem.where, problem.message, advice))
    return repairs + [_make_call_repair(call) for call in find_unknown_calls(base, read_ticks)]


def make_repairs(runtime: Runtime, repairs: list[Repair]) -> str:
    """Apply the steps of the repairs and return the archive folder, or an empty string if nothing was moved.

    Raises `DiskError`; a second call completes an interrupted call.
    """
    base, archive = runtime.base, make_archive_folder_name(runtime)
    for step in (step for repair in repairs for step in repair.steps):
        if step.does == "journals":
            archive_journals(base, last_tick=step.number, folder=archive)
        else:
            _apply_step(base, step, f"{archive}/{step.file}")
    fs.sync_file_system(base)
    return archive if (base / archive).exists() else ""


def _apply_step(base: OrgPath, step: RepairStep, archive_path: str) -> None:
    if step.does == "move":
        fs.move(Path(base), step.file, archive_path)
    elif step.does == "cut":
        # Synced before the cut: a power cut must not take both.
        fs.write_atomic(Path(base), archive_path, fs.read_bytes(base / step.file, FILE_LIMIT_BYTES), sync=True)
        with fs.AppendFile(Path(base), step.file) as file:
            file.truncate(step.number)
    elif step.does == "write":
        fs.create(Path(base), step.file, step.content)
    elif step.does == "rename":
        if names := find_pending_rename(base):
            rename_agent(base, *names)
    else:
        persist_tick(base, step.number, sync=True)


# --- the tick counter ----------------------------------------------------------------------------

_RERUN_HINT = "Then run `lemming repair` again"


def _make_rollback_repair(base: OrgPath, tick: int, ticks: list[int]) -> Repair:
    description = f"the files are from before tick {tick}, but there are journals up to tick {ticks[-1]}"
    later_ticks = [later_tick for later_tick in ticks if later_tick >= tick]
    action = (
        f"move the journals from tick {tick} on aside, with their entries, so that tick {tick} "
        f"runs anew. {_describe_lost_spending(base, later_ticks)} To keep them instead, "
        f"restore the files from after tick {ticks[-1]}"
    )
    later_steps = [
        RepairStep("move", entry.file)
        for name in _list_agents(base)
        for entry in list_outbox(base, name)
        # not a person's: turns write their entries anew, under the same ids
        if entry.has_engine_id and entry.tick >= tick
    ]
    steps = (*later_steps, RepairStep("journals", paths.JOURNALS, tick - 1))
    return Repair("tick", paths.JOURNALS, description, action, steps)


def _describe_lost_spending(base: OrgPath, ticks: list[int]) -> str:
    """Return a sentence with the spending of ticks moved aside, and the commands to keep counting the amount."""
    spent = defaultdict[str, float](float)
    for tick in ticks:
        with contextlib.suppress(CorruptState):
            for record in read_journal(base, tick):
                if isinstance(record, ModelReplied):
                    spent[record.agent] += record.credits
    lines = [f"`lemming credits grant {name} -{amount:.10g}`" for name, amount in sorted(spent.items()) if amount]
    if not lines:
        return "They spent nothing."
    total = f"{sum(spent.values()):.10g}"
    return f"They spent {total} credits, which are then no longer counted; to count them: {', '.join(lines)}."


def _find_tick_repairs(base: OrgPath, ticks: list[int]) -> tuple[int, list[Repair]]:
    """Return the correct next tick, and the repairs of `tick.json`."""
    try:
        counter_tick = load_tick(base)
    except CorruptState as error:
        tick, evidence = tick_from_files(base, ticks)
        if not ticks and tick == 1:
            action = 'write {"current_tick": N} into the file yourself: no journal has the number'
            return 1, [Repair("tick", paths.TICK_FILE, error.message, action)]
        return tick, [_make_counter_repair(base, tick, error.message, evidence)]
    try:
        next_tick = find_next_tick(base, counter_tick, ticks, boot_id=SystemClock().boot_id)
    except CorruptState:  # reported as damage of the journal
        return counter_tick, []
    if next_tick.contradiction == "rolled back":
        return next_tick.tick, [_make_rollback_repair(base, next_tick.tick, ticks)]
    if next_tick.to_error is None:
        return next_tick.tick, []
    message = f"current_tick is {counter_tick}, but {next_tick.to_error.message}"
    return next_tick.tick, [_make_counter_repair(base, next_tick.tick, message, tick_from_files(base, ticks)[1])]


def _make_counter_repair(base: OrgPath, tick: int, description: str, evidence: str) -> Repair:
    """Return the repair of the counter; `evidence` is the source of the tick number, unless its own journal is."""
    explanation = f"tick {tick} was interrupted and continues" if last_record(base, tick) is not None else evidence
    is_there = os.path.lexists(base / paths.TICK_FILE)
    steps = (*([RepairStep("move", paths.TICK_FILE)] if is_there else []), RepairStep("tick", paths.TICK_FILE, tick))
    return Repair(
        "tick", paths.TICK_FILE, description, f'write {{"current_tick": {tick}}} into the file: {explanation}', steps
    )


# --- journals ------------------------------------------------------------------------------------


def _find_journal_repairs(base: OrgPath, facts: JournalFacts, next_tick: int) -> Iterator[Repair]:
    """Yield the repairs of damaged journals, and of turns that cannot resume: journals with their inputs are gone."""
    for tick in sorted({*facts.damaged, *facts.uncommitted}):
        try:
            for record in read_journal(base, tick):
                if isinstance(record, TurnStarted) and tick in facts.uncommitted:
                    record.as_json()
        except CorruptState as error:
            yield _make_journal_repair(base, tick, next_tick, error)


def _make_journal_repair(base: OrgPath, tick: int, next_tick: int, error: CorruptState) -> Repair:
    file = paths.journal_file(tick)
    steps: tuple[RepairStep, ...] = (RepairStep("move", file),)
    damaged_line = error.where.rpartition(":")[2]
    line_count = int(damaged_line) - 1 if damaged_line.isdigit() else 0
    if not os.path.lexists(base / file):
        action = "restore it from a backup if you need the record of its ticks; nothing else depends on it"
        steps = ()
    elif tick < next_tick:
        action = f"move it aside: the record of tick {tick} is lost; the files of the tick stay"
    elif is_committed(base, tick):
        action = f"move it aside and continue with tick {tick + 1}: the record of tick {tick} is lost"
        steps = (*steps, RepairStep("tick", paths.TICK_FILE, tick + 1))
    elif not line_count:
        action = f"move it aside: tick {tick} runs anew, and its models are called, and paid, again"
    else:
        action = (
            f"copy it aside and keep its first {line_count} lines, which are whole: tick {tick} "
            "continues after them; later turns are repeated, and their models are called, and "
            "paid, again"
        )
        lines = fs.read_bytes(base / file, FILE_LIMIT_BYTES).splitlines(keepends=True)
        steps = (RepairStep("cut", file, sum(map(len, lines[:line_count]))),)
    return Repair("journal", error.where, error.message, action, steps)


# --- ledgers -------------------------------------------------------------------------------------


def _find_ledger_repair(base: OrgPath, name: str) -> Repair | None:
    file = paths.ledger_file(name)
    try:
        raw = fs.read_bytes(base / file, LEDGER_LIMIT_BYTES)
    except FileNotFoundError:
        return None
    except OSError:
        action = "restore the ledger as a regular file, or move this away to start anew"
        return Repair("ledger", file, "expected a regular file", action)
    action = f"move it aside: {name} starts anew, its read entries and spent credits are forgotten"
    steps = (RepairStep("move", file),)
    if len(raw) > LEDGER_LIMIT_BYTES:
        description = f"the file is larger than the limit of {LEDGER_LIMIT_BYTES >> 20} MiB for a ledger"
        return Repair("ledger", file, description, action, steps)
    *good_lines, torn = raw.split(b"\n")
    bad_count, state = int(bool(torn)), None
    while good_lines and (state := _parse_state(good_lines[-1])) is None:
        good_lines.pop()
        bad_count += 1
    if not bad_count:
        return None
    lines_text, them = (
        ("its last line is", "that line") if bad_count == 1 else (f"its last {bad_count} lines are", "them")
    )
    if state:
        action = (
            f"copy it aside and cut {them}: {name} continues "
            f"from its turn of tick {state.tick}; later reading and spending is forgotten"
        )
        steps = (RepairStep("cut", file, sum(len(line) + 1 for line in good_lines)),)
    return Repair("ledger", file, f"{lines_text} not a record of the engine", action, steps)


def _parse_state(line: bytes) -> AgentState | None:
    try:
        return parse_state(line)
    except ValueError:  # errors of the strict parser and of the type check
        return None


# --- missing and stray files ----------------------------------------------------------------------


def _make_lost_file_repair(lost_file: LostFile) -> Repair:
    file, tick, agent, content = lost_file
    description = f"the file does not exist; {agent} wrote it in tick {tick}"
    if content is None:
        action = f"write it again if you need it: `lemming tick {tick}` shows what the turn did"
        return Repair("lost", file, description, action)
    action = "restore it from the journal; if you removed it yourself, do nothing"
    return Repair("lost", file, description, action, (RepairStep("write", file, content=content),))


def _find_leftovers(base: OrgPath) -> Iterator[Repair]:
    """Yield the temporary files of writes interrupted by the death of a process.

    Another process may be writing a memory at this moment: a temporary file with an active writer is none of these.
    """
    paths_to_check = [f"{base}/{name}" for name in sorted(os.listdir(base)) if is_temporary(name)]
    for folder in ENGINE_FOLDERS:
        for _, subfolders, files in walk(base / folder):
            # git removes its own temporary files
            subfolders[:] = sorted(name for name in subfolders if not name.endswith(".git"))
            paths_to_check += sorted(file.path for file in files if is_temporary(file.name))
    action = "move it aside: its write was never finished, or was repeated"
    for path in filter(is_orphaned, paths_to_check):
        file = Path(path).relative_to(base).as_posix()
        yield Repair("leftover", file, "left by an interrupted write", action, (RepairStep("move", file),))


def _make_call_repair(call: UnknownCall) -> Repair:
    description = f"{call.agent} called {call.summary} in tick {call.tick}; {call.why}"
    if call.was_retried:
        description += ", and so did the repair that repeated it"
    action = (
        f"find out the outcome, then run `lemming repair --mark done {call.id}` or `--mark "
        f"failed {call.id}`, or repeat the call with `lemming repair --retry {call.id} "
        f"--yes`: the next prompt of {call.agent} has the result"
    )
    return Repair("call", call.id, description, action, call=call)


def _list_agents(base: OrgPath) -> list[str]:
    return [name for name in list_agent_folders(base) if paths.AGENT_NAME.match(name)]
