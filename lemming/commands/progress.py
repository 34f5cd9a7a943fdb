"""What turns do, on the last line of a terminal: who, for how long, which tools, the words as they come."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from lemming.commands.screen import ReaderGone, Style, one_line, tell, tell_on_last_line, width_of
from lemming.kernel.base.deadlines import Deadline, MonotonicClock
from lemming.kernel.journal.events import Event, ModelAsked, ModelWrote
from lemming.kernel.journal.records import (
    ModelReplied,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)

_DRAWN_EVERY_S = 1.0
_DRAWN_AT_MOST_EVERY_S = 0.1
_TOOLS_SHOWN = 3
_WORDS_SHOWN_CHARS = 60


@dataclass
class _Turn:
    began: float
    doing: str = ""
    limit: str = ""
    words: str = ""
    tools: list[str] = field(default_factory=list)

    def text(self, agent: str, now: float) -> str:
        called = ", ".join(self.tools[-_TOOLS_SHOWN:])
        if called:
            many = f"{len(self.tools)} tools, last " if len(self.tools) > _TOOLS_SHOWN else ""
            called = f"called {many}{called}"
        if self.words:
            limit = f" ({self.limit})" if self.limit else ""
            parts = filter(None, (called, f"writes{limit}: {_tail(self.words)}"))
        else:
            doing = f"{self.doing}, {self.limit}" if self.limit else self.doing
            parts = filter(None, (doing, called))
        return f"{agent} {now - self.began:.0f} s: {'; '.join(parts)}".rstrip(": ")


class TurnProgress:
    """Hears the engine's events and says what the turns under way do.

    `is_shown`: it has the last line of the terminal, which each other line has to leave alone.
    """

    def __init__(self, *, is_shown: bool, clock: MonotonicClock = time.monotonic) -> None:
        self.is_shown, self._clock = is_shown, clock
        self._turns: dict[str, _Turn] = {}
        self._holders: tuple[Sequence[str], float] = ((), 0.0)
        self._pause = Deadline(0.0, clock=clock)
        self._lock = threading.RLock()

    def hear(self, event: Event) -> None:
        """Take an event of the engine."""
        with self._lock:
            now = self._clock()
            match event:
                case TurnStarted() | TurnResumed():
                    self._turns[event.agent] = _Turn(now)
                case TurnEnded():
                    self._turns.pop(event.report.agent, None)
                case ModelWrote():
                    if turn := self._turns.get(event.agent):
                        turn.words += event.text
                    if not self._pause.has_passed:  # words come faster than one reads
                        return
                case ModelAsked() | ModelReplied() | ToolStarted() | ToolFinished():
                    if turn := self._turns.get(event.agent):
                        _note(turn, event)
                case _:
                    return
            self._draw()

    def at_work(self, holders: Sequence[str]) -> None:
        """Note who is to do something next, whose turns another engine may take."""
        with self._lock:
            self._holders = holders, self._clock()

    def line(self) -> str:
        """Return the work under way in one line; empty if there is none."""
        with self._lock:
            now, (holders, since) = self._clock(), self._holders
            texts = [turn.text(agent, now) for agent, turn in sorted(self._turns.items())]
            if not texts and holders:
                texts = [f"{', '.join(holders)} {now - since:.0f} s"]
            return " | ".join(texts)

    def tell(self, text: str, *, style: Style = "plain") -> None:
        """Print a line of its own, above the last line."""
        with self._lock:
            self._clear()
            tell(text, style=style)
            self._draw()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keep the last line up to date while the block runs, where a person sees it."""
        if not self.is_shown:
            yield
            return
        over = threading.Event()
        thread = threading.Thread(target=self._draw_progress, args=(over,), name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self._clear()

    def _draw_progress(self, over: threading.Event) -> None:
        with suppress(ReaderGone):  # the command itself ends for that
            while not over.wait(_DRAWN_EVERY_S):
                with self._lock:
                    self._draw()

    def _draw(self) -> None:
        self._pause = Deadline(_DRAWN_AT_MOST_EVERY_S, clock=self._clock)
        if self.is_shown and (line := self.line()):
            tell_on_last_line(f"  {one_line(line, width_of(sys.stderr) - 6)}  …")

    def _clear(self) -> None:
        if self.is_shown:
            tell_on_last_line()


def _note(turn: _Turn, event: ModelAsked | ModelReplied | ToolStarted | ToolFinished) -> None:
    turn.words = turn.limit = ""
    match event:
        case ModelAsked():
            turn.doing = "waits for the model" + (f" (call {event.call + 1})" if event.call else "")
            turn.limit = f"{event.deadline_s:.0f} s at most" if math.isfinite(event.deadline_s) else ""
        case ModelReplied():
            turn.doing = "has an answer"
        case ToolStarted():
            turn.doing = f"runs {event.tool}"
        case ToolFinished():
            turn.doing, turn.tools = "", [*turn.tools, event.tool]


def _tail(text: str) -> str:
    """Return the last words of a text, in one line.

    >>> _tail("The ferry sails at nine." * 9)
    '… at nine.The ferry sails at nine.The ferry sails at nine.'
    """
    if text.startswith("{"):  # the text within a reply that is JSON
        text = text.rpartition('"text"')[2].lstrip(': \n"')
    words = " ".join(text.split())
    if len(words) <= _WORDS_SHOWN_CHARS:
        return words
    return f"… {words[-_WORDS_SHOWN_CHARS:].partition(' ')[2]}"
