"""The calls of one turn as they are made: looked at, announced where they reach outside, and run."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from lemming.kernel.base.clock import elapsed_ms
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.deadlines import Deadline
from lemming.kernel.base.errors import DiskError
from lemming.kernel.files.effects import FileEffect, apply_effect, writes_first
from lemming.kernel.journal.file import Journal
from lemming.kernel.journal.records import ToolFinished, ToolStarted
from lemming.kernel.tick.ahead import CallDone, CallsAhead, Ready, may_run_beside
from lemming.kernel.tick.call_lookouts import CallLookouts
from lemming.kernel.tick.commits import Commits
from lemming.kernel.tick.recorded_answers import record_of
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.tools import EngineTool, ToolResult
from lemming.kernel.tools.context import ToolContext
from lemming.kernel.tools.workspace_secrets import is_left_by, without_secrets
from lemming.kernel.turn.parts import holder_of
from lemming.kernel.turn.places import Passed, Tracing, Trusted
from lemming.kernel.turn.prepared import call_lookouts_of
from lemming.kernel.turn.results import INTERRUPTED
from lemming.kernel.turn.values import TurnInputs

Staged = dict[str, FileEffect]


def _decides_further(result: ToolResult) -> bool:
    """Return whether a call that is not made may end the turn, or counts among those that people decide."""
    return result.outcome == "pending" or result.on_error == "stop"


class LiveCalls:
    """The calls of one turn that are made now. `started`, `finished`: what is recorded of its calls.

    `worked` counts those that have worked, by tool; `deadline` is the turn's.
    """

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        snapshot: Snapshot,
        inputs: TurnInputs,
        commits: Commits,
        tracing: Tracing | None,
        deadline: Deadline,
        started: dict[int, ToolStarted],
        finished: Mapping[int, ToolFinished],
    ) -> None:
        self._runtime, self._journal, self._commits = runtime, journal, commits
        self._snapshot, self._inputs, self._settings = snapshot, inputs, snapshot.config.org
        self._tracing, self._deadline, self._started, self._finished = tracing, deadline, started, finished
        self._toolset, self._name = snapshot.toolset, inputs.agent.name
        self._ahead: CallsAhead | None = None
        self.worked: defaultdict[str, int] = defaultdict(int)

    def begin(
        self, first: int, calls: Sequence[ToolCall], at: str, staged: Callable[[], Staged], used_up: float
    ) -> None:
        """Begin those of a reply's calls, from number `first` on, that may run at once."""
        at_once = self._settings.parallel if self._settings.executor != "serial" else 1
        if (self._ahead and first in self._ahead) or first in self._finished or at_once < 2:
            return
        side_by_side = self._side_by_side(calls)
        if len(side_by_side) < 2 or (self._tracing and self._lookouts):
            return  # or what one gives may decide about the next
        self._ahead = CallsAhead(self._runtime, at_once, self._make)
        for index, call in enumerate(side_by_side, first):
            ready = self._ready(index, call, at, staged(), used_up, is_ahead=True)
            self._ahead.add(index, call, ready)
            if ready.kept or (isinstance(ready, ToolResult) and _decides_further(ready)):
                break  # those after it are looked at once it is recorded
        self._ahead.start()

    def _make(self, index: int, ready: Ready) -> ToolResult:
        """Make a call that was looked at before, in the time that the turn has left by now."""
        if self._deadline.has_passed:
            return self._too_late(ready.call)
        return ready.with_what_was_said(self._runtime.use_tool(index, ready.call, ready.context))

    def _too_late(self, call: ToolCall) -> ToolResult:
        limit = self._inputs.agent.turn.deadline_s
        why = f"{call.tool} was not called: the turn's time, {limit:g} s, is over"
        return ToolResult(False, why, outcome="skipped", on_error="stop")

    def _side_by_side(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return the calls that may run at once, up to the first that may not, or is one of them again."""
        allowed = self._toolset.allowed(self._inputs.agent, self._settings)
        found: list[ToolCall] = []
        for call in calls:
            may_run = may_run_beside(allowed.get(call.tool), is_traced=self._tracing is not None)
            if not may_run or any((call.tool, call.args) == (it.tool, it.args) for it in found):
                break
            found.append(call)
        return found

    def record(self, index: int, call: ToolCall, at: str, staged: Staged, used_up: float) -> ToolFinished:
        """Call a tool, and return the record of what came of it."""
        done = self._ahead.take(index, call) if self._ahead else None
        if done is None:
            began = time.perf_counter()
            done = CallDone(self._run(index, call, at, staged, used_up), elapsed_ms(began))
        elif self._tracing and done.ready:
            self._tracing.look(done.ready.call, done.ready.tool, done.ready.context)
        result = self._tracing.recorded_result(done.result) if self._tracing else done.result
        return record_of(self._name, index, call, result, done.took_ms)

    def _run(self, index: int, call: ToolCall, at: str, staged: Staged, used_up: float) -> ToolResult:
        """Run a tool; one that reaches outside is announced, once what it may look at is on the disk."""
        ready = self._ready(index, call, at, staged, used_up)
        if isinstance(ready, ToolResult):
            return ready
        call, tool, context, _, kept = ready
        if tool is not None and not tool.repeatable:
            # It was announced and its end never recorded: it may have happened, so it is not made again.
            if index in self._started:
                if is_left_by(tool):
                    without_secrets(context)  # its files are there, whatever became of it
                return replace(INTERRUPTED, kept=self._started[index].kept)
            try:
                self._write(staged)
            except DiskError as error:
                if not error.concerns_one_file:
                    raise
                return ToolResult(False, f"{call.tool} was not run: {error}")
            more: dict[str, Any] = {"kept": kept} if kept else {}
            # Announced and flushed before it runs: from here on it is made at most once.
            announced = ToolStarted(agent=self._name, index=index, tool=call.tool, args=call.args, **more)
            self._started[index] = self._journal.append(announced)
            self._sync()
        with self._runtime.waiting():
            result = self._runtime.use_tool(index, call, context)
        return ready.with_what_was_said(result)

    def _ready(
        self,
        index: int,
        call: ToolCall,
        at: str,
        staged: Staged,
        used_up: float,
        *,
        is_ahead: bool = False,
    ) -> Ready | ToolResult:
        """Return a call as it is made, or the result that it has because it is not.

        `is_ahead`: others before it are not over; how far what it gives is trusted is seen once they are.
        """
        tracing = self._tracing
        tool = self._toolset.allowed(self._inputs.agent, self._settings).get(call.tool)
        if tool is not None and not isinstance(tool, EngineTool):  # it sees the disk only
            self._commits.write_held()
        context = self._context(index, at, staged, used_up)
        if self._deadline.has_passed:
            return self._too_late(call)
        passed: Passed | ToolResult = Passed(call)
        # What was announced had passed them: a second look could refuse what has happened.
        lookouts = self._lookouts if tool is not None and index not in self._started else None
        if lookouts and tool:
            trusted = Trusted(tracing.word, tracing.source, tracing.facts_of_args) if tracing else Trusted()
            make = partial(self._runtime.use_tool, index, context=context)
            look = partial(lookouts.before, call, tool, context, trusted, make)
            passed = self._runtime.may_call(self._name, index, call, look)
        if isinstance(passed, ToolResult):
            return passed
        call, said, kept = passed
        if tracing and not is_ahead:
            tracing.look(call, tool, context)
        if lookouts and tool:
            trusted = Trusted(tracing.word_after) if tracing else Trusted()
            context = replace(context, look=partial(lookouts.after, call, tool, context.base, trusted))
        return Ready(call, tool, context, said, kept)

    @cached_property
    def _lookouts(self) -> CallLookouts | None:
        """Those who look at calls; None where nobody does."""
        found = call_lookouts_of(self._snapshot, self._inputs)
        holder = partial(holder_of, self._snapshot, self._inputs, self._finished)
        return CallLookouts(found, holder) if found else None

    def _write(self, staged: Staged) -> None:
        """Write what a tool may look at, so that it is there, and stays there."""
        self._commits.write_held()
        self._sync()
        for effect in writes_first(staged.values()):
            apply_effect(self._runtime.base, effect, again=True, sync=self._settings.durability != "off")
            self._commits.memories.wrote(effect.place, effect.digest)

    def _sync(self) -> None:
        with self._runtime.waiting():
            self._journal.sync()

    def _context(self, index: int, at: str, staged: Staged, used_up: float) -> ToolContext:
        contents = {place: effect.content for place, effect in staged.items() if not effect.removes}
        removed = frozenset(place for place, effect in staged.items() if effect.removes)
        held = self._commits.held_files
        return ToolContext(
            agent=self._inputs.agent,
            org=self._runtime.org,
            settings=self._settings,
            now=at,
            staged={place: held[place] for place in held if place not in removed} | contents,
            removed=removed,
            used_up=used_up,
            worked=self.worked,
            tick=self._inputs.tick,
            began_at=self._snapshot.at,
            index=index,
            deadline=self._deadline,
            answered=self._inputs.task.answered if self._inputs.task else (),
        )
