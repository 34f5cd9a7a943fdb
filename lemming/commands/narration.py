"""Tells a run as it happens: a line an entry, a line a tick; or with --json the engine's events."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from lemming.commands.screen import (
    ReaderGone,
    Style,
    as_text,
    counted,
    in_dollars,
    one_line,
    painted,
    show_json,
    tell,
    tell_on_last_line,
    width_of,
)
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, is_of_a_provider
from lemming.kernel.base.integers import to_int
from lemming.kernel.journal.events import (
    Event,
    HistoryNotKept,
    ModelAsked,
    ModelWrote,
    ProblemFound,
    Sleeping,
    TickBegins,
    TickEnds,
    Woken,
)
from lemming.kernel.journal.records import (
    EntriesExpired,
    ModelReserved,
    Record,
    TickCommitted,
    TickStarted,
    TurnAnswered,
    TurnCommitted,
    TurnEnded,
    TurnResumed,
    TurnSkipped,
    TurnStarted,
    TurnStopped,
)
from lemming.kernel.journal.report import EntryWritten, TickReport, ToolUsed, TurnReport
from lemming.kernel.org.organisation import OrgPath

_STYLES: dict[str, Style] = {"failed": "red", "skipped": "dim", "waiting": "yellow"}
_SHORTEST_TEXT = 30

NOBODY_USABLE = frozenset(
    {
        *("AuthenticationFailed", "Unavailable", "CircuitOpen", "TimedOut", "RateLimited", "UnknownModel"),
        *("Unusable", "ProviderError"),
    }
)
TURN_FAILED, NO_PROVIDER, NO_CREDITS = 1, 5, 6

NAMES: dict[type[Event], str] = {
    TickBegins: "tick_started",
    TurnResumed: "turn_started",
    TurnCommitted: "turn_ended",
    TurnSkipped: "turn_ended",
    TickEnds: "tick_committed",
    ProblemFound: "problem",
    # The engine's own book-keeping:
    **dict.fromkeys((TickStarted, TickCommitted, TurnAnswered, TurnStopped), ""),
    **dict.fromkeys((ModelReserved, EntriesExpired), ""),
}


def type_of(kind: type[Event]) -> str:
    """Return what `--json` calls a kind of event; empty for one that it leaves out."""
    return NAMES.get(kind, "" if kind.is_bookkeeping else kind.kind)


@dataclass
class Watched:
    """What agents have written of lines that are not yet shown."""

    _held: dict[str, str] = field(default_factory=dict)
    _calls: dict[str, int] = field(default_factory=dict)

    def hear(self, event: ModelWrote, name_width: int) -> None:
        """Take a piece of an answer; show the lines that are full or ended."""
        if self._calls.get(event.agent) != event.call:  # another answer of the same turn
            self.end(event.agent, name_width)
            self._calls[event.agent] = event.call
        *lines, rest = (self._held.get(event.agent, "") + event.text).split("\n")
        room = self._room(name_width)
        while len(rest) > room:
            end = rest.rfind(" ", 0, room) + 1 or room
            lines.append(rest[:end])
            rest = rest[end:]
        self._held[event.agent] = rest
        self._show(event.agent, lines, name_width)

    def end(self, agent: str, name_width: int) -> None:
        """Show what is left of an agent's answer."""
        self._calls.pop(agent, None)
        self._show(agent, [self._held.pop(agent, "")], name_width)

    def _show(self, agent: str, lines: list[str], name_width: int) -> None:
        for line in lines:
            if line.strip():
                text = one_line(line.rstrip(), max(len(line), self._room(name_width)))
                tell(f"  {agent.ljust(name_width)}  {painted(f'| {text}', 'dim', sys.stderr)}")

    def _room(self, name_width: int) -> int:
        return max(SHORTEST, width_of(sys.stderr) - name_width - 8)


@dataclass
class Narrator:
    """Hears the engine's events. `stop` is set when nobody is there any more to be told."""

    base: OrgPath
    stop: threading.Event
    as_json: bool = False
    quiet: bool = False
    due: list[str] = field(default_factory=list)
    tick: int = 0
    is_cut_off: bool = False
    _running: list[str] = field(default_factory=list)
    _over: set[str] = field(default_factory=set)  # turns that an interrupted attempt had ended
    _name_width: int = 0
    _watched: Watched = field(default_factory=Watched)

    def hear(self, event: Event) -> None:
        """Take one event; for `lemming.engine` as `notify`."""
        if isinstance(event, TickBegins):
            self.tick, self.due = event.tick, list(event.order)
            self._over = set(self.due) - set(self.due if event.turns_left is None else event.turns_left)
            self._name_width = max(map(len, [*self.due, *event.broken]), default=0)
        try:
            self._report(event)
        except ReaderGone:
            self.is_cut_off = True
            self.stop.set()

    def _report(self, event: Event) -> None:
        if self.as_json:
            if kind := type_of(type(event)):
                show_json(kind, facts_of(event, self.tick))
            return
        self._clear_line()
        self._tell_of(event)
        self._show_running()

    def _tell_of(self, event: Event) -> None:
        match event:
            case TickBegins():
                self._tick_begins(event)
            case TurnStarted() | TurnResumed():
                self._running.append(event.agent)
            case TurnEnded():
                self._turn_ended(event.report)
            case Sleeping() | Woken():
                if not self.quiet and (line := line_of_sleep(event)):
                    tell(f"  {painted(line, 'dim', sys.stderr)}")
            case ModelWrote() if not self.quiet:
                self._watched.hear(event, self._name_width)
            case ProblemFound():
                self._problem(event)
            case HistoryNotKept(problem=problem):
                tell(f"warning: the history was not kept: {one_line(problem.message, 400)}", style="yellow")
                tell(f"  fix: {problem.hint}")
            case _ if line := one_line(event.as_line(), 600):
                if event.is_warning:
                    tell(f"  {painted('warning ', 'yellow', sys.stderr)}  {line}")
                elif not self.quiet:
                    tell(f"  {painted(line, 'dim', sys.stderr)}")

    def stopped(self, report: TickReport) -> None:
        """Tell of a tick that was stopped half-way; no event of the engine says so."""
        self._clear_line()
        self._running.clear()
        if self.as_json:
            show_json("tick_stopped", report.as_json())
            return
        if not self.quiet:
            ended = {turn.agent for turn in report.turns}
            rest = ", ".join(name for name in self.due if name not in ended)
            tell(f"tick {report.tick} is unfinished ({rest} to go); the next run continues it")

    def ended(self, report: TickReport) -> None:
        """Tell what a tick came to."""
        self._running.clear()
        if not self.as_json and not self.quiet:
            tell(summary(report, self.due))

    def _tick_begins(self, event: TickBegins) -> None:
        if not self.quiet and self._name_width:
            tell(line_of_start(event), style="bold")
        for name, why in event.broken.items():
            tell(f"  {self._name(name)}  {painted('broken  ', 'red', sys.stderr)}  {one_line(why, 400)}")

    def _turn_ended(self, turn: TurnReport) -> None:
        self._watched.end(turn.agent, self._name_width)
        if turn.agent in self._running:
            self._running.remove(turn.agent)
        if not self.quiet or turn.status == "failed":
            for line in self._lines_of(turn):
                tell(line)

    def _show_running(self) -> None:
        """Name the turns under way on the last line of a terminal, which the next line of text replaces."""
        if self._running and self._uses_last_line:
            names = one_line(", ".join(self._running), width_of(sys.stderr) - 6)
            tell_on_last_line(f"  {names}  …")

    def _clear_line(self) -> None:
        if self._running and self._uses_last_line:
            tell_on_last_line()

    @property
    def _uses_last_line(self) -> bool:
        return not self.quiet and not self.as_json and sys.stderr.isatty()

    def _lines_of(self, turn: TurnReport) -> list[str]:
        name = self._name(turn.agent)
        if turn.status in ("failed", "skipped"):
            head = painted(f"{turn.status:<8}", _STYLES[turn.status], sys.stderr)
            return [f"  {name}  {head}  {one_line(turn.reason, 600)}"]
        cost = f"kept, {_cost_of(turn)}" if turn.agent in self._over else _cost_of(turn)
        room = max(_SHORTEST_TEXT, width_of(sys.stderr) - len(name) - len(cost) - 17)
        shown = [(entry["kind"], one_line(self._text_of(turn.agent, entry), room)) for entry in turn.entries]
        if not shown:
            shown = [("", "wrote nothing")]
        also = _besides_entries(turn)
        if also:
            shown.append(("", also))
        lines = [f"  {name}  {kind:<8}  {text}" for kind, text in shown]
        return [f"{lines[0]}  {painted(cost, 'dim', sys.stderr)}", *lines[1:]]

    def _problem(self, event: ProblemFound) -> None:
        problem = event.problem
        where = problem.file + (f":{problem.line}" if problem.line else "")
        hint = f" ({problem.hint})" if problem.hint else ""
        text = one_line(f"{where}: {problem.message}{hint}", 400)
        kind = "ignored" if problem.severity == "error" else problem.severity
        who = f"{self._name(event.agent)}  " if event.agent else ""
        tell(f"  {who}{painted(kind.ljust(8), 'yellow', sys.stderr)}  {text}")

    def _name(self, name: str) -> str:
        return name.ljust(self._name_width)

    def _text_of(self, author: str, entry: EntryWritten) -> str:
        from lemming.kernel.messages import EntryName, read_entry

        match = paths.ENTRY_FILE.match(entry["file"].rsplit("/", 1)[-1])
        if match is None:
            return entry["file"]
        try:
            return text_of(read_entry(self.base, EntryName(to_int(match[1]), 0, match[2], author)).payload)
        except (ConfigError, FileNotFoundError):  # an entry past its retention, or removed by hand
            return entry["file"]


def facts_of(event: Event, tick: int) -> dict[str, Any]:
    """Return an event of a tick as `--json` prints it, without its name. Format: docs/cli.md."""
    match event:
        case TurnStarted() | TurnResumed():
            return {"agent": event.agent, "tick": tick}
        case TurnEnded(report=report):
            return {"tick": tick, **report.as_json()}
        case Record() | ModelAsked() | ModelWrote():
            return {"tick": tick, **event.as_shown()}
        case _:
            return event.as_shown()


def line_of_start(event: TickBegins) -> str:
    """Return the line that begins a tick, or that says with what one that was interrupted goes on."""
    if event.turns_left is None:
        return f"tick {event.tick}"
    answers = counted(event.answers_kept + event.answers_missing, "answer")
    kept = (
        f"{event.answers_kept} of {answers} kept, not paid twice"
        if event.answers_kept
        else "no answer had arrived"
    )
    return f"tick {event.tick} continues: {kept}, {counted(len(event.turns_left), 'turn')} left"


def line_of_sleep(event: Sleeping | Woken) -> str:
    """Return what a person wants to read of the engine's going to sleep or waking up; empty: nothing."""
    if isinstance(event, Sleeping):
        length = f"for {_length(event.seconds)}"
        if event.due:
            length += f", until tick {event.until_tick} ({one_line(', '.join(event.due), 60)})"
        return f"sleeping until something changes, at the longest {length}"
    parts = [f"woken: {one_line(', '.join(event.changed), 200)} changed"] if event.changed else []
    if passed := event.slept_through:
        first, last = event.next_tick - passed, event.next_tick - 1
        which = f"tick {first}" if passed == 1 else f"ticks {first} to {last}"
        parts.append(f"slept through {which}")
    return "; ".join(parts)


def _length(seconds: float) -> str:
    """Return a length of time as a person says it.

    >>> [_length(seconds) for seconds in (4.4, 75, 3600, 9000)]
    ['4 s', '75 s', '60 min', '2.5 h']
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def text_of(payload: dict[str, Any]) -> str:
    """Return what a person wants to read of a payload: its text, else all of it."""
    text = payload.get("text")
    shown = as_text(text if isinstance(text, str) else payload)
    target = payload.get("target")
    return f"{shown}  (to {target})" if isinstance(target, str) else shown


def summary(report: TickReport, due: list[str]) -> str:
    """Return the line that ends a tick."""
    totals, after = report.totals, f"next is tick {report.tick + 1}"
    if not report.turns and not report.not_due:
        return f"tick {report.tick}: there are no agents (`lemming agents new NAME` makes one); {after}"
    if not due:
        if pause := next(filter(_is_pause_of_all, (turn.reason for turn in report.turns)), ""):
            return f"tick {report.tick}: {one_line(pause, 300)}; {after}"
        broken = f", {totals['failed']} broken (`lemming validate` says why)" if totals["failed"] else ""
        return f"tick {report.tick}: nobody is due{broken}; {after}"
    parts = [f"{totals[status]} {status}" for status in ("done", "waiting", "failed") if totals[status]]
    idle = sum(turn.status == "skipped" and turn.agent in due for turn in report.turns)
    parts += [f"{idle} skipped"] if idle else []
    if totals["calls"]:
        parts += [counted(totals["entries"], "entry", "entries"), counted(totals["credits"], "credit")]
        parts += [in_dollars(totals["cost_usd"])] if totals["cost_usd"] is not None else []
    return f"tick {report.tick} in {report.duration_ms / 1000:.1f}s: {', '.join(parts)}; {after}"


def _is_pause_of_all(reason: str) -> bool:
    return reason.startswith("the organisation is paused")


def exit_status(report: TickReport, due: list[str]) -> int:
    """Return what `run-once` ends with for a tick that was committed. See docs/cli.md."""
    mine = [turn for turn in report.turns if turn.agent in due]
    asked = [turn for turn in mine if turn.calls or is_of_a_provider(turn.error)]
    if asked and all(not turn.calls and turn.error in NOBODY_USABLE for turn in asked):
        return NO_PROVIDER
    if report.totals["failed"]:
        return TURN_FAILED
    if mine and all(turn.error in ("OutOfCredits", "LimitReached") for turn in mine):
        return NO_CREDITS
    return 0


def _cost_of(turn: TurnReport) -> str:
    cost = f"{counted(turn.credits, 'credit')}, {turn.duration_ms / 1000:.1f}s"
    return cost if turn.cost_usd is None else f"{cost}, {in_dollars(turn.cost_usd)}"


def _besides_entries(turn: TurnReport) -> str:
    parts = [f"{tool['tool']}{_how_it_went(tool)}" for tool in turn.tools]
    if turn.memory:
        parts.append(f"remembered {', '.join(turn.memory)}")
    parts += turn.remarks
    return one_line("; ".join(parts), 300)


def _how_it_went(tool: ToolUsed) -> str:
    if tool["success"]:
        return ""
    return " (waits)" if tool.get("outcome") in ("pending", "deferred") else " (refused or failed)"


SHORTEST = 20
