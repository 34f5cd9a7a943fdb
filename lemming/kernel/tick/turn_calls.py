"""Live calls of a turn: check each call, announce calls with side effects, and run them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.clock import elapsed_ms
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import DiskError
from lemming.kernel.files.effects import FileEffect, apply_effect, order_effects
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import ToolFinished, ToolStarted
from lemming.kernel.tick.parallel_calls import ApprovedCall, CallOutcome, ParallelCalls, can_run_in_parallel
from lemming.kernel.tick.recorded_answers import make_tool_record
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.tick.tool_call_guards import ToolCallGuards
from lemming.kernel.tick.turn_commits import Commits
from lemming.kernel.tools import EngineTool, ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.tools.workspace_secrets import can_leave_files, redact_workspace
from lemming.kernel.turn.context_provider_chain import find_call_guards
from lemming.kernel.turn.guards import AllowedCall, TaintTracker, TurnTrust
from lemming.kernel.turn.interceptor_chain import find_approval_broker
from lemming.kernel.turn.tool_results import INTERRUPTED
from lemming.kernel.turn.turn_values import TurnInputs

Staged = dict[str, FileEffect]


def _is_final_refusal(result: ToolResult) -> bool:
    """Return True if a blocked call can end the turn, or counts as an approval."""
    return result.outcome == "pending" or result.on_error == "stop"


class LiveCalls:
    """The live calls of a turn. `started` and `finished` hold the recorded calls.

    `successes` counts successful calls by tool; `deadline` is the deadline of the turn.
    """

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        snapshot: Snapshot,
        inputs: TurnInputs,
        commits: Commits,
        taint_tracker: TaintTracker | None,
        deadline: Deadline,
        started: dict[int, ToolStarted],
        finished: Mapping[int, ToolFinished],
    ) -> None:
        self._runtime, self._journal, self._commits = runtime, journal, commits
        self._snapshot, self._inputs, self._settings = snapshot, inputs, snapshot.config.org
        self._taint_tracker, self._deadline, self._started, self._finished = (
            taint_tracker,
            deadline,
            started,
            finished,
        )
        self._toolset, self._name = snapshot.toolset, inputs.agent.name
        self._parallel_calls: ParallelCalls | None = None
        self.successes: defaultdict[str, int] = defaultdict(int)

    def start_calls(
        self, first: int, calls: Sequence[ToolCall], at: str, staged: Callable[[], Staged], used_up: float
    ) -> None:
        """Start the calls of a reply, numbered from `first`, that can run in parallel."""
        max_parallel = self._settings.parallel_limit if self._settings.executor != "serial" else 1
        if (self._parallel_calls and first in self._parallel_calls) or first in self._finished or max_parallel < 2:
            return
        parallel_calls = self._parallel_prefix(calls)
        if len(parallel_calls) < 2 or (self._taint_tracker and self._call_guards):
            return  # else one result may decide about the next call
        self._parallel_calls = ParallelCalls(self._runtime, max_parallel, self._run_checked)
        for index, call in enumerate(parallel_calls, first):
            ready = self._prepare_call(index, call, at, staged(), used_up, is_ahead=True)
            self._parallel_calls.add(index, call, ready)
            if ready.state or (isinstance(ready, ToolResult) and _is_final_refusal(ready)):
                break  # later calls are checked once it is recorded
        self._parallel_calls.start()

    def _run_checked(self, index: int, ready: ApprovedCall) -> ToolResult:
        """Run a call that was checked before, in the time left for the turn."""
        if self._deadline.has_passed:
            return self._deadline_result(ready.call)
        return ready.add_verdicts(self._runtime.call_tool(index, ready.call, ready.context))

    def _deadline_result(self, call: ToolCall) -> ToolResult:
        limit = self._inputs.agent.turn.deadline_s
        message = f"{call.tool} was not called: the turn's time, {limit:g} s, is over"
        return ToolResult(False, message, outcome="skipped", on_error="stop")

    def _parallel_prefix(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return the leading calls that can run in parallel.

        Stops at the first call that cannot, or repeats an earlier call.
        """
        allowed = self._toolset.allowed_tools(self._inputs.agent, self._settings)
        parallel_calls: list[ToolCall] = []
        for call in calls:
            can_run = can_run_in_parallel(allowed.get(call.tool), is_traced=self._taint_tracker is not None)
            if not can_run or any((call.tool, call.args) == (earlier.tool, earlier.args) for earlier in parallel_calls):
                break
            parallel_calls.append(call)
        return parallel_calls

    def call_and_record(self, index: int, call: ToolCall, at: str, staged: Staged, used_up: float) -> ToolFinished:
        """Call a tool, and return the record of the outcome."""
        outcome = self._parallel_calls.take_outcome(index, call) if self._parallel_calls else None
        if outcome is None:
            began = time.perf_counter()
            outcome = CallOutcome(self._announce_and_run(index, call, at, staged, used_up), elapsed_ms(began))
        elif self._taint_tracker and outcome.ready:
            self._taint_tracker.inspect_call(outcome.ready.call, outcome.ready.tool, outcome.ready.context)
        result = self._taint_tracker.label_result(outcome.result) if self._taint_tracker else outcome.result
        return make_tool_record(self._name, index, call, result, outcome.took_ms)

    def _announce_and_run(self, index: int, call: ToolCall, at: str, staged: Staged, used_up: float) -> ToolResult:
        """Run a tool. Before a tool with side effects, write the staged files and announce the call."""
        ready = self._prepare_call(index, call, at, staged, used_up)
        if isinstance(ready, ToolResult):
            return ready
        call, tool, context, _, state = ready
        if tool is not None and not tool.repeatable:
            # It was announced and its end never recorded: it may have happened, so it is not made again.
            if index in self._started:
                if can_leave_files(tool):
                    redact_workspace(context)  # its files may exist, whatever its outcome
                return replace(INTERRUPTED, state=self._started[index].kept)
            try:
                self._write_staged(staged)
            except DiskError as error:
                if not error.concerns_one_file:
                    raise
                return ToolResult(False, f"{call.tool} was not run: {error}")
            optional_fields: dict[str, Any] = {"kept": state} if state else {}
            # Announced and flushed before it runs: from here on it is made at most once.
            announced = ToolStarted(agent=self._name, index=index, tool=call.tool, args=call.args, **optional_fields)
            self._started[index] = self._journal.append(announced)
            self._sync()
        with self._runtime.release_turn_lock():
            result = self._runtime.call_tool(index, call, context)
        return ready.add_verdicts(result)

    def _prepare_call(
        self, index: int, call: ToolCall, at: str, staged: Staged, used_up: float, *, is_ahead: bool = False
    ) -> ApprovedCall | ToolResult:
        """Return the approved call, or the result of a blocked call.

        `is_ahead`: earlier calls are still running; the trust of the results is checked after them.
        """
        taint_tracker = self._taint_tracker
        tool = self._toolset.allowed_tools(self._inputs.agent, self._settings).get(call.tool)
        if tool is not None and not isinstance(tool, EngineTool):  # its code sees only the disk
            self._commits.write_deferred()
        context = self._make_context(index, at, staged, used_up)
        if self._deadline.has_passed:
            return self._deadline_result(call)
        allowed: AllowedCall | ToolResult = AllowedCall(call)
        # An announced call has passed the gates: a second check could refuse what has happened.
        guards = self._call_guards if tool is not None and index not in self._started else None
        if guards and tool:
            turn_trust = (
                TurnTrust(taint_tracker.label, taint_tracker.source, taint_tracker.argument_labels)
                if taint_tracker
                else TurnTrust()
            )
            make = partial(self._runtime.call_tool, index, context=context)
            check = partial(guards.before_call, call, tool, context, turn_trust, make)
            allowed = self._runtime.before_tool_call(self._name, index, call, check)
        if isinstance(allowed, ToolResult):
            return allowed
        call, verdicts, state = allowed
        if taint_tracker and not is_ahead:
            taint_tracker.inspect_call(call, tool, context)
        if guards and tool:
            turn_trust = TurnTrust(taint_tracker.next_label) if taint_tracker else TurnTrust()
            context = replace(context, check_result=partial(guards.after_call, call, tool, context.base, turn_trust))
        return ApprovedCall(call, tool, context, verdicts, state)

    @cached_property
    def _call_guards(self) -> ToolCallGuards | None:
        """The tool-call guards of the turn, or None without guards."""
        guards = find_call_guards(self._snapshot, self._inputs)
        get_broker = partial(find_approval_broker, self._snapshot, self._inputs, self._finished)
        return ToolCallGuards(guards, get_broker) if guards else None

    def _write_staged(self, staged: Staged) -> None:
        """Write the files a tool may read, so they are on disk and stay."""
        self._commits.write_deferred()
        self._sync()
        for effect in order_effects(staged.values()):
            apply_effect(self._runtime.base, effect, is_replay=True, sync=self._settings.durability != "off")
            self._commits.seen_memories.record_write(effect.path_key, effect.digest)

    def _sync(self) -> None:
        with self._runtime.release_turn_lock():
            self._journal.sync()

    def _make_context(self, index: int, at: str, staged: Staged, used_up: float) -> ToolContext:
        contents = {path: effect.content for path, effect in staged.items() if not effect.removes}
        removed = frozenset(path for path, effect in staged.items() if effect.removes)
        unwritten = self._commits.unwritten_files
        return ToolContext(
            agent=self._inputs.agent,
            org=self._runtime.org,
            settings=self._settings,
            now=at,
            staged={path: unwritten[path] for path in unwritten if path not in removed} | contents,
            removed=removed,
            used_up=used_up,
            successes=self.successes,
            tick=self._inputs.tick,
            began_at=self._snapshot.at,
            index=index,
            deadline=self._deadline,
            answered=self._inputs.task.answered_calls if self._inputs.task else (),
        )
