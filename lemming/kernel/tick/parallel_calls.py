"""Run the calls of a reply in parallel if their tools allow it.

Calls are checked, recorded and applied one after another in their order, as if made in sequence: only the run
time overlaps. No call with side effects runs here unless repeatable, so a call lost to a kill is made again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.base.clock import elapsed_ms
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.journal.turn_report import GateVerdict
from lemming.kernel.tick.turn_threads import get_pool
from lemming.kernel.tools import EngineTool, Tool, ToolResult
from lemming.kernel.tools.tool_context import ToolContext

if TYPE_CHECKING:
    from concurrent.futures import Future

    from lemming.kernel.tick.runtime import Runtime
    from lemming.kernel.turn.effect_chain import Steps

INTERRUPT_DELAY_S = 0.5
"""Longest delay of Ctrl-C: a waiting thread hears it only between two waits."""


@dataclass
class DecidedCall:
    """A call that may run, as decided: its context, the verdicts, and the approvals by capability.

    `steps`: the interceptors that await the result, the outermost last.
    """

    call: ToolCall
    tool: Tool | None
    context: ToolContext
    verdicts: Sequence[GateVerdict] = ()
    grants: Mapping[str, Any] = field(default_factory=dict)
    steps: Sequence[Steps] = ()


class CallOutcome(NamedTuple):
    """Outcome of a started call; `decided` is None for a blocked call."""

    result: ToolResult
    took_ms: int = 0
    decided: DecidedCall | None = None


def can_run_in_parallel(tool: Tool | None, *, is_traced: bool) -> bool:
    """Return True if a call can run in parallel with others. `is_traced`: labels must be known before a call can write."""
    if tool is None or not (tool.parallel and tool.repeatable):
        return False
    return not is_traced or tool.tool_class == "read" or isinstance(tool, EngineTool)


class ParallelCalls:
    """The calls of a turn started before their results are requested, by number."""

    def __init__(self, runtime: Runtime, max_parallel: int, call: Callable[[int, DecidedCall], ToolResult]) -> None:
        self._runtime, self._max_parallel, self._call = runtime, max_parallel, call
        self._started: dict[int, tuple[ToolCall, DecidedCall | ToolResult, Future[CallOutcome] | None]] = {}
        self._queue: deque[Callable[[], None]] = deque()

    def __contains__(self, index: int) -> bool:
        return index in self._started

    def add(self, index: int, call: ToolCall, decided: DecidedCall | ToolResult) -> None:
        """Add a call to start, or the result of a blocked call."""
        if isinstance(decided, ToolResult):
            self._started[index] = call, decided, None
            return
        from concurrent.futures import Future  # imports `logging`: only if calls run in parallel

        future: Future[CallOutcome] = Future()
        self._started[index] = call, decided, future
        self._queue.append(partial(self._run_call, index, decided, future))

    def start(self) -> None:
        """Start the added calls; start none if the system has no thread available."""
        try:
            for _ in range(min(self._max_parallel, len(self._queue))):
                get_pool().start(self._run_worker)
        except RuntimeError:
            # One started thread works through the whole queue; with none, the calls run one by one.
            if len(self._queue) == sum(future is not None for _, _, future in self._started.values()):
                self.cancel()

    def _run_worker(self) -> None:
        with suppress(IndexError):
            while True:
                run = self._queue.popleft()
                run()

    def _run_call(self, index: int, decided: DecidedCall, future: Future[CallOutcome]) -> None:
        began = time.perf_counter()
        try:
            result = self._call(index, decided)
            future.set_result(CallOutcome(result, elapsed_ms(began), decided))
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            future.set_exception(error)

    def take_outcome(self, index: int, call: ToolCall) -> CallOutcome | None:
        """Wait for a started call and return its outcome, or None for another call. Raises the tool's error.

        A call changed since the start is made again: a gate sees the judge's verdict first.
        """
        started_call, decided, future = self._started.pop(index, (None, None, None))
        if started_call != call:
            return None
        if isinstance(decided, ToolResult):
            return CallOutcome(decided)
        assert future is not None, "the call has started"
        with self._runtime.release_turn_lock():
            while True:
                try:
                    return future.result(INTERRUPT_DELAY_S)
                except TimeoutError:
                    if future.done():  # the tool itself raised it
                        raise

    def cancel(self) -> None:
        """Drop the started calls; queued calls do not start."""
        # Running calls end by themselves and their results are dropped: all of them are repeatable.
        self._queue.clear()
        self._started.clear()
