"""Live progress of turns on the last line of a terminal: agents, elapsed time, tools, streamed text."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from lemming.commands.terminal import (
    OutputClosed,
    Style,
    get_terminal_width,
    one_line,
    print_notice,
    print_on_last_line,
    print_warning,
)
from lemming.kernel.base.blocking_deadline import Deadline, MonotonicClock
from lemming.kernel.journal.engine_events import Event, ModelAsked, ModelWrote
from lemming.kernel.journal.journal_records import (
    ModelReplied,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from lemming.queries.sentences import describe_call

_REDRAW_INTERVAL_S = 1.0
_MIN_REDRAW_INTERVAL_S = 0.1
_MAX_TOOLS_SHOWN = 3
_TAIL_CHARS = 60


@dataclass
class _Turn:
    started_at: float
    activity: str = ""
    limit: str = ""
    streamed_text: str = ""
    tools: list[str] = field(default_factory=list)

    def format_text(self, agent: str, current_time: float) -> str:
        omission = f"{len(self.tools)} tools, last " if len(self.tools) > _MAX_TOOLS_SHOWN else ""
        called = f"called {omission}{', '.join(self.tools[-_MAX_TOOLS_SHOWN:])}" if self.tools else ""
        if self.streamed_text:
            limit = f" ({self.limit})" if self.limit else ""
            parts = [called, f"writes{limit}: {_tail(self.streamed_text)}"]
        else:
            parts = [", ".join(filter(None, (self.activity, self.limit))), called]
        return f"{agent} {current_time - self.started_at:.0f} s: {'; '.join(filter(None, parts))}".rstrip(": ")


class TurnProgress:
    """Displays the running turns from the engine's events. `is_shown`: print other lines above the last line."""

    def __init__(self, *, is_shown: bool, clock: MonotonicClock = time.monotonic) -> None:
        self.is_shown, self._clock = is_shown, clock
        self._turns: dict[str, _Turn] = {}
        self._workers: tuple[Sequence[str], float] = ((), 0.0)
        self._redraw_pause = Deadline(0.0, clock=clock)
        self._lock = threading.RLock()

    def on_event(self, event: Event) -> None:
        """Handle an event of the engine."""
        with self._lock:
            current_time = self._clock()
            match event:
                case TurnStarted() | TurnResumed():
                    self._turns[event.agent] = _Turn(current_time)
                case TurnEnded():
                    self._turns.pop(event.report.agent, None)
                case ModelWrote():
                    if turn := self._turns.get(event.agent):
                        turn.streamed_text += event.text
                    if not self._redraw_pause.has_passed:  # words come faster than one reads
                        return
                case ModelAsked() | ModelReplied() | ToolStarted() | ToolFinished():
                    if turn := self._turns.get(event.agent):
                        _update_turn(turn, event)
                case _:
                    return
            self._draw()

    def set_workers(self, workers: Sequence[str]) -> None:
        """Set the agents that must act next; another engine may run their turns."""
        with self._lock:
            self._workers = workers, self._clock()

    def format_line(self) -> str:
        """Return the running work on a line, or an empty string if there is none."""
        with self._lock:
            current_time, (workers, since) = self._clock(), self._workers
            texts = [turn.format_text(agent, current_time) for agent, turn in sorted(self._turns.items())]
            if not texts and workers:
                texts = [f"{', '.join(workers)} {current_time - since:.0f} s"]
            return " | ".join(texts)

    def print_line(self, text: str, *, style: Style = "plain") -> None:
        """Print a separate line above the last line."""
        with self._lock:
            self.clear()
            (print_warning if style == "yellow" else print_notice)(text, style=style)
            self._draw()

    @contextmanager
    def display(self) -> Iterator[None]:
        """Keep the last line up to date while the block runs, if the output is a terminal."""
        if not self.is_shown:
            yield
            return
        stop = threading.Event()
        thread = threading.Thread(target=self._draw_progress, args=(stop,), name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.clear()

    def _draw_progress(self, stop: threading.Event) -> None:
        with suppress(OutputClosed):  # the command itself ends for that
            while not stop.wait(_REDRAW_INTERVAL_S):
                with self._lock:
                    self._draw()

    def _draw(self) -> None:
        self._redraw_pause = Deadline(_MIN_REDRAW_INTERVAL_S, clock=self._clock)
        if self.is_shown and (line := self.format_line()):
            print_on_last_line(f"  {one_line(line, get_terminal_width(sys.stderr) - 6)}  …")

    def clear(self) -> None:
        """Clear the last line."""
        if self.is_shown:
            print_on_last_line()


def _update_turn(turn: _Turn, event: ModelAsked | ModelReplied | ToolStarted | ToolFinished) -> None:
    turn.streamed_text = turn.limit = ""
    match event:
        case ModelAsked():
            turn.activity = "waiting for the model" + (f" (call {event.call + 1})" if event.call else "")
            turn.limit = f"{event.deadline_s:.0f} s limit" if math.isfinite(event.deadline_s) else ""
        case ModelReplied():
            turn.activity = "got an answer"
        case ToolStarted():
            args = event.args if isinstance(event.args, dict) else {}
            turn.activity = f"is about to {describe_call(event.tool, args)}"
        case ToolFinished():
            turn.activity, turn.tools = "", [*turn.tools, event.tool]


def _tail(text: str) -> str:
    """Return the last words of a text, on a single line.

    >>> _tail("The ferry sails at nine." * 9)
    '… at nine.The ferry sails at nine.The ferry sails at nine.'
    """
    if text.startswith("{"):  # the text within a reply that is JSON
        text = text.rpartition('"text"')[2].lstrip(': \n"')
    flat_text = " ".join(text.split())
    if len(flat_text) <= _TAIL_CHARS:
        return flat_text
    return f"… {flat_text[-_TAIL_CHARS:].partition(' ')[2]}"
