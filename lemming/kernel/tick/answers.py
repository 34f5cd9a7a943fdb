"""Where the answers of a turn come from: its record first, the world after that, each answer written down.

    intent < answer < effects < commit

A model's answer is in the journal before anything it causes. A tool with an outside effect is announced
before it runs; if its end was never recorded, it is not run again unless it says that it may be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar, get_args

from lemming.kernel.base.clock import elapsed_ms
from lemming.kernel.base.contract import REPLY_LIMIT_BYTES, ToolCall
from lemming.kernel.base.deadlines import NEVER, Deadline
from lemming.kernel.base.errors import (
    AnswerTooLarge,
    LemmingError,
    OutOfCredits,
    ProviderError,
    TurnTooLong,
    is_final,
    name_of,
)
from lemming.kernel.base.redaction.secrets import redact_json, redact_values
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.journal.events import ModelAsked
from lemming.kernel.journal.file import Journal
from lemming.kernel.journal.record_parts import FailedAttempt
from lemming.kernel.journal.records import (
    GateAsked,
    ModelFailed,
    ModelReplied,
    Record,
    ToolFinished,
    ToolStarted,
)
from lemming.kernel.journal.verdicts import GateVerdict
from lemming.kernel.llm.credits import usage_of
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.providers import Finish, Message, Reply, Request
from lemming.kernel.tick.calls import LiveCalls
from lemming.kernel.tick.commits import Commits
from lemming.kernel.tick.edge import Stopped
from lemming.kernel.tick.fallback import ask_in_turn
from lemming.kernel.tick.questions import look_before, question, require_paid_for
from lemming.kernel.tick.recorded_answers import record_of, recorded_answer, recorded_finding, recorded_result
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.parts import completed, tracing_of
from lemming.kernel.turn.places import Found, FunctionBroke, Functions, SpendingLimits
from lemming.kernel.turn.values import Answer, TurnInputs

R = TypeVar("R", bound=Record)
FINISHES: tuple[str, ...] = get_args(Finish)
LONGER = "raise turn.deadline_s in the resume, or choose a faster model"


class JournaledAnswers:
    """Answers for one turn: those in the journal, then live ones that go into it."""

    def __init__(
        self,
        runtime: Runtime,
        journal: Journal,
        snapshot: Snapshot,
        inputs: TurnInputs,
        commits: Commits,
        limits: SpendingLimits | None = None,
    ) -> None:
        self._runtime, self._journal, self._inputs, self._commits = runtime, journal, inputs, commits
        self._snapshot, self._config, self._settings = snapshot, snapshot.config, snapshot.config.org
        self._answers: dict[int, ModelReplied | ModelFailed] = {}
        self._started: dict[int, ToolStarted] = {}
        self._finished: dict[int, ToolFinished] = {}
        self._checked: dict[int, GateAsked] = {}
        self._verdicts: list[GateVerdict] = []  # of the question under way
        self._limits, self._spent = limits, inputs.state.used_up
        self._name, limit = inputs.agent.name, inputs.agent.turn.deadline_s
        self._first = (
            inputs.turn * NUMBERS_PER_TURN
        )  # what the draft counts from 0, the tick counts from here
        self._tracing = tracing_of(snapshot, inputs) if inputs.given else None
        # A replay takes no time of its own: a slow machine must not end a turn that had ended well.
        self._deadline = Deadline(limit, clock=runtime.monotonic) if limit and runtime.is_live else NEVER
        for record in journal.records_of(self._name, inputs.turn):
            match record:
                case ModelReplied() | ModelFailed():
                    self._answers[record.call] = record
                case ToolStarted():
                    self._started[record.index] = record
                case ToolFinished():
                    self._finished[record.index] = record
                case GateAsked():
                    self._checked[record.number] = record

    def ask(
        self, call: int, messages: list[Message], model: str = "", schema: dict[str, Any] | None = None
    ) -> Answer:
        """Return the model's answer number `call`, recorded or live."""
        call += self._first
        record = self._answers.get(call) or self._write_down(
            self._answers, call, self._ask_live(call, messages, model, schema)
        )
        if self._limits:
            self._limits.settle(record)
        answer = recorded_answer(record)
        self._spent += answer.credits
        return answer

    @property
    def everyone(self) -> Collection[str]:
        """The names of the agents that there were as the tick began."""
        return self._snapshot.plan.everyone

    def knows(self, call: int) -> bool:
        """Return whether the model's answer number `call` is recorded."""
        return self._first + call in self._answers

    def begin(
        self, first: int, calls: Sequence[ToolCall], at: str, staged: Callable[[], dict[str, FileEffect]]
    ) -> None:
        """Begin those of a reply's calls, from number `first` on, that may run at once."""
        self._calls.begin(self._first + first, calls, at, staged, self._spent)

    def use(self, index: int, call: ToolCall, at: str, staged: dict[str, FileEffect]) -> ToolResult:
        """Return the result of tool call number `index`, recorded or live."""
        index += self._first
        record = self._finished.get(index) or self._write_down(
            self._finished, index, self._calls.record(index, call, at, staged, self._spent)
        )
        result = recorded_result(record)
        self._spent += result.passed_on
        self._calls.worked[call.tool] += result.success
        if self._tracing:
            self._tracing.take(result)
        return result

    def refuse(self, index: int, call: ToolCall, refused: ToolResult) -> None:
        """Record that a call was refused before it reached a tool, unless that is on record."""
        if index not in self._finished:
            self._write_down(self._finished, index, record_of(self._name, index, call, refused, 0))

    def has_call(self, index: int) -> bool:
        """Return True if tool call number `index` is recorded, or its beginning is."""
        return self._first + index in self._finished or self._first + index in self._started

    @cached_property
    def _calls(self) -> LiveCalls:
        runtime, journal, snapshot, inputs = self._runtime, self._journal, self._snapshot, self._inputs
        more = self._commits, self._tracing, self._deadline, self._started, self._finished
        return LiveCalls(runtime, journal, snapshot, inputs, *more)

    def check(self, number: int, name: str, seen: dict[str, Any], functions: Functions) -> Found | None:
        """Return what a function says, recorded or live; raise why it broke."""
        number += self._first
        if number not in self._checked:
            ask = partial(functions(tuple(self._settings.plugins)), name, seen)
            self._write_down(self._checked, number, self._check_live(number, name, ask))
        return recorded_finding(self._checked[number])

    def _check_live(self, number: int, name: str, ask: Callable[[], Found | None]) -> GateAsked:
        """Ask a function, and return the record of what it said, or of how it broke."""
        asked: dict[str, Any] = {"agent": self._name, "number": number, "function": name}
        try:
            found = self._runtime.check(self._name, number, name, ask)
        except FunctionBroke as error:
            return GateAsked(**asked, error=redact_values(str(error)))
        return GateAsked(**asked, found=redact_json(found._asdict()) if found else None)

    def reached_outside(self, index: int) -> bool:
        """Return whether that call had effects of its own, before which the staged files were written."""
        return self._first + index in self._started

    def _write_down(self, recorded: dict[int, R], number: int, record: R) -> R:
        """Record what came from outside before anything is done with it; return it without secrets."""
        recorded[number] = record = self._journal.append(record)
        if isinstance(record, ModelReplied) or (isinstance(record, ToolFinished) and number in self._started):
            self._settle()  # what may not come twice
        return record

    def _ask_live(
        self, call: int, messages: list[Message], model: str, schema: dict[str, Any] | None
    ) -> ModelReplied | ModelFailed:
        """Ask, and return the record of what came of it."""
        inputs, started, self._verdicts = self._inputs, time.perf_counter(), []
        try:
            if inputs.problem:
                raise inputs.problem
            ask = partial(self._reply, call, messages, schema)
            key, entry, reply = ask_in_turn(inputs, self._config, model, ask)
        except (OutOfCredits, ProviderError) as error:
            return self._no_answer(call, error, elapsed_ms(started))
        usage = usage_of(entry, messages, reply)
        perhaps_nothing = {
            "model": redact_values(str(reply.model or entry.model))[:200],
            "cached_tokens": usage.cached_tokens,
            "is_estimated": usage.is_estimated,
            "duration_ms": elapsed_ms(started + reply.waited_s),
            "batched": reply.batched,
            "written_tokens": usage.written_tokens,
            "key": key,
        }
        optional: dict[str, Any] = {name: value for name, value in perhaps_nothing.items() if value}
        if reply.finish != "stop" and reply.finish in FINISHES:
            optional["finish"] = reply.finish
        if usage.cost_usd is not None:
            optional["cost_usd"] = usage.cost_usd
        optional |= self._gate_verdicts() if self._verdicts else {}
        optional |= self._lost(self._limits, call) if self._limits else {}
        if reply.calls or reply.thinking or reply.kept:
            natively = {"calls": [*reply.calls], "thinking": reply.thinking, "kept": reply.kept}
            optional |= {name: redact_json(value) for name, value in natively.items() if value}
        if reply.earlier:
            optional |= self._attempts(call, reply.earlier)
        return ModelReplied(
            agent=self._name,
            call=call,
            at=reply.at or self._runtime.now(),
            # More than the contract takes need not be kept whole: a line of the journal has its limit too.
            text=redact_values(reply.text[: 2 * REPLY_LIMIT_BYTES]),
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            credits=usage.credits,
            **optional,
        )

    def _reply(
        self,
        call: int,
        messages: list[Message],
        schema: dict[str, Any] | None,
        key: str,
        entry: ModelEntry,
    ) -> Reply:
        """Ask one model; `key` is that of another than the agent's own, which is asked live."""
        inputs = self._inputs
        request = question(inputs, entry, call, messages, schema)
        if self._deadline is not NEVER:
            request = self._in_time(request)
        self._require_payment(entry, request)
        if self._runtime.is_heard and not key:
            asked = ModelAsked(agent=self._name, call=call, deadline_s=request.deadline_s)
            self._runtime.notify(asked)
        if inputs.given:
            request = completed(request, entry, inputs, self._runtime.base, self._commits.held_files)
        if self._limits or not self._snapshot.pauses.is_clear(self._name):
            self._look_before(key or inputs.agent.model.key, entry, request)
        try:
            asked_s = 0.0 if self._deadline is NEVER else self._deadline.elapsed()
            with self._runtime.waiting():
                reply = self._runtime.complete(entry, request, live=bool(key))
        except AnswerTooLarge as error:  # the backend bills for it, at most for what it was allowed
            tokens = request.max_output_tokens
            reply = Reply("", output_tokens=tokens, finish="too_large", earlier=error.earlier)
        except ProviderError as error:
            # A call that a stop cut off is no failure of the model: nothing is recorded, and the next run
            # asks again.
            if self._runtime.stop.is_set():
                raise Stopped from error
            if self._limits and not error.may_be_paid:  # nobody bills for it: others may have its room
                self._limits.release(call)
            if self._deadline.has_passed:
                error.hint = LONGER  # what the model may take was not what ran out
                raise self._too_long((*error.earlier, error)) from error
            raise
        finally:
            if self._limits:
                self._runtime.before_again.pop(self._name, None)
        if self._limits:
            self._limits.release(call)
        if reply.batched:  # which has its own time
            self._deadline.extend(self._deadline.elapsed() - asked_s)
        return reply

    def _require_payment(self, entry: ModelEntry, request: Request) -> None:
        answers = self._answers.values()
        require_paid_for(self._inputs, entry, request, self._spent, answers, self._limits)

    def _in_time(self, request: Request) -> Request:
        """Return a question with the time that the turn has left; raise `TurnTooLong` where there is none."""
        if (left := self._deadline.remaining()) <= 0:
            raise self._too_long()
        return request._replace(deadline_s=min(request.deadline_s, left), turn_s=left)

    def _too_long(self, earlier: tuple[LemmingError, ...] = ()) -> TurnTooLong:
        error = TurnTooLong(f"the turn's time, {self._inputs.agent.turn.deadline_s:g} s, is over")
        error.earlier = earlier
        return error

    def _look_before(self, key: str, entry: ModelEntry, request: Request) -> None:
        """Look whether a call may be made; under limits, reserve what it can cost, now and at each retry.

        Raises `Paused`, or `LimitReached`.
        """
        look = partial(look_before, self._snapshot, self._limits, self._tracing, key, entry, request)
        self._verdicts += self._runtime.may_ask(look)
        if self._limits is None:
            return
        self._limits.reserve(key, entry, request)
        # On the disk before the call goes out: if the engine dies in it, the next run counts what it may
        # cost.
        self._settle()

        def again(error: ProviderError) -> None:
            if error.may_be_paid:
                # The turn waits meanwhile, so others may work; what they spend counts against the same
                # limits.
                with self._runtime.turn_lock:
                    self._require_payment(entry, request)
                    self._look_before(key, entry, request)

        self._runtime.before_again[self._name] = again

    def _no_answer(self, call: int, error: LemmingError, took_ms: int = 0) -> ModelFailed:
        more = self._gate_verdicts(error.verdicts) | self._attempts(call, error.earlier)
        more |= self._lost(self._limits, call) if self._limits else {}
        inputs = self._inputs
        is_asked = inputs.task or inputs.open_requests or inputs.said_requests
        more |= {"at": self._runtime.now()} if is_asked and is_final(error) else {}
        return ModelFailed(
            agent=self._name,
            call=call,
            code=error.code,
            error=name_of(error),
            message=str(error),
            duration_ms=took_ms,
            **more,
        )

    def _gate_verdicts(self, recorded: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        return {"verdicts": said} if (said := [it.as_json() for it in self._verdicts] or [*recorded]) else {}

    def _lost(self, limits: SpendingLimits, call: int) -> dict[str, Any]:
        """Return what of the reservations for a call is lost, if anything is."""
        lost = self._runtime.lost(self._name, call, limits.lost(call))
        return {"lost": lost.as_json()} if lost.calls else {}

    def _attempts(self, call: int, earlier: tuple[LemmingError, ...]) -> dict[str, Any]:
        """Return how often a model was asked, and why in vain, if it was; and put it into the log."""
        if not earlier:
            return {}
        told = [FailedAttempt(code=e.code, error=name_of(e), message=str(e)) for e in earlier]
        facts = {"attempts": len(told) + 1, "earlier": told}
        where = {"tick": self._inputs.tick, "agent": self._name, "call": call}
        EngineLog(self._runtime.base).warning("model_asked_again", **where, **facts)
        return facts

    def _settle(self) -> None:
        if self._settings.durability == "turn":
            # A flush takes longer than most of a turn's work: the others go on, and may share it.
            with self._runtime.waiting():
                self._journal.settle(self._name)
