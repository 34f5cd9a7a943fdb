"""Source of a turn's answers: first the turn's records, then live calls; each live answer is recorded.

    intent < answer < effects < commit

A model's answer is in the journal before anything the answer causes. A tool with side effects is announced before
it runs, and so is a model that may act outside. A call without a recorded end runs again only if it is repeatable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from lemming.kernel.base.blocking_deadline import NEVER, Deadline
from lemming.kernel.base.clock import elapsed_ms
from lemming.kernel.base.contract import REPLY_LIMIT_BYTES, ToolCall
from lemming.kernel.base.errors import (
    AnswerTooLarge,
    LemmingError,
    MayHaveActed,
    OutOfCredits,
    ProviderError,
    TurnTooLong,
    error_name,
    is_final,
)
from lemming.kernel.base.redaction.secrets import redact_json, redact_values
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.journal.engine_events import ModelAsked
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import (
    ModelFailed,
    ModelReplied,
    ModelStarted,
    Record,
    ToolFinished,
    ToolStarted,
)
from lemming.kernel.llm.call_cost import check_credits, compute_usage
from lemming.kernel.llm.model_call import make_interrupted_error
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import Finish, Message, Reply
from lemming.kernel.tick.error_boundary import EngineStopped
from lemming.kernel.tick.model_requests import ModelRequests, build_request, complete_with_fallbacks, require_not_paused
from lemming.kernel.tick.recorded_answers import (
    CallView,
    make_tool_record,
    restore_answer,
    restore_result,
    to_attempt_fields,
    was_approved,
)
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.turn_commits import Commits
from lemming.kernel.tick_context import TickContext
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.turn_effects import AskPerson
from lemming.kernel.turn.turn_values import Answer, CheckFinding, CheckRun, TurnInputs

if TYPE_CHECKING:
    from lemming.kernel.tick.live_chain import LiveChain
    from lemming.kernel.tick.turn_calls import LiveCalls
    from lemming.kernel.tick.urgent_entries import UrgentEntries
    from lemming.kernel.turn.live_phase import LivePhase, TickScope
    from lemming.kernel.turn.turn_hooks import Capability

R = TypeVar("R", bound=Record)
FINISHES: tuple[str, ...] = get_args(Finish)


class JournaledAnswers:
    """Answers for a turn: from the journal, then live answers recorded in the journal."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        tick_context: TickContext,
        inputs: TurnInputs,
        commits: Commits,
        get_scope: Callable[[], TickScope],
        active: Sequence[Capability],
    ) -> None:
        self._runtime, self._journal, self._inputs, self._commits = runtime, journal, inputs, commits
        self._tick_context, self._config, self._settings = tick_context, tick_context.config, tick_context.config.org
        self._answers: dict[int, ModelReplied | ModelFailed] = {}
        self._announced: set[int] = set()  # model calls of earlier attempts that may have acted outside
        self._started: dict[int, ToolStarted] = {}
        self._finished: dict[int, ToolFinished] = {}
        self._get_scope, self._active, self._spent = get_scope, active, inputs.state.consumed_credits
        self._name, limit = inputs.agent.name, inputs.agent.turn.deadline_s
        self._first_number = inputs.turn * NUMBERS_PER_TURN  # the turn numbers its calls from 0, the tick from here
        self._check_count = 0
        self._urgent_entries: UrgentEntries | None = None
        self._requests: ModelRequests | None = None  # nothing checks the requests of most turns
        if inputs.current_request or inputs.given or active:
            self._requests = ModelRequests(
                runtime, journal, tick_context, inputs, self._answers, lambda: self._live_chain
            )
        # A replay takes no time of its own: a slow machine must not end a turn that had ended well.
        self._deadline = Deadline(limit, clock=runtime.monotonic) if limit and runtime.is_live else NEVER
        for record in journal.find_agent_records(self._name, inputs.turn):
            match record:
                case ModelReplied() | ModelFailed():
                    self._answers[record.call] = record
                case ModelStarted():
                    self._announced.add(record.call)
                case ToolStarted():
                    self._started[record.index] = record
                case ToolFinished():
                    self._finished[record.index] = record

    def ask(self, call: int, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None) -> Answer:
        """Return the model's answer number `call`, recorded or live."""
        call += self._first_number
        record = self._answers.get(call) or self._append_record(
            self._answers, call, self._call_model_live(call, messages, model, schema)
        )
        if self._requests:
            self._requests.settle(record)
        answer = restore_answer(record)
        self._spent += answer.credits
        return answer

    @property
    def everyone(self) -> Collection[str]:
        """Names of the agents at the start of the tick."""
        return self._tick_context.plan.all_agents

    def has_answer(self, call: int) -> bool:
        """Return True if the model's answer number `call` is recorded."""
        return self._first_number + call in self._answers

    def take_urgent(self, call: int, trust_label: str) -> Mapping[str, str]:
        """Return lines with the urgent entries to show before model call number `call`, recorded or found now."""
        if self._urgent_entries is None:
            from lemming.kernel.tick.urgent_entries import UrgentEntries  # turns of one step have none

            self._urgent_entries = UrgentEntries(self._runtime, self._journal, self._tick_context, self._inputs)
        number, is_answered = self._first_number + call, self.has_answer(call)
        return self._urgent_entries.take_lines(number, trust_label, is_answered=is_answered)

    def start_calls(
        self, first: int, calls: Sequence[ToolCall], at: str, staged: Callable[[], dict[str, FileEffect]]
    ) -> None:
        """Start the calls of a reply, numbered from `first`, that can run in parallel."""
        first += self._first_number
        self._live_calls.start_calls(first, calls, lambda index: CallView(index, at, staged(), self._spent))

    def is_approved(
        self, index: int, call: ToolCall, at: str, staged: dict[str, FileEffect], questions: Sequence[AskPerson]
    ) -> bool:
        """Return True if a person has approved the call that the last question is about, by the record or now."""
        index += self._first_number
        if record := self._finished.get(index):
            return was_approved(record, len(questions))
        return self._live_calls.is_approved(call, CallView(index, at, staged, self._spent), questions)

    def call_tool(
        self,
        index: int,
        call: ToolCall,
        at: str,
        staged: dict[str, FileEffect],
        questions: Sequence[AskPerson] = (),
        approved: int = 0,
    ) -> ToolResult:
        """Return the result of tool call number `index`, recorded or live. Without approval of `questions` it waits."""
        index += self._first_number
        record = self._finished.get(index)
        if record is None:
            view = CallView(index, at, staged, self._spent)
            live = self._live_calls.call_and_record(call, view, questions, approved)
            record = self._append_record(self._finished, index, live)
        result = restore_result(record)
        self._spent += result.passed_on
        self._live_calls.successes[call.tool] += result.success
        return result

    def refuse(self, index: int, call: ToolCall, refusal: ToolResult, approved: int = 0) -> None:
        """Record a call refused before reaching a tool, unless already recorded."""
        index += self._first_number
        if index not in self._finished:
            self._append_record(self._finished, index, make_tool_record(self._name, index, call, refusal, 0, approved))

    def has_call(self, index: int) -> bool:
        """Return True if the end or the start of tool call number `index` is recorded."""
        return self._first_number + index in self._finished or self._first_number + index in self._started

    @cached_property
    def _live_calls(self) -> LiveCalls:
        from lemming.kernel.tick.turn_calls import LiveCalls  # imported only if needed

        runtime, journal, tick_context, commits = self._runtime, self._journal, self._tick_context, self._commits
        return LiveCalls(
            runtime, journal, tick_context, self._phase, commits, self._deadline, self._started, self._live_chain
        )

    @cached_property
    def _phase(self) -> LivePhase:
        from lemming.kernel.turn.live_phase import LivePhase

        return LivePhase(
            self._inputs,
            self._runtime.base,
            self._get_scope(),
            results=self._finished,
            answers=self._answers,
            get_unwritten_files=lambda: self._commits.unwritten_files,
            plan_call=lambda effect: self._runtime.call_tool(effect.context.index, effect.call, effect.context),
            count_spending=self._requests.count_spending if self._requests else None,
        )

    @cached_property
    def _live_chain(self) -> LiveChain | None:
        """The interceptors of live effects, or None."""
        if not (self._inputs.given or self._active):
            return None
        from lemming.kernel.tick.live_chain import make_live_chain

        return make_live_chain(self._phase, self._active, tuple(self._settings.plugins))

    def run_check(self, name: str, run: CheckRun, at: str, staged: dict[str, FileEffect] | None) -> CheckFinding | None:
        """Return the finding of the turn's next check, recorded or live. Raises its error."""
        view = CallView(self._first_number + self._check_count, at, staged or {}, self._spent)
        self._check_count += 1
        return self._live_calls.run_check(name, run, view, needs_files=staged is not None)

    def had_side_effects(self, index: int) -> bool:
        """Return True if the call had side effects, for which the staged files were written first."""
        return self._first_number + index in self._started

    def _append_record(self, recorded: dict[int, R], number: int, record: R) -> R:
        """Record an outside answer before its use, and return the record without secrets."""
        recorded[number] = record = self._journal.append(record)
        if isinstance(record, ModelReplied) or (isinstance(record, ToolFinished) and number in self._started):
            self._sync_records()  # neither paid nor made twice, even after a power cut
        return record

    def _call_model_live(
        self, call: int, messages: list[Message], model: str, schema: dict[str, Any] | None
    ) -> ModelReplied | ModelFailed:
        """Call the model and return the record of the reply or the failure."""
        inputs, started = self._inputs, time.perf_counter()
        if self._requests:
            self._requests.verdicts = []
        try:
            if inputs.problem:
                raise inputs.problem
            if call in self._announced:  # and its end never recorded, so it is not made again
                raise make_interrupted_error()
            ask = partial(self._call_model, call, messages, schema)
            key, entry, reply = complete_with_fallbacks(inputs, self._config, model, ask)
        except (OutOfCredits, ProviderError) as error:
            return self._failure_record(call, error, elapsed_ms(started))
        return self._make_reply_record(call, messages, key, entry, reply, elapsed_ms(started + reply.waited_s))

    def _make_reply_record(
        self, call: int, messages: list[Message], key: str, entry: ModelEntry, reply: Reply, took_ms: int = 0
    ) -> ModelReplied:
        """Return the record of a reply."""
        usage = compute_usage(entry, messages, reply)
        optional_values = {
            "model": redact_values(str(reply.model or entry.model))[:200],
            "cached_tokens": usage.cached_tokens,
            "is_estimated": usage.is_estimated,
            "duration_ms": took_ms,
            "batched": reply.batched,
            "written_tokens": usage.written_tokens,
            "key": key,
            "acted": reply.acted,
        }
        optional: dict[str, Any] = {name: value for name, value in optional_values.items() if value}
        if reply.finish != "stop" and reply.finish in FINISHES:
            optional["finish"] = reply.finish
        if usage.cost_usd is not None:
            optional["cost_usd"] = usage.cost_usd
        if self._requests:
            verdicts = [verdict.as_json() for verdict in self._requests.verdicts]
            optional |= {"verdicts": verdicts} if verdicts else {}
            optional |= self._requests.write_off(call)
        if reply.calls or reply.thinking or reply.kept:
            native_values = {"calls": [*reply.calls], "thinking": reply.thinking, "kept": reply.kept}
            optional |= {name: redact_json(value) for name, value in native_values.items() if value}
        if reply.earlier:
            optional |= to_attempt_fields(self._runtime.base, self._inputs, call, reply.earlier)
        return ModelReplied(
            agent=self._name,
            call=call,
            at=reply.at or self._runtime.now(),
            # A text longer than the contract allows is cut: a line of the journal has its limit too.
            text=redact_values(reply.text[: 2 * REPLY_LIMIT_BYTES]),
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            credits=usage.credits,
            **optional,
        )

    def _call_model(
        self, call: int, messages: list[Message], schema: dict[str, Any] | None, key: str, entry: ModelEntry
    ) -> Reply:
        """Call a model. `key` names a fallback or other model, called live; empty for the agent's own model."""
        inputs = self._inputs
        request = build_request(inputs, entry, call, messages, schema)
        if self._deadline is not NEVER:
            if (remaining_s := self._deadline.remaining()) <= 0:
                raise self._deadline_error()
            request = request._replace(deadline_s=min(request.deadline_s, remaining_s), turn_s=remaining_s)
        if self._requests:
            self._requests.require_payment(entry, request, self._spent)
        else:
            check_credits(entry, inputs.allocation, self._spent)
        if self._runtime.has_observers and not key:
            self._runtime.notify(ModelAsked(agent=self._name, call=call, deadline_s=request.deadline_s))
        if self._requests:
            request = self._requests.admit(key or inputs.agent.model.key, entry, request, self._spent)
        elif self._runtime.is_live:
            require_not_paused(self._tick_context, self._name)
        try:
            elapsed_s = 0.0 if self._deadline is NEVER else self._deadline.elapsed()
            with self._runtime.release_turn_lock():
                reply = self._runtime.complete(entry, request, live=bool(key))
        except AnswerTooLarge as error:  # the provider bills for it, at most for the allowed tokens
            reply = Reply("", output_tokens=request.max_output_tokens, finish="too_large", earlier=error.earlier)
        except ProviderError as error:
            # A call that a stop cut off is no failure of the model: not recorded, and asked again by the next run.
            if self._runtime.stop.is_set() and not isinstance(error, MayHaveActed):
                raise EngineStopped from error
            if self._requests and not error.may_be_paid:  # not billed: free its reservation for others
                self._requests.release(call)
            if self._deadline.has_passed and not isinstance(error, MayHaveActed):
                error.hint = "raise turn.deadline_s in the resume, or choose a faster model"  # the turn's time is over
                raise self._deadline_error((*error.earlier, error)) from error
            raise
        finally:
            if self._requests:
                for hooks in (self._runtime.before_send, self._runtime.before_retry):
                    hooks.pop(self._name, None)
        if self._requests:
            is_passed = False
            try:
                reply, is_passed = self._requests.finish(call, reply), True
            finally:
                if not is_passed:  # a capability broke: it is paid, and what was to become of its text is unknown
                    withheld = reply._replace(text="", calls=(), thinking="", kept=None)
                    record = self._make_reply_record(call, messages, key, entry, withheld)
                    self._append_record(self._answers, call, record)
        if reply.batched:  # batches have a time of their own
            self._deadline.extend(self._deadline.elapsed() - elapsed_s)
        return reply

    def _deadline_error(self, earlier: tuple[LemmingError, ...] = ()) -> TurnTooLong:
        error = TurnTooLong(f"the turn's time, {self._inputs.agent.turn.deadline_s:g} s, is over")
        error.earlier = earlier
        return error

    def _failure_record(self, call: int, error: LemmingError, took_ms: int = 0) -> ModelFailed:
        inputs, current = self._inputs, self._requests.verdicts if self._requests else ()
        verdicts = [verdict.as_json() for verdict in current] or [*error.verdicts]
        optional_fields: dict[str, Any] = {"verdicts": verdicts} if verdicts else {}
        optional_fields |= to_attempt_fields(self._runtime.base, inputs, call, error.earlier)
        optional_fields |= self._requests.write_off(call) if self._requests else {}
        is_for_request = inputs.current_request or inputs.open_requests or inputs.said_requests
        optional_fields |= {"at": self._runtime.now()} if is_for_request and is_final(error) else {}
        return ModelFailed(
            agent=self._name,
            call=call,
            code=error.code,
            error=error_name(error),
            message=str(error),
            duration_ms=took_ms,
            **optional_fields,
        )

    def _sync_records(self) -> None:
        if self._settings.durability == "turn":
            # A flush takes longer than most of a turn's work: the others go on, and may share it.
            with self._runtime.release_turn_lock():
                self._journal.sync_agent(self._name)
