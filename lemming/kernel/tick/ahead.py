"""Calls of one reply that run at once, where their tools say that they may.

They are looked at, recorded and acted on one after the other, in their order, as if they had been made so:
only the time in which they run is shared. None of them reaches outside without being repeatable, so whatever
a kill takes along is made again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.base.clock import elapsed_ms
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.tick.executors.pool import pool
from lemming.kernel.tools import EngineTool, Tool, ToolResult
from lemming.kernel.tools.context import ToolContext

if TYPE_CHECKING:
    from concurrent.futures import Future

    from lemming.kernel.tick.runtime import Runtime

HEARD_WITHIN_S = 0.5
"""So late may Ctrl-C be heard by the thread that waits for a result."""


class Ready(NamedTuple):
    """A call as it is made: `said` by gates, `kept` with it by capabilities."""

    call: ToolCall
    tool: Tool | None
    context: ToolContext
    said: Sequence[GateVerdict] = ()
    kept: Mapping[str, dict[str, Any]] = MappingProxyType({})

    def with_what_was_said(self, result: ToolResult) -> ToolResult:
        """Return a result of the call with what was said of it before."""
        result = replace(result, verdicts=(*self.said, *result.verdicts)) if self.said else result
        return replace(result, kept=self.kept) if self.kept else result


class CallDone(NamedTuple):
    """What a call gave that was begun; `ready` is None for one that was not made."""

    result: ToolResult
    took_ms: int = 0
    ready: Ready | None = None


def may_run_beside(tool: Tool | None, *, is_traced: bool) -> bool:
    """Return whether a call may run while others do.

    `is_traced`: it is tracked how far what it gives is trusted, which has to be marked before it can write.
    """
    if tool is None or not (tool.parallel and tool.repeatable):
        return False
    return not is_traced or tool.tool_class == "read" or isinstance(tool, EngineTool)


class CallsAhead:
    """The calls of a turn that were begun before their results are asked for, by their number."""

    def __init__(self, runtime: Runtime, at_once: int, call: Callable[[int, Ready], ToolResult]) -> None:
        self._runtime, self._at_once, self._call = runtime, at_once, call
        self._begun: dict[int, tuple[ToolCall, Ready | ToolResult, Future[CallDone] | None]] = {}
        self._to_do: deque[Callable[[], None]] = deque()

    def __contains__(self, index: int) -> bool:
        return index in self._begun

    def add(self, index: int, call: ToolCall, ready: Ready | ToolResult) -> None:
        """Add a call, or the result that it has because it is not made."""
        if isinstance(ready, ToolResult):
            self._begun[index] = call, ready, None
            return
        from concurrent.futures import Future  # brings `logging` along: only where calls run at once

        done: Future[CallDone] = Future()
        self._begun[index] = call, ready, done
        self._to_do.append(partial(self._make, index, ready, done))

    def start(self) -> None:
        """Have those that were added begin; where the system has no thread left, none has."""
        try:
            for _ in range(min(self._at_once, len(self._to_do))):
                pool().start(self._work)
        except RuntimeError:
            # One thread that did begin works through the rest; with none, the calls are made one by one as
            # usual.
            if len(self._to_do) == sum(future is not None for _, _, future in self._begun.values()):
                self.let_go()

    def _work(self) -> None:
        while True:
            try:
                make = self._to_do.popleft()
            except IndexError:
                return
            make()

    def _make(self, index: int, ready: Ready, done: Future[CallDone]) -> None:
        began = time.perf_counter()
        try:
            result = self._call(index, ready)
            done.set_result(CallDone(result, elapsed_ms(began), ready))
        except BaseException as error:  # noqa: BLE001 - carried over to the thread that waits
            done.set_exception(error)

    def take(self, index: int, call: ToolCall) -> CallDone | None:
        """Return what a call gave, once it has; raise what its tool does. None: it was not begun.

        One that is another call by now is made anew: a gate is told what a judge says of it.
        """
        begun, ready, done = self._begun.pop(index, (None, None, None))
        if begun != call:
            return None
        if isinstance(ready, ToolResult):
            return CallDone(ready)
        assert done is not None, "it was begun"
        with self._runtime.waiting():
            while True:
                try:
                    return done.result(HEARD_WITHIN_S)
                except TimeoutError:
                    if done.done():  # it was the tool's own
                        raise

    def let_go(self) -> None:
        """Forget what was begun: what has not started yet does not."""
        # Those under way end by themselves and nobody asks for what they gave: all of them may be repeated.
        self._to_do.clear()
        self._begun.clear()
