"""Keeps the history: a commit per tick that changed something, and one before it for edits by hand.

Every commit says in its trailers where it belongs: `Tick: 42` holds the files as they were after tick 42,
`Before-Tick: 42` as they were before it. A history that cannot be kept is a warning, never the end of a tick.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from lemming.history.git import BRANCH, FOLDER, Repository
from lemming.history.outside import outside_roots
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.errors import GitFailed, LemmingError
from lemming.kernel.files import fs
from lemming.kernel.journal.events import Event, HistoryNotKept, TickBegins, TickEnds
from lemming.kernel.journal.file import journal_ticks, last_record, read_journal
from lemming.kernel.journal.records import Record, TickCommitted, TurnCommitted
from lemming.kernel.journal.report import STATUSES, TickReport, TurnReport
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.tick.runtime import Runtime

BY_HAND = "by hand"
ENGINE = "LeMMing"
_NUMBER, _AMOUNT = re.compile(r"[0-9]{1,12}"), re.compile(r"[0-9]{1,13}(?:[.][0-9]{1,9})?(?:e[+-][0-9]{2})?")
_FORMS = {**dict.fromkeys(("Tick", "Before-Tick", "From-Tick", "Calls"), _NUMBER),
          **dict.fromkeys(("Credits", "Cost-USD"), _AMOUNT)}  # fmt: skip
_TIDY_EVERY = 100  # commits; whether there is anything to pack, git finds out itself


class Recorder:
    """Writes the history of an organisation whose lock we hold."""

    def __init__(self, runtime: Runtime, *, is_flushed: bool = True) -> None:
        self._runtime = runtime
        self._repository = Repository(runtime.base, is_flushed=is_flushed)
        self._has_failed = False

    def hear(self, event: Event) -> None:
        """Take one event; an observer of the engine's."""
        # not before a tick that goes on: the files on disk are those of half a tick
        if isinstance(event, TickBegins) and event.turns_left is None:
            self._attempt(lambda: self.keep_pending(event.tick))
        elif isinstance(event, TickEnds) and not event.report.is_quiet:
            self._attempt(lambda: self._keep_changes(event.report))

    def keep_pending(self, tick: int) -> None:
        """Keep what people changed since the last commit; or the tick whose commit a crash prevented.

        Raises `GitFailed`.
        """
        files = self._repository.changes()
        if not _matters(files):
            return
        last = _last_tick(self._repository)
        missing = [] if last is None else ticks_with_turns(self._runtime.base, last + 1, tick)
        if len(missing) == 1:
            records = read_journal(self._runtime.base, missing[0])
            turns = [record.report for record in records if isinstance(record, TurnCommitted)]
            self._keep_tick(missing[0], turns, files, Late="yes")
        elif missing:
            first, newest = missing[0], missing[-1]
            trailers = {"Tick": newest, "From-Tick": first, "Late": "yes"}
            self._commit(files, message_of(f"ticks {first} to {newest}, kept together", trailers), ENGINE)
        else:
            begins = f"before tick {tick}: the history begins"
            subject = begins if last is None else f"by hand before tick {tick}"
            self._commit(files, message_of(subject, {"Before-Tick": tick}), BY_HAND)

    def keep_rewound(self, tick: int, commit: str) -> None:
        """Keep that the files are those of a commit again; the past goes on from there.

        Raises `GitFailed`.
        """
        trailers = {"Before-Tick": tick, "Rewound-To": commit}
        message = message_of(f"rewound to tick {tick - 1}", trailers)
        self._commit(self._repository.changes(), message, BY_HAND)

    def open(self) -> Repository:
        """Return the repository, made if need be and ready to be written to; raise `GitFailed`."""
        agents = survey_agents(self._runtime.org).agents.values()
        self._repository = replace(self._repository, also=outside_roots(agents))
        if not self._repository.exists():
            self._repository.make()
        self._repository.check()
        self._repository.remove_stale_locks()
        return self._repository

    def _attempt(self, work: Callable[[], object]) -> None:
        if self._has_failed:  # one warning a tick; the next tick catches up
            return
        try:
            self.open()
            try:
                work()
            except GitFailed as error:
                if not self._repository.is_damaged():
                    raise
                self._mend(error)
                work()
        except LemmingError as error:
            self._has_failed = True
            self._log(error)

    def _log(self, error: LemmingError) -> None:
        EngineLog(self._runtime.base).warning("history_not_kept", problem=str(error))
        self._runtime.notify(HistoryNotKept(problem=error))

    def _mend(self, found: GitFailed) -> None:
        """Make a damaged repository one that can be used: without its index, or anew, the old one aside."""
        # the index alone, first: commits that are whole are worth more
        fs.remove(self._runtime.base, f"{FOLDER}/index")  # the next look at the files makes it up
        if not self._repository.is_damaged():
            return
        aside = f"{paths.ASIDE}/{timestamp(self._runtime.clock.now()).replace(':', '')}/history.git"
        fs.move(self._runtime.base, FOLDER, aside)
        self.open()
        hint = f"nothing else is lost; the old one is in {aside}, and git may still read some of it"
        why = f"the history was damaged and begins anew ({found.message})"
        self._log(GitFailed(why, where=FOLDER, hint=hint))

    def _keep_changes(self, report: TickReport) -> None:
        """Keep what a committed tick changed. A tick that changed nothing has no commit."""
        files = self._repository.changes()
        if _matters(files):
            self._keep_tick(report.tick, report.turns, files)

    def _keep_tick(self, tick: int, turns: Iterable[TurnReport], files: list[str], **more: object) -> None:
        self._commit(files, tick_message(tick, turns, **more), ENGINE)

    def _commit(self, files: list[str], message: str, author: str) -> None:
        at_s = int(self._runtime.clock.now().timestamp())
        commit = self._repository.commit(self._repository.stage(files), message, at_s=at_s, author=author)
        if int(commit, 16) % _TIDY_EVERY == 0:  # about every hundredth: no counter to keep
            self._repository.run("gc", "--auto", "--quiet")


def tick_message(tick: int, turns: Iterable[TurnReport], **more: object) -> str:
    """Return the message of a tick's commit; `more` are trailers beside the usual ones."""
    report = TickReport(tick=tick, turns=tuple(turns))
    totals = report.totals
    agents = [turn.agent for turn in report.turns if turn.status != "skipped"]
    trailers = {
        "Tick": tick,
        "Agents": ", ".join(agents),
        "Calls": totals["calls"],
        "Credits": f"{totals['credits']:g}",
        "Cost-USD": None if totals["cost_usd"] is None else f"{totals['cost_usd']:.6f}",
    }
    return message_of(f"tick {tick}: {_outcome(report)}", {**trailers, **more})


def message_of(subject: str, trailers: Mapping[str, object]) -> str:
    """Return a commit's message; trailers without a value are left out."""
    lines = [f"{key}: {value}" for key, value in trailers.items() if value not in (None, "")]
    return "\n".join([subject, "", *lines, ""])


def trailers_of(message: str) -> dict[str, str]:
    """Return the trailers of a commit's message; raise `GitFailed` for one that LeMMing did not write.

    >>> trailers_of("tick 2: 1 done\\n\\nTick: 2\\nAgents: ada, bob\\n")
    {'Tick': '2', 'Agents': 'ada, bob'}
    """
    _, _, last = message.strip().rpartition("\n\n")
    trailers = dict(line.split(": ", 1) for line in last.splitlines() if ": " in line)
    wrong = [key for key, form in _FORMS.items() if not form.fullmatch(trailers.get(key, "0"))]
    if wrong or not trailers.keys() & {"Tick", "Before-Tick"}:
        raise not_ours(f"its {wrong[0]} is no number" if wrong else "it names no tick")
    return trailers


def not_ours(why: str) -> GitFailed:
    """Return the error for a commit in the history that LeMMing did not make."""
    hint = f"move {FOLDER} away and turn the history on again: `lemming history on`"
    return GitFailed(f"a commit of {BRANCH} is not as LeMMing makes them: {why}", where=FOLDER, hint=hint)


def ticks_with_turns(base: Path, first: int, until: int) -> list[int]:
    """Return the committed ticks from `first` up to, without, `until` whose turns changed files."""
    # not counted up to `until`: a tick.json that is far ahead would take for ever
    there = (tick for tick in journal_ticks(base) if first <= tick < until)
    return [tick for tick in there if _changed_files(last_record(base, tick))]


def _last_tick(repository: Repository) -> int | None:
    """Return the newest tick whose files are in the history; None when it has no commit yet.

    What was kept before tick N holds everything up to tick N-1.
    """
    if not repository.head():
        return None
    trailers = trailers_of(repository.run("log", "-1", "--format=%B", BRANCH).decode("utf-8", "replace"))
    return int(trailers["Tick"]) if "Tick" in trailers else int(trailers["Before-Tick"]) - 1


def _changed_files(record: Record | None) -> bool:
    """Return whether a tick's turns wrote anything: one that failed before its model was asked did not."""
    if not isinstance(record, TickCommitted):
        return False
    return any(record.totals[key] for key in ("done", "waiting", "calls"))


def _outcome(report: TickReport) -> str:
    parts = [(len(report.by_status(status)), status) for status in STATUSES if status != "skipped"]
    return ", ".join(f"{count} {status}" for count, status in parts if count) or "no turns"


def _matters(files: list[str]) -> bool:
    """Return whether anything but the clock has moved."""
    return any(file != paths.TICK_FILE for file in files)
