"""Live calls of a turn: check each call, announce calls with side effects, and run them. Checks are recorded too."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.clock import elapsed_ms
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.redaction.secrets import redact_json, redact_values
from lemming.kernel.files.file_effects import FileEffect, apply_effect, order_effects
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import GateAsked, ToolFinished, ToolStarted
from lemming.kernel.journal.turn_report import GateVerdict
from lemming.kernel.tick.error_boundary import EngineStopped
from lemming.kernel.tick.live_chain import LiveChain, to_result
from lemming.kernel.tick.parallel_calls import CallOutcome, DecidedCall, ParallelCalls, can_run_in_parallel
from lemming.kernel.tick.recorded_answers import CallView, make_tool_record, restore_finding
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.turn_commits import Commits
from lemming.kernel.tick_context import TickContext
from lemming.kernel.tools import EngineTool, Tool, ToolResult
from lemming.kernel.tools.tool_call import can_leave_files, redact_workspace
from lemming.kernel.tools.tool_context import ToolContext
from lemming.kernel.turn.effect_chain import find_approver
from lemming.kernel.turn.live_phase import CheckResult, LivePhase, RunTool, StartTool
from lemming.kernel.turn.tool_results import INTERRUPTED
from lemming.kernel.turn.turn_effects import Allowed, AskPerson, Outcome, Rejected
from lemming.kernel.turn.turn_values import CheckFinding, CheckFunctionError, CheckRun


def _dispatch_questions(chain: LiveChain, effect: RunTool, questions: Iterable[AskPerson]) -> Iterator[Outcome]:
    """Yield the outcomes of the questions about a call. A plugin's questions need a person each."""
    approvers: defaultdict[str, list[str]] = defaultdict(list)
    for question in questions:
        besides = tuple(approvers[question.asker]) if question.asker else ()
        outcome = chain.dispatch(replace(question, subject=effect, besides=besides))
        if isinstance(outcome, Allowed):
            approvers[question.asker] += find_approver(outcome)
        yield outcome


def _is_approval(outcome: Outcome) -> bool:
    return isinstance(outcome, Allowed) and not isinstance(outcome.answer, ToolResult)


def _add_verdicts(result: ToolResult, verdicts: Sequence[GateVerdict]) -> ToolResult:
    """Return the result of a call with the verdicts from before the call."""
    return replace(result, verdicts=(*verdicts, *result.verdicts)) if verdicts else result


class LiveCalls:
    """The live calls of a turn. `started`: recorded announcements, by the number of the call in the tick.

    `successes` counts successful calls by tool; `deadline` is the deadline of the turn.
    """

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        tick_context: TickContext,
        phase: LivePhase,
        commits: Commits,
        deadline: Deadline,
        started: dict[int, ToolStarted],
        chain: LiveChain | None,
    ) -> None:
        self._runtime, self._journal, self._commits = runtime, journal, commits
        self._tick_context, self._inputs, self._settings = tick_context, phase.inputs, tick_context.config.org
        self._phase, self._deadline, self._started, self._chain = phase, deadline, started, chain
        self._finished = phase.results
        self._toolset, self._name = tick_context.toolset, phase.inputs.agent.name
        self._parallel_calls: ParallelCalls | None = None
        self.successes: defaultdict[str, int] = defaultdict(int)

    def start_calls(self, first: int, calls: Sequence[ToolCall], view: Callable[[int], CallView]) -> None:
        """Start the calls of a reply, numbered from `first`, that can run in parallel.

        All are decided in order, run, and finished in order. `view` returns the view of a call, by its number.
        """
        max_parallel = self._settings.parallel_limit if self._settings.executor != "serial" else 1
        if (self._parallel_calls and first in self._parallel_calls) or first in self._finished or max_parallel < 2:
            return
        parallel_calls = self._parallel_prefix(calls)
        if len(parallel_calls) < 2:
            return
        if self._chain is not None and RunTool in self._chain.handled:
            tool = self._find_tool(parallel_calls[0])
            assert tool, "`_parallel_prefix` has found the tool"
            effect = RunTool(call=parallel_calls[0], tool=tool, context=self._make_context(view(first)))
            if self._chain.decides_by_results(effect):
                return

        def run_decided(index: int, decided: DecidedCall) -> ToolResult:
            if self._deadline.has_passed:
                return self._deadline_result(decided.call)
            return self._runtime.call_tool(index, decided.call, decided.context)

        self._parallel_calls = ParallelCalls(self._runtime, max_parallel, run_decided)
        for index, call in enumerate(parallel_calls, first):
            decided = self._decide(call, view(index))
            self._parallel_calls.add(index, call, decided)
            # A call that ends the turn, or counts as an approval: later calls are decided once it is recorded.
            if isinstance(decided, DecidedCall):
                if decided.grants:
                    break
            elif decided.outcome == "pending" or decided.on_error == "stop":
                break
        self._parallel_calls.start()

    def _find_tool(self, call: ToolCall) -> Tool | None:
        """Return the tool of a call, or None if the agent may not call it."""
        return self._toolset.allowed_tools(self._inputs.agent, self._settings).get(call.tool)

    def _deadline_result(self, call: ToolCall) -> ToolResult:
        limit = self._inputs.agent.turn.deadline_s
        message = f"{call.tool} was not called: the turn's time, {limit:g} s, is over"
        return ToolResult(False, message, outcome="skipped", on_error="stop")

    def _parallel_prefix(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return the calls that can run in parallel, up to the first that cannot or repeats an earlier call."""
        allowed = self._toolset.allowed_tools(self._inputs.agent, self._settings)
        is_traced = self._chain is not None and StartTool in self._chain.handled
        parallel_calls: list[ToolCall] = []
        for call in calls:
            can_run = can_run_in_parallel(allowed.get(call.tool), is_traced=is_traced)
            if not can_run or any((call.tool, call.args) == (earlier.tool, earlier.args) for earlier in parallel_calls):
                break
            parallel_calls.append(call)
        return parallel_calls

    def call_and_record(
        self, call: ToolCall, view: CallView, questions: Sequence[AskPerson], approved: int
    ) -> ToolFinished:
        """Call a tool, and return the record. Persons must approve `questions` first; `approved` of them already are."""
        index, outcome = view.number, None
        if self._parallel_calls and not questions:
            outcome = self._parallel_calls.take_outcome(index, call)
        if outcome is None:
            began = time.perf_counter()
            result = self._announce_and_run(call, view, questions)
            outcome = CallOutcome(result, elapsed_ms(began))
        elif outcome.decided:
            outcome = outcome._replace(result=self._finish(outcome.decided, outcome.result))
        return make_tool_record(self._name, index, call, outcome.result, outcome.took_ms, approved)

    def _announce_and_run(self, call: ToolCall, view: CallView, questions: Sequence[AskPerson]) -> ToolResult:
        """Run a tool. Before a tool with side effects, write the staged files and announce the call."""
        index = view.number
        tool = self._find_tool(call)
        wait = self._phase.tick.wait_for_earlier if self._phase.tick else None
        if tool is not None and tool.runs_in_order and wait:
            with self._runtime.release_turn_lock():
                has_ended = wait(self._name)
            if not has_ended:
                raise EngineStopped
        decided = self._decide(call, view, questions)
        if isinstance(decided, ToolResult):
            return decided
        call, tool, context = decided.call, decided.tool, decided.context
        if tool is not None and not tool.repeatable:
            # It was announced and its end never recorded: it may have happened, so it is not made again.
            if index in self._started:
                if can_leave_files(tool):
                    redact_workspace(context)  # its files may exist, whatever its outcome
                return self._finish(decided, replace(INTERRUPTED, state=self._started[index].kept))
            try:
                self._write_staged(view.staged)
            except DiskError as error:
                if not error.concerns_one_file:
                    raise
                return self._finish(decided, ToolResult(False, f"{call.tool} was not run: {error}"), is_made=False)
            optional_fields: dict[str, Any] = {"kept": decided.grants} if decided.grants else {}
            # Announced and flushed before it runs: from here on it is made at most once.
            announced = ToolStarted(agent=self._name, index=index, tool=call.tool, args=call.args, **optional_fields)
            self._started[index] = self._journal.append(announced)
            self._sync()
        with self._runtime.release_turn_lock():
            result = self._runtime.call_tool(index, call, context)
        return self._finish(decided, result)

    def _decide(self, call: ToolCall, view: CallView, questions: Sequence[AskPerson] = ()) -> DecidedCall | ToolResult:
        """Take a call through its interceptors. Return the call that may run, or the result of a blocked call."""
        index = view.number
        tool = self._find_tool(call)
        if tool is not None and not isinstance(tool, EngineTool):  # its code sees only the disk
            self._commits.write_deferred()
        context = self._make_context(view)
        if self._deadline.has_passed:
            return self._deadline_result(call)
        decided = DecidedCall(call, tool, context)
        # An announced call has passed the interceptors: a second decision could refuse what has happened.
        if tool is not None and index not in self._started:
            recorded = self._runtime.recorded_decision(self._name, index, call)
            if isinstance(recorded, ToolResult):
                return recorded
            if recorded is not None:
                decided.call = recorded
            elif refusal := self._pass_interceptors(decided, tool, questions):
                return refusal
        chain = self._chain
        if chain is None:
            return decided
        if tool and CheckResult in chain.handled:
            check = partial(self._check_result, chain, decided.call, tool, context)
            decided.context = replace(context, check_result=check)
        if StartTool in chain.handled:
            agreed, steps = chain.start(StartTool(call=decided.call, tool=tool, context=context))
            if isinstance(agreed, Outcome):
                return to_result(agreed)
            decided.steps = (steps, *decided.steps)
        return decided

    def is_approved(self, call: ToolCall, view: CallView, questions: Sequence[AskPerson]) -> bool:
        """Return True if persons have approved a call, each question with an approval of its own.

        A call that would fail anyway is no question to a person.
        """
        tool = self._find_tool(call)
        if tool is None or view.number in self._started:
            return True
        effect = RunTool(call=call, tool=tool, context=self._make_context(view))
        self._phase.verdicts, self._phase.grants = [], {}
        chain = self._chain or LiveChain(self._phase, ())
        return all(_is_approval(outcome) for outcome in _dispatch_questions(chain, effect, questions))

    def _pass_interceptors(self, decided: DecidedCall, tool: Tool, questions: Sequence[AskPerson]) -> ToolResult | None:
        """Take a call through the interceptors of `RunTool`; return the result of a blocked call, or None."""
        chain = self._chain or (LiveChain(self._phase, ()) if questions else None)
        if chain is None or not (questions or RunTool in chain.handled):
            return None
        effect = RunTool(call=decided.call, tool=tool, context=decided.context)
        self._phase.verdicts, self._phase.grants = [], {}
        for outcome in _dispatch_questions(chain, effect, questions):
            if not _is_approval(outcome):
                return to_result(outcome)
        agreed, steps = chain.start(effect)
        verdicts = tuple(self._phase.verdicts)
        if isinstance(agreed, Outcome):
            return _add_verdicts(to_result(agreed), verdicts)
        decided.call, decided.steps, decided.grants = agreed.call, (steps,), self._phase.grants
        # What the interceptors asked about has been approved.
        decided.verdicts = tuple(verdict for verdict in verdicts if verdict.then != "ask")
        return None

    def _finish(self, decided: DecidedCall, result: ToolResult, *, is_made: bool = True) -> ToolResult:
        """Pass the result of a call back through its interceptors, and add the verdicts and approvals."""
        self._phase.verdicts = []
        for steps in decided.steps:
            assert self._chain, "the steps come from the chain"
            result = to_result(self._chain.finish(steps, result))
        if not is_made:
            return result
        result = _add_verdicts(result, decided.verdicts)
        if self._phase.verdicts:
            result = replace(result, verdicts=(*result.verdicts, *self._phase.verdicts))
        return replace(result, state=decided.grants) if decided.grants else result

    @staticmethod
    def _check_result(
        chain: LiveChain, call: ToolCall, tool: Tool, context: ToolContext, result: ToolResult
    ) -> ToolResult:
        """Return the whole result of a call in the form allowed to be shown."""
        outcome = chain.dispatch(CheckResult(call=call, tool=tool, context=context, result=result))
        if isinstance(outcome, Allowed):
            checked: ToolResult = outcome.answer
            return checked
        reason, is_final = (outcome.reason, outcome.is_final) if isinstance(outcome, Rejected) else ("", False)
        return replace(
            result,
            output=f"[withheld: {reason}]",
            on_error="stop" if is_final else result.on_error,
            success=result.success and not is_final,
        )

    def run_check(self, name: str, run: CheckRun, view: CallView, *, needs_files: bool) -> CheckFinding | None:
        """Return the finding of a check of the turn, recorded or live. Raises its error."""
        if view.number not in self._checks:
            record = self._run_live_check(name, run, view, needs_files=needs_files)
            if needs_files and self._runtime.stop.is_set():  # a stop ends the program: its result says nothing
                raise EngineStopped
            self._checks[view.number] = self._journal.append(record)
        return restore_finding(self._checks[view.number])

    @cached_property
    def _checks(self) -> dict[int, GateAsked]:
        records = self._journal.find_agent_records(self._name, self._inputs.turn)
        return {record.number: record for record in records if isinstance(record, GateAsked)}

    def _run_live_check(self, name: str, run: CheckRun, view: CallView, *, needs_files: bool) -> GateAsked:
        """Run a check and return the record of its finding or error."""
        fields: dict[str, Any] = {"agent": self._name, "number": view.number, "function": name}
        fields |= {"wrote": True} if needs_files else {}
        ask = partial(self._run_on_files, run, view) if needs_files else partial(run, self._make_context(view))
        try:
            finding = self._runtime.call_function(self._name, view.number, name, ask)
        except CheckFunctionError as error:
            return GateAsked(**fields, error=redact_values(str(error)))
        return GateAsked(**fields, found=redact_json(finding._asdict()) if finding else None)

    def _run_on_files(self, run: CheckRun, view: CallView) -> CheckFinding | None:
        """Write the staged files, and return the finding of a program about them."""
        self._write_staged(view.staged)
        context = replace(self._make_context(view), stop=self._runtime.stop)
        with self._runtime.release_turn_lock():
            finding = run(context)
        redact_workspace(context)
        return finding

    def _write_staged(self, staged: Mapping[str, FileEffect]) -> None:
        """Write the files a tool may read, so they are on disk and stay."""
        self._commits.write_deferred()
        self._sync()
        for effect in order_effects(staged.values()):
            apply_effect(self._runtime.base, effect, is_replay=True, sync=self._settings.durability != "off")
            self._commits.seen_memories.record_write(effect.path_key, effect.digest)

    def _sync(self) -> None:
        with self._runtime.release_turn_lock():
            self._journal.sync()

    def _make_context(self, view: CallView) -> ToolContext:
        contents = {path: effect.content for path, effect in view.staged.items() if not effect.removes}
        removed = frozenset(path for path, effect in view.staged.items() if effect.removes)
        unwritten = self._commits.unwritten_files
        return ToolContext(
            agent=self._inputs.agent,
            org=self._runtime.org,
            settings=self._settings,
            now=view.at,
            staged={path: unwritten[path] for path in unwritten if path not in removed} | contents,
            removed=removed,
            used_up=view.used_up,
            successes=self.successes,
            tick=self._inputs.tick,
            began_at=self._tick_context.at,
            index=view.number,
            deadline=self._deadline,
            answered=self._inputs.current_request.answered_calls if self._inputs.current_request else (),
        )
