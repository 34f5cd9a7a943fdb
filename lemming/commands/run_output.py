"""Live output of a run: a line per entry and per tick, or the engine's events with --json."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from lemming.commands.progress import TurnProgress
from lemming.commands.terminal import (
    OutputClosed,
    Style,
    format_count,
    format_duration,
    format_usd,
    get_terminal_width,
    has_person,
    is_for_program,
    one_line,
    print_json,
    print_notice,
    print_warning,
    style_text,
)
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, is_provider_error
from lemming.kernel.base.integers import to_int
from lemming.kernel.journal.engine_events import (
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
from lemming.kernel.journal.journal_records import (
    EntriesExpired,
    ModelReserved,
    ModelStarted,
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
from lemming.kernel.journal.turn_report import EntryWritten, TickReport, TurnReport
from lemming.kernel.org.organisation import OrgPath
from lemming.queries.sentences import describe_entry, summarize_report

_STYLES: dict[str, Style] = {"failed": "red", "skipped": "dim", "waiting": "yellow"}
_MIN_TEXT_WIDTH, _MIN_STREAM_WIDTH = 30, 20

UNUSABLE_PROVIDER_ERRORS = frozenset((
    "AuthenticationFailed", "Unavailable", "CircuitOpen", "TimedOut", "RateLimited", "UnknownModel", "Unusable",
    "MayHaveActed", "ProviderError",
))  # fmt: skip
TURN_FAILED, NO_PROVIDER, NO_CREDITS = 1, 5, 6

EVENT_NAMES: dict[type[Event], str] = {
    TickBegins: "tick_started",
    TurnResumed: "turn_started",
    TurnCommitted: "turn_ended",
    TurnSkipped: "turn_ended",
    TickEnds: "tick_committed",
    ProblemFound: "problem",
    # The engine's own book-keeping:
    **dict.fromkeys((TickStarted, TickCommitted, TurnAnswered, TurnStopped), ""),
    **dict.fromkeys((ModelReserved, ModelStarted, EntriesExpired), ""),
}


def event_type_name(kind: type[Event]) -> str:
    """Return the type of an event class in `--json` output, or an empty string if omitted."""
    return EVENT_NAMES.get(kind, "" if kind.is_bookkeeping else kind.kind)


@dataclass
class StreamedLines:
    """Buffers streamed text of agents and prints complete lines."""

    _pending_text: dict[str, str] = field(default_factory=dict)
    _calls: dict[str, int] = field(default_factory=dict)

    def add_text(self, event: ModelWrote, name_width: int) -> None:
        """Add a piece of an answer; print full and ended lines."""
        if self._calls.get(event.agent) != event.call:  # another answer of the same turn
            self.flush(event.agent, name_width)
            self._calls[event.agent] = event.call
        *lines, remainder = (self._pending_text.get(event.agent, "") + event.text).split("\n")
        width = self._text_width(name_width)
        while len(remainder) > width:
            end = remainder.rfind(" ", 0, width) + 1 or width
            lines.append(remainder[:end])
            remainder = remainder[end:]
        self._pending_text[event.agent] = remainder
        self._print_lines(event.agent, lines, name_width)

    def flush(self, agent: str, name_width: int) -> None:
        """Print the remaining text of an agent's answer."""
        self._calls.pop(agent, None)
        self._print_lines(agent, [self._pending_text.pop(agent, "")], name_width)

    def _print_lines(self, agent: str, lines: list[str], name_width: int) -> None:
        for line in lines:
            if line.strip():
                text = one_line(line.rstrip(), max(len(line), self._text_width(name_width)))
                print_notice(f"  {agent.ljust(name_width)}  {style_text(f'| {text}', 'dim', sys.stderr)}")

    def _text_width(self, name_width: int) -> int:
        return max(_MIN_STREAM_WIDTH, get_terminal_width(sys.stderr) - name_width - 8)


@dataclass
class Narrator:
    """Prints the engine's events. `stop` is set when the reader of the output is gone."""

    base: OrgPath
    stop: threading.Event
    due: list[str] = field(default_factory=list)
    tick: int = 0
    is_output_closed: bool = False
    _progress: TurnProgress = field(default_factory=lambda: TurnProgress(is_shown=has_person() and sys.stderr.isatty()))
    _ended_before: set[str] = field(default_factory=set)  # turns that an interrupted attempt had ended
    _name_width: int = 0
    _streamed_lines: StreamedLines = field(default_factory=StreamedLines)

    def on_event(self, event: Event) -> None:
        """Handle one event; pass this method to `lemming.engine` as `notify`."""
        if isinstance(event, TickBegins):
            self.tick, self.due = event.tick, list(event.order)
            self._ended_before = set(self.due) - set(self.due if event.turns_left is None else event.turns_left)
            self._name_width = max(map(len, [*self.due, *event.broken]), default=0)
        try:
            if kind := event_type_name(type(event)):
                print_json(kind, event_to_json(event, self.tick))
            if not is_for_program():
                self._progress.clear()
                self._print_event(event)
                self._progress.on_event(event)
        except OutputClosed:
            self.is_output_closed = True
            self.stop.set()

    def _print_event(self, event: Event) -> None:
        match event:
            case TickBegins():
                if self._name_width:
                    print_notice(format_tick_start(event), style="bold")
                status_text = style_text("broken  ", "red", sys.stderr)
                for name, reason in event.broken.items():
                    print_warning(f"  {self._pad_name(name)}  {status_text}  {one_line(reason, 400)}", style="plain")
            case TurnEnded(report=turn):
                self._streamed_lines.flush(turn.agent, self._name_width)
                for line in self._format_turn(turn) if turn.status == "failed" or has_person() else ():
                    print_warning(line, style="plain")
            case Sleeping() | Woken():
                if line := format_sleep(event):
                    print_notice(f"  {style_text(line, 'dim', sys.stderr)}")
            case ModelWrote():
                self._streamed_lines.add_text(event, self._name_width)
            case ProblemFound(problem=problem):
                line = one_line(str(problem), 400)
                kind = "ignored" if problem.severity == "error" else problem.severity
                prefix = f"{self._pad_name(event.agent)}  " if event.agent else ""
                print_warning(f"  {prefix}{style_text(kind.ljust(8), 'yellow', sys.stderr)}  {line}", style="plain")
            case HistoryNotKept(problem=problem):
                print_warning(f"warning: the history commit failed: {one_line(problem.message, 400)}")
                print_warning(f"  fix: {problem.hint}", style="plain")
            case _ if line := one_line(event.as_line(), 600):
                if event.is_warning:
                    print_warning(f"  {style_text('warning ', 'yellow', sys.stderr)}  {line}", style="plain")
                else:
                    print_notice(f"  {style_text(line, 'dim', sys.stderr)}")

    def print_stopped_tick(self, report: TickReport) -> None:
        """Print a tick that was stopped before its end; the engine emits no event for a stop."""
        self._progress.clear()
        print_json("tick_stopped", report.as_json())
        ended = {turn.agent for turn in report.turns}
        pending_agents = ", ".join(name for name in self.due if name not in ended)
        print_notice(f"tick {report.tick} is unfinished ({pending_agents} to go); the next run continues it")

    def print_tick_summary(self, report: TickReport) -> None:
        """Print the summary of a tick."""
        print_notice(format_tick_summary(report, self.due))

    def _format_turn(self, turn: TurnReport) -> list[str]:
        name = self._pad_name(turn.agent)
        if turn.status in ("failed", "skipped"):
            status_text = style_text(f"{turn.status:<8}", _STYLES[turn.status], sys.stderr)
            return [f"  {name}  {status_text}  {one_line(turn.reason, 600)}"]
        prefix = "kept, " if turn.agent in self._ended_before else ""
        dollars = "" if turn.cost_usd is None else f", {format_usd(turn.cost_usd)}"
        cost = f"{prefix}{format_count(turn.credits, 'credit')}, {turn.duration_ms / 1000:.1f}s{dollars}"
        text_width = max(_MIN_TEXT_WIDTH, get_terminal_width(sys.stderr) - len(name) - len(cost) - 17)
        rows = [(entry["kind"], one_line(self._format_entry(turn.agent, entry), text_width)) for entry in turn.entries]
        if not rows:
            rows = [("", "no entries")]
        if other_effects := summarize_report(turn.as_json(), with_entries=False):
            rows.append(("", one_line(other_effects, 300)))
        lines = [f"  {name}  {kind:<8}  {text}" for kind, text in rows]
        return [f"{lines[0]}  {style_text(cost, 'dim', sys.stderr)}", *lines[1:]]

    def _pad_name(self, name: str) -> str:
        return name.ljust(self._name_width)

    def _format_entry(self, author: str, entry: EntryWritten) -> str:
        from lemming.kernel.messages import EntryName
        from lemming.libraries.outbox_files import read_entry

        match = paths.ENTRY_FILE.match(entry["file"].rsplit("/", 1)[-1])
        if match is None:
            return entry["file"]
        try:
            return describe_entry(read_entry(self.base, EntryName(to_int(match[1]), 0, match[2], author)).payload)
        except (ConfigError, FileNotFoundError):  # an entry past its retention, or removed by hand
            return entry["file"]


def event_to_json(event: Event, tick: int) -> dict[str, Any]:
    """Convert an event of a tick to the object printed by `--json`, without the name. Format: docs/cli.md."""
    match event:
        case TurnStarted() | TurnResumed():
            return {"agent": event.agent, "tick": tick}
        case TurnEnded(report=report):
            return {"tick": tick, **report.as_json()}
        case Record() | ModelAsked() | ModelWrote():
            return {"tick": tick, **event.as_output_json()}
        case _:
            return event.as_output_json()


def format_tick_start(event: TickBegins) -> str:
    """Return the line for the start of a tick, or for the continuation of an interrupted tick."""
    if event.turns_left is None:
        return f"tick {event.tick}"
    answers = format_count(event.answers_kept + event.answers_missing, "answer")
    kept_text = f"{event.answers_kept} of {answers} kept, not paid twice"
    answer_text = kept_text if event.answers_kept else "no answer was recorded"
    return f"tick {event.tick} continues: {answer_text}, {format_count(len(event.turns_left), 'turn')} left"


def format_sleep(event: Sleeping | Woken) -> str:
    """Return the line for an engine that sleeps or wakes up, or an empty string."""
    if isinstance(event, Sleeping):
        length = f"for {format_duration(event.seconds)}"
        if event.due:
            length += f", until tick {event.until_tick} ({one_line(', '.join(event.due), 60)})"
        return f"sleeping until something changes, at most {length}"
    parts = [f"woken: {one_line(', '.join(event.changed), 200)} changed"] if event.changed else []
    if missed_ticks := event.slept_through:
        first, last = event.next_tick - missed_ticks, event.next_tick - 1
        tick_text = f"tick {first}" if missed_ticks == 1 else f"ticks {first} to {last}"
        parts.append(f"slept through {tick_text}")
    return "; ".join(parts)


def format_tick_summary(report: TickReport, due: list[str]) -> str:
    """Return the line for the end of a tick."""
    totals, next_tick_text = report.totals, f"next is tick {report.tick + 1}"
    if not report.turns and not report.not_due:
        return f"tick {report.tick}: no agents yet (`lemming agents new NAME` creates one); {next_tick_text}"
    if not due:
        reasons = (turn.reason for turn in report.turns)
        if pause := next((reason for reason in reasons if reason.startswith("the organisation is paused")), ""):
            return f"tick {report.tick}: {one_line(pause, 300)}; {next_tick_text}"
        broken = f", {totals['failed']} broken (`lemming validate` says why)" if totals["failed"] else ""
        return f"tick {report.tick}: no agent is due{broken}; {next_tick_text}"
    parts = [f"{totals[status]} {status}" for status in ("done", "waiting", "failed") if totals[status]]
    idle = sum(turn.status == "skipped" and turn.agent in due for turn in report.turns)
    parts += [f"{idle} skipped"] if idle else []
    if totals["calls"]:
        parts += [format_count(totals["entries"], "entry", "entries"), format_count(totals["credits"], "credit")]
        parts += [format_usd(totals["cost_usd"])] if totals["cost_usd"] is not None else []
    return f"tick {report.tick} in {report.duration_ms / 1000:.1f}s: {', '.join(parts)}; {next_tick_text}"


def compute_exit_status(report: TickReport, due: list[str]) -> int:
    """Return the exit status of `run-once` for a committed tick. See docs/cli.md."""
    due_turns = [turn for turn in report.turns if turn.agent in due]
    turns_with_calls = [turn for turn in due_turns if turn.calls or is_provider_error(turn.error)]
    if turns_with_calls and all(not turn.calls and turn.error in UNUSABLE_PROVIDER_ERRORS for turn in turns_with_calls):
        return NO_PROVIDER
    if report.totals["failed"]:
        return TURN_FAILED
    busy_turns = [turn for turn in due_turns if turn.status != "skipped" or turn.error]  # the others had nothing to do
    if busy_turns and all(turn.error in ("OutOfCredits", "LimitReached") for turn in busy_turns):
        return NO_CREDITS
    return 0
