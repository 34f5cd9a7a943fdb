"""Rehearsal of recorded ticks in a fork with a change: compute the differences and their cost.

The fork starts from the state before the first tick, with the current resumes and settings and the change.
Messages of people and channels arrive in the same ticks as before. Files outside the fork are never touched.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from lemming.engine import run_opened
from lemming.evals.rehearsal.org_comparison import EntryDifference, diff_entries
from lemming.evals.rehearsal.rehearsal_runtime import RecordedPrompts, RehearsalRuntime, SkippedCall, UnaskedQuestion
from lemming.evals.rehearsal.spending_budget import SpendingBudget
from lemming.git_history.history_reader import FileChange
from lemming.journal_tools.file_history import FileHistory, iter_tracked_files, load_current_file
from lemming.journal_tools.fork import SettingOverride, apply_overrides, fork
from lemming.journal_tools.journal_history import JournalHistory, PastStates, diff_file, open_past
from lemming.journal_tools.recorded_tick import RecordedTick, RecordedTurn, load_tick_record
from lemming.journal_tools.replay.tick_replay import restore_abandoned_turns, restore_call_notes
from lemming.kernel.agents import decode_resume, list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, LemmingError, UsageError
from lemming.kernel.base.jsontext import did_you_mean, dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.journal_file import journal_ticks, make_prompt_reader, read_journal
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.tool_file_search import list_tool_files
from lemming.libraries.wording import join_names
from lemming.operations.open_org import open_org

MARK = paths.REHEARSAL_FILE
"""File in a rehearsal's fork that names the rehearsed range, so the rehearsal can be continued."""


@dataclass(frozen=True)
class RehearsalOptions:
    """Options of a rehearsal: ticks, settings and permissions.

    `files`: replaced files by path, with the full content. `budget`: dollars, as in `SpendingBudget`.
    `is_dry` and `makes_calls` are as in `RehearsalRuntime`.
    """

    first: int
    last: int
    settings: tuple[SettingOverride, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    budget: float | None = None
    is_dry: bool = False
    makes_calls: bool = False


@dataclass(frozen=True)
class OutcomeDifference:
    """A turn with a different outcome, or a turn of a single side: outcome and reason on both sides."""

    tick: int
    agent: str
    before: str
    after: str


@dataclass(frozen=True)
class RehearsalResult:
    """The result of a rehearsal up to and including tick `last`: differences from the record, and costs.

    `unrecorded_prompts`: prompts missing in the record. `reused`: number of prompts in the record.
    `stopped_by`: the error at which the rehearsal stopped. `full_estimate`: in a dry run, the cost of calling
    every model. `remark`: reliability of the reconstructed past.
    """

    first: int
    last: int
    entries: list[EntryDifference] = field(default_factory=list)
    ends: list[OutcomeDifference] = field(default_factory=list)
    files: list[FileChange] = field(default_factory=list)
    unrecorded_prompts: list[UnaskedQuestion] = field(default_factory=list)
    reused: int = 0
    skipped_calls: list[SkippedCall] = field(default_factory=list)
    not_repeated: list[tuple[int, str]] = field(default_factory=list)
    spending: SpendingBudget = field(default_factory=SpendingBudget)
    full_estimate: SpendingBudget = field(default_factory=SpendingBudget)
    scripted: list[str] = field(default_factory=list)
    stopped_by: LemmingError | None = None
    remark: str = ""

    @property
    def is_unchanged(self) -> bool:
        """True if there is no difference from the record."""
        return not (self.entries or self.ends or self.files)

    @property
    def caveat(self) -> str:
        """Warning about agents with a recording as model: a recording cannot answer a changed prompt. Empty: none."""
        if not self.scripted:
            return ""
        return f"the model of {join_names(self.scripted, 8)} replays a recording, so changed prompts get no answer"

    @property
    def cannot_tell(self) -> str:
        """The caveat if no difference was found, as such a result proves nothing. Empty: the result is conclusive."""
        return self.caveat if self.is_unchanged else ""

    def as_json(self) -> Json:
        """Return the totals as JSON values; the differences of entries are listed separately."""
        spent = self.spending
        return {
            "first": self.first,
            "last": self.last,
            "reused": self.reused,
            "asked": [prompt._asdict() for prompt in self.unrecorded_prompts],
            "calls": spent.calls,
            "credits": round(spent.credits, 6),
            "cost_usd": float(spent.dollars) if spent.calls > spent.unpriced or not spent.calls else None,
            "cost_at_most_usd": float(spent.max_dollars) if not spent.unpriced else None,
            "unpriced_calls": spent.unpriced,
            "not_made": [call._asdict() for call in self.skipped_calls],
            "not_repeated": [{"tick": tick, "agent": agent} for tick, agent in self.not_repeated],
            "ends": [asdict(end) for end in self.ends],
            "files": [asdict(file) for file in self.files],
            "cannot_tell": self.cannot_tell,
            "stopped_by": self.stopped_by.as_json() if self.stopped_by else None,
            "remark": self.remark,
        }


def find_recorded_span(base: OrgPath, ticks: range | None = None) -> range:
    """Return the ticks with a complete record, by default all recorded. Raises: UsageError if there are none."""
    recorded_ticks, last_tick = journal_ticks(base), load_tick(base) - 1
    if not recorded_ticks or last_tick < recorded_ticks[0]:
        raise UsageError("no tick has run yet", where=str(base), hint="run a tick with `lemming run-once`")
    # The state before the first recorded tick is known unless older journals are missing.
    started_turns = load_tick_record(base, recorded_ticks[0]).started.values()
    first = recorded_ticks[0] + any(started.state["status"] for started in started_turns)
    requested = ticks or range(first, last_tick + 1)
    span = range(requested.start or first, min(last_tick + 1, requested.stop))
    if not span:
        start, last = requested.start, requested.stop - 1
        description = f"tick {start}" if len(requested) < 2 else f"ticks {start} to {last}"
        raise UsageError(f"no record of {description}", hint=f"choose among ticks {recorded_ticks[0]} to {last_tick}")
    return span


def rehearse(
    base: OrgPath, folder: Path, options: RehearsalOptions, *, stop: threading.Event | None = None
) -> RehearsalResult:
    """Run recorded ticks again in `folder` with a change, and return the differences.

    An interrupted rehearsal in the folder continues: prompts with an answer in the fork's journals are not repeated.
    Raises: UsageError for settings or a folder of another rehearsal; DiskError.
    """
    past = open_past(base)
    record = _Recording(base, past if isinstance(past, JournalHistory) else FileHistory(base))
    _prepare(past, folder, options)
    with open_org(folder, command="rehearse", stop=stop) as lock:
        runtime = RehearsalRuntime(
            lock.org,
            lock.clock,
            stop=lock.stop,
            epoch=lock.epoch,
            spending=SpendingBudget(options.budget),
            is_dry=options.is_dry,
            makes_calls=options.makes_calls,
        )
        with closing(runtime.backends):
            failed_turns = [*_run_ticks(runtime, record, range(load_tick(folder), options.last + 1))]
    last_tick = load_tick(folder) - 1
    differences = _compare_ticks(record, folder, range(options.first, last_tick + 1))
    return RehearsalResult(
        first=options.first,
        last=last_tick,
        **differences,
        unrecorded_prompts=sorted(runtime.unrecorded_prompts),
        reused=runtime.reused,
        skipped_calls=sorted(runtime.skipped_calls),
        not_repeated=failed_turns,
        spending=runtime.spending,
        full_estimate=runtime.full_estimate,
        scripted=sorted(runtime.scripted),
        stopped_by=runtime.stopped_by,
        remark=past.reliability_note,
    )


class _Recording:
    """The record to follow: the ticks of an organisation with the files that arrived in each."""

    def __init__(self, base: OrgPath, past: FileHistory) -> None:
        self.base, self.past, self._prompts = Path(base), past, make_prompt_reader(base)
        self.config = load_config(base)

    def load_tick(self, tick: int) -> RecordedTick:
        """Load a recorded tick; a tick without records had no turns."""
        return RecordedTick(tick, read_journal(self.base, tick, prompts=self._prompts))

    def last_clock_reading(self, tick: int) -> str:
        """Return the newest clock reading up to a tick."""
        known_ticks = self.past.file_changes.ticks
        earlier_ticks = (number for number in reversed(known_ticks) if number <= tick)
        return known_ticks[next(earlier_ticks, min(known_ticks))].at

    def deliver(self, folder: Path, tick: int) -> None:
        """Write the files of people and channels from before a tick, without overwriting a file."""
        for file in self.past.external_arrivals.files.get(tick, ()):
            if not (folder / file).exists():
                content = self.past.external_arrivals.texts.get(file) or load_current_file(self.base, file)
                if content is not None:
                    fs.write_atomic(folder, file, content)


def _prepare(past: PastStates, folder: Path, options: RehearsalOptions) -> None:
    """Create the fork, unless the same rehearsal has already created the fork."""
    base = past.base
    mark = {"of": str(base.resolve()), "first": options.first, "set": [*map(asdict, options.settings)]}
    if options.files:
        mark["files"] = {file: sha256(raw).hexdigest() for file, raw in options.files.items()}
    existing_mark = load_current_file(folder, MARK)
    if existing_mark is not None:
        if parse(existing_mark) != mark:
            hint = "continue with the same organisation, ticks and --set, or name another folder"
            raise UsageError("the folder holds another rehearsal", where=str(folder), hint=hint)
        return
    overridden = apply_overrides(
        options.settings, lambda file: options.files.get(file) or _load_current_file(base, file)
    )
    changed_files = {**options.files, **overridden}
    _require_valid_resumes(changed_files)
    fork(past, past.state_at_tick(options.first - 1), folder, [])
    _copy_current_settings(base, folder)
    for file, content in changed_files.items():
        if not (folder / file).exists() and not file.startswith("config/"):
            message = f"{file} did not exist before tick {options.first}"
            raise UsageError(message, hint="choose later --ticks")
        fs.write_atomic(folder, file, content)
    # Last, because an incomplete fork must not be continued.
    fs.write_atomic(folder, MARK, dump_pretty(mark))


def _require_valid_resumes(changed_files: Mapping[str, bytes]) -> None:
    """Raise `UsageError` for a changed resume with errors: the agent would silently take no turns."""
    for file, content in changed_files.items():
        name = PurePosixPath(file).parent.name
        if file != paths.resume_file(name):
            continue
        try:
            decode_resume(name, content)
        except ConfigError as error:
            first = error.problems[0]
            message = f"--set would make {file} invalid: {first.pointer}: {first.message}"
            hint = first.hint or "see `lemming export schema resume` for the valid values"
            raise UsageError(message, hint=hint) from error


def _copy_current_settings(base: Path, folder: Path) -> None:
    """Copy the current versions of user-edited files into the fork: resumes, `config/`, function files."""
    existing_agents = {*list_agent_folders(folder)}
    files = [paths.resume_file(name) for name in list_agent_folders(base) if name in existing_agents]
    files += [file for file in iter_tracked_files(base) if file.startswith("config/")]
    for file in [*files, *list_tool_files(base, load_config(base).org.tool_files)]:
        content = load_current_file(base, file)
        if content is not None and content != load_current_file(folder, file):
            fs.write_atomic(folder, file, content)


def _load_current_file(base: OrgPath, file: str) -> bytes:
    files = [*iter_tracked_files(base)]
    content = load_current_file(base, file) if file in files else None
    if content is None:
        editable_files = [path for path in files if path.endswith(".json") and "/outbox/" not in path]
        hint = did_you_mean(file, editable_files) or "use a path from the organisation's folder"
        raise UsageError(f"file {file} does not exist", hint=hint)
    return content


def _run_ticks(runtime: RehearsalRuntime, record: _Recording, ticks: range) -> Iterator[tuple[int, str]]:
    """Run the ticks again and yield the turns that the engine or the disk ended, which cannot be repeated."""
    for tick in ticks:
        prompts = RecordedPrompts(record.load_tick(tick), record.base, record.config)
        runtime.begin_tick(prompts, record.last_clock_reading(tick))
        # A tick begun by an interrupted rehearsal already has these records in the journal.
        if tick not in journal_ticks(runtime.org):
            record.deliver(runtime.base, tick)
            if prompts.recorded.records:
                restore_call_notes(runtime, prompts.recorded)
                yield from ((tick, name) for name in restore_abandoned_turns(runtime, prompts.recorded))
        if not run_opened(runtime, tick, advance=True).is_complete:
            return


def _compare_ticks(record: _Recording, folder: Path, ticks: range) -> dict[str, Any]:
    """Return the differences between the record and the fork in these ticks."""
    new_ticks = {*journal_ticks(folder)}
    prompts = make_prompt_reader(folder)
    entries: list[EntryDifference] = []
    ends: list[OutcomeDifference] = []
    written_files: tuple[dict[str, bytes], dict[str, bytes]] = {}, {}
    for tick in ticks:
        rehearsed = load_tick_record(folder, tick, prompts) if tick in new_ticks else RecordedTick(tick)
        sides = [_turns_by_agent(record.load_tick(tick)), _turns_by_agent(rehearsed)]
        entry_lists = ([entry for turn in side.values() for entry in turn.entries] for side in sides)
        entries += diff_entries(*entry_lists)
        for name in sorted({*sides[0], *sides[1]}):
            old_outcome, new_outcome = (_describe_outcome(side.get(name)) for side in sides)
            if old_outcome != new_outcome:
                ends.append(OutcomeDifference(tick, name, old_outcome, new_outcome))
        for side, files in zip(sides, written_files, strict=True):
            for turn in side.values():
                entry_files = {entry.file for entry in turn.entries}  # compared separately
                effects = {path: effect for path, effect in turn.writes.items() if path not in entry_files}
                files |= {path: effect.content for path, effect in effects.items() if not effect.root}
    written_paths = sorted({*written_files[0], *written_files[1]})
    changes = (diff_file(file, *(side.get(file) for side in written_files))[0] for file in written_paths)
    return {"entries": entries, "ends": ends, "files": [change for change in changes if change]}


def _turns_by_agent(recorded: RecordedTick) -> dict[str, RecordedTurn]:
    return {turn.agent: turn for turn in recorded.turns} if recorded.records else {}


def _describe_outcome(turn: RecordedTurn | None) -> str:
    """Describe the outcome of a turn, or return an empty string without a turn."""
    if turn is None or turn.report is None:
        return ""
    report = turn.report
    return f"{report.end or report.status}: {report.reason}" if report.reason else report.end or report.status
