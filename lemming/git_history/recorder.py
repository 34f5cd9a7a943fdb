"""Record the history: a commit per tick with changes, and a commit before the tick for edits by hand.

The trailers of every commit tell its position: `Tick: 42` holds the files after tick 42, `Before-Tick: 42`
the files before tick 42. A failure to record is a warning, and never ends a tick.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from lemming.git_history.git_repository import BRANCH, FOLDER, Repository
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.errors import GitFailed, LemmingError
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event, HistoryNotKept, TickBegins, TickEnds
from lemming.kernel.journal.journal_file import journal_ticks, last_record, read_journal
from lemming.kernel.journal.journal_records import TickCommitted, TurnCommitted
from lemming.kernel.journal.turn_report import STATUSES, TickReport, TurnReport
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.plugins.capability_loader import capabilities_of_resume, get_capability
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.turn.descriptions import OrgQuery, OutsideFile, OutsideRoot

BY_HAND = "by hand"
ENGINE = "LeMMing"
_NUMBER, _AMOUNT = re.compile(r"[0-9]{1,12}"), re.compile(r"[0-9]{1,13}(?:[.][0-9]{1,9})?(?:e[+-][0-9]{2})?")
_FORMS = {**dict.fromkeys(("Tick", "Before-Tick", "From-Tick", "Calls"), _NUMBER),
          **dict.fromkeys(("Credits", "Cost-USD"), _AMOUNT)}  # fmt: skip
_TIDY_EVERY = 100  # commits; git itself decides if there is anything to pack

D = TypeVar("D")


class Recorder:
    """Records the history of an organisation locked by this process."""

    def __init__(self, runtime: Runtime, *, is_flushed: bool = True) -> None:
        self._runtime = runtime
        self._repository = Repository(runtime.base, is_flushed=is_flushed)
        self._has_failed = False

    def on_event(self, event: Event) -> None:
        """Handle an engine event, as an observer."""
        # not before an interrupted tick: the files on disk are those of half a tick
        if isinstance(event, TickBegins) and event.turns_left is None:
            self._run_logged(lambda: self.commit_pending(event.tick))
        elif isinstance(event, TickEnds) and not event.report.is_quiet:
            self._run_logged(lambda: self._commit_tick(event.report.tick, event.report.turns))

    def commit_pending(self, tick: int) -> None:
        """Commit edits by people since the last commit, or a tick left uncommitted by a crash. Raises `GitFailed`."""
        files = self._repository.list_changes()
        if not _has_changes(files):
            return
        last = _find_last_tick(self._repository)
        missing = [] if last is None else list_changing_ticks(self._runtime.base, last + 1, tick)
        if len(missing) == 1:
            records = read_journal(self._runtime.base, missing[0])
            turns = [record.report for record in records if isinstance(record, TurnCommitted)]
            self._commit_tick(missing[0], turns, Late="yes")
        elif missing:
            first, newest = missing[0], missing[-1]
            trailers = {"Tick": newest, "From-Tick": first, "Late": "yes"}
            self._commit(files, format_message(f"ticks {first} to {newest}, kept together", trailers), ENGINE)
        else:
            begins = f"before tick {tick}: the history begins"
            subject = begins if last is None else f"by hand before tick {tick}"
            self._commit(files, format_message(subject, {"Before-Tick": tick}), BY_HAND)

    def commit_rewind(self, tick: int, commit: str) -> None:
        """Commit a rewind: files as in an earlier commit, and history continues from there. Raises `GitFailed`."""
        trailers = {"Before-Tick": tick, "Rewound-To": commit}
        message = format_message(f"rewound to tick {tick - 1}", trailers)
        self._commit(self._repository.list_changes(), message, BY_HAND)

    def open(self) -> Repository:
        """Return the repository, created if missing and ready for writing. Raises `GitFailed`."""
        agents = survey_agents(self._runtime.org).agents.values()
        self._repository = replace(self._repository, extra_paths=list_external_roots(self._runtime.org, agents))
        if not self._repository.exists():
            self._repository.create()
        self._repository.require_usable()
        self._repository.remove_stale_locks()
        return self._repository

    def _run_logged(self, work: Callable[[], object]) -> None:
        if self._has_failed:  # one warning a tick; the next tick catches up
            return
        try:
            self.open()
            try:
                work()
            except GitFailed as error:
                if not self._repository.is_damaged():
                    raise
                self._repair_repository(error)
                work()
        except LemmingError as error:
            self._has_failed = True
            self._log(error)

    def _log(self, error: LemmingError) -> None:
        EngineLog(self._runtime.base).warning("history_not_kept", problem=str(error))
        self._runtime.notify(HistoryNotKept(problem=error))

    def _repair_repository(self, error: GitFailed) -> None:
        """Repair a damaged repository: without its index, else by a new repository after archiving the old."""
        # the index alone, first: commits that are whole are worth more
        fs.remove(self._runtime.base, f"{FOLDER}/index")  # the next look at the files makes it up
        if not self._repository.is_damaged():
            return
        archive_path = f"{paths.ARCHIVE_FOLDER}/{timestamp(self._runtime.clock.now()).replace(':', '')}/history.git"
        fs.move(self._runtime.base, FOLDER, archive_path)
        self.open()
        hint = f"nothing else is lost; the old history is in {archive_path}, and git may still read parts of it"
        message = f"the history was damaged and starts anew ({error.message})"
        self._log(GitFailed(message, where=FOLDER, hint=hint))

    def _commit_tick(self, tick: int, turns: Iterable[TurnReport], **extra_trailers: object) -> None:
        """Commit the changes of a finished tick. A tick without changes has no commit."""
        files = self._repository.list_changes()
        if _has_changes(files):
            self._commit(files, format_tick_message(tick, turns, **extra_trailers), ENGINE)

    def _commit(self, files: list[str], message: str, author: str) -> None:
        at_s = int(self._runtime.clock.now().timestamp())
        commit = self._repository.commit(self._repository.stage(files), message, at_s=at_s, author=author)
        if int(commit, 16) % _TIDY_EVERY == 0:  # about every hundredth: no counter to keep
            self._repository.run("gc", "--auto", "--quiet")


def format_tick_message(tick: int, turns: Iterable[TurnReport], **extra_trailers: object) -> str:
    """Return the message of a tick's commit; further keywords are extra trailers."""
    report = TickReport(tick=tick, turns=tuple(turns))
    totals = report.totals
    agents = [turn.agent for turn in report.turns if turn.status != "skipped"]
    trailers = {
        "Tick": tick,
        "Agents": ", ".join(agents),
        "Calls": totals["calls"],
        "Credits": f"{totals['credits']:.10g}",
        "Cost-USD": None if totals["cost_usd"] is None else f"{totals['cost_usd']:.6f}",
    }
    counts = [(len(report.by_status(status)), status) for status in STATUSES if status != "skipped"]
    outcome = ", ".join(f"{count} {status}" for count, status in counts if count) or "no turns"
    return format_message(f"tick {tick}: {outcome}", {**trailers, **extra_trailers})


def format_message(subject: str, trailers: Mapping[str, object]) -> str:
    """Return a commit message; trailers without a value are left out."""
    lines = [f"{key}: {value}" for key, value in trailers.items() if value not in (None, "")]
    return "\n".join([subject, "", *lines, ""])


def parse_trailers(message: str) -> dict[str, str]:
    """Return the trailers of a commit message. Raises `GitFailed` for a foreign commit.

    >>> parse_trailers(format_message("tick 2: 1 done", dict(Tick=2, Agents="ada, bob")))
    {'Tick': '2', 'Agents': 'ada, bob'}
    """
    _, _, last = message.strip().rpartition("\n\n")
    trailers = dict(line.split(": ", 1) for line in last.splitlines() if ": " in line)
    invalid_keys = [key for key, form in _FORMS.items() if not form.fullmatch(trailers.get(key, "0"))]
    if invalid_keys or not trailers.keys() & {"Tick", "Before-Tick"}:
        raise foreign_commit_error(f"{invalid_keys[0]} must be a number" if invalid_keys else "no tick is named")
    return trailers


def foreign_commit_error(reason: str) -> GitFailed:
    """Return the error for a commit of the history that LeMMing did not make."""
    hint = f"move {FOLDER} away and turn the history on again: `lemming history on`"
    return GitFailed(f"a commit of {BRANCH} must be as LeMMing makes it: {reason}", where=FOLDER, hint=hint)


def list_changing_ticks(base: Path, first: int, until: int) -> list[int]:
    """Return the committed ticks from `first` up to, but excluding, `until` with file changes by turns."""
    # not counted up to `until`: a tick.json that is far ahead would take for ever
    ticks = ((tick, last_record(base, tick)) for tick in journal_ticks(base) if first <= tick < until)
    # a turn that failed before its model call wrote nothing
    keys = ("done", "waiting", "calls")
    return [tick for tick, last in ticks if isinstance(last, TickCommitted) and any(last.totals[key] for key in keys)]


def _find_last_tick(repository: Repository) -> int | None:
    """Return the newest tick in the history, or None. A commit before tick N holds everything up to N-1."""
    if not repository.head():
        return None
    trailers = parse_trailers(repository.run("log", "-1", "--format=%B", BRANCH).decode("utf-8", "replace"))
    return int(trailers["Tick"]) if "Tick" in trailers else int(trailers["Before-Tick"]) - 1


def _has_changes(files: list[str]) -> bool:
    """Return True if a file other than the tick counter has changed."""
    return any(file != paths.TICK_FILE for file in files)


def list_external_roots(base: OrgPath, agents: Iterable[Agent]) -> list[str]:
    """Return the external files and folders that capabilities search for the agents."""
    return sorted({root.path for root in _ask_users(OutsideRoot, base, agents)})


def list_external_files(base: OrgPath, agents: Iterable[Agent]) -> list[str]:
    """Return the existing external files, sorted."""
    return sorted({file.path for file in _ask_users(OutsideFile, base, agents)})


def _ask_users(kind: type[D], base: OrgPath, agents: Iterable[Agent]) -> Iterator[D]:
    """Yield the descriptions of each capability for the agents with its keys."""
    users: dict[str, dict[str, Agent]] = {}
    for agent in agents:
        for name in capabilities_of_resume(agent):
            users.setdefault(name, {})[agent.name] = agent
    for name, agents_by_name in users.items():
        yield from OrgQuery(kind, Organisation.from_path(base), agents_by_name).ask(get_capability(name))
