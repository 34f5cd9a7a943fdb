"""Take an effect through the interceptors of its type, one after another, and perform it at the end.

An interceptor that breaks the rules for hooks fails the turn, with capability, file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

from lemming.kernel.base.jsontext import is_equal_json
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.obligations.grants import list_grants
from lemming.kernel.plugins.capability_errors import HookError, capability_error
from lemming.kernel.plugins.capability_table import DECISION_RULES
from lemming.kernel.providers import Reply
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn import turn_effects as effects
from lemming.kernel.turn.effect_guard import AFTER_END, copy_effect, find_violation, is_plugin, list_values
from lemming.kernel.turn.live_phase import CheckResult, RunTool, SendRequest, StartTool
from lemming.kernel.turn.preparation_effects import BuildPrompt, LabelPrompt, SelectContext
from lemming.kernel.turn.turn_values import Answer

E = TypeVar("E", bound=effects.Effect)
Perform = Callable[[Any], Any]
"""Performs an effect and returns the answer, or an outcome if the kernel itself refuses the effect."""


_ANSWERS: Mapping[type[effects.Effect], type] = {
    effects.AskModel: Answer,
    CheckResult: ToolResult,
    RunTool: ToolResult,
    StartTool: ToolResult,
    SendRequest: Reply,
}
"""Types of the answers that an interceptor may give in the place of the world."""
_COMPLETED = (LabelPrompt, SelectContext, BuildPrompt, effects.EndTurn)
"""Effects that a capability completes, and none may reject."""

_OF_ENTRIES = (effects.WriteEntry, effects.Withdraw, effects.CarryOut)
"""Effects that change the entries of a turn."""

Steps = Generator[effects.Effect, Any, effects.Outcome]
"""Yields effects to perform, is sent their answers, and returns the outcome of the first effect."""


COPY = "yield a changed copy, `replace(effect, ...)`"
LET_THROUGH = "or pass it on, `return (yield effect)`"


class Interceptor(NamedTuple):
    """A capability's part in one turn: effect types to handle, facts to write, and `intercept` for this turn.

    `may_ask`: `intercept` may yield an `AskPerson`.
    """

    name: str
    handles: Sequence[type[effects.Effect]]
    facts: Sequence[str]
    intercept: Callable[[Any], effects.Interception]
    may_ask: bool = True


class EffectChain:
    """The interceptors of a turn, by effect type, in the order of their capabilities.

    `perform` performs an effect that all interceptors agreed to; `record` takes the events. `handled`: the types with an
    interceptor, for all others the kernel creates no effect.
    """

    def __init__(
        self, interceptors: Iterable[Interceptor], perform: Perform, record: Callable[[effects.Event], None]
    ) -> None:
        self._perform, self._record = perform, record
        by_type: dict[type[effects.Effect], list[Interceptor]] = {}
        writers: dict[str, Interceptor] = {}
        for interceptor in interceptors:
            for fact in interceptor.facts:
                _require_sole_writer(fact, interceptor, writers.setdefault(fact, interceptor))
            for handled in interceptor.handles:
                by_type.setdefault(handled, []).append(interceptor)
        self._by_type: Mapping[type[effects.Effect], Sequence[Interceptor]] = by_type
        self.handled: AbstractSet[type[effects.Effect]] = by_type.keys()
        self.is_ending = False  # an `EndTurn` holds the turn's entries, and is not performed yet
        self._guarded = {kind for kind, links in by_type.items() if any(is_plugin(link.name) for link in links)}

    def dispatch(self, effect: effects.Effect) -> effects.Allowed | effects.Refusal:
        """Take an effect through all interceptors of its type, perform it, and return the outcome."""
        return self.finish(self.begin(effect))

    def finish(self, steps: Steps, answer: Any = None) -> effects.Allowed | effects.Refusal:
        """Perform what the interceptors of an effect yield, to the end, and return the outcome of the effect.

        `answer`: of the effect, if it was performed already.
        """
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as stop:
                outcome: effects.Allowed | effects.Refusal = stop.value
                return outcome
            answer = self._perform(request)

    def decide(self, effect: E) -> E | effects.Refusal:
        """Return an effect as passed on by the interceptors and performed, or the outcome against the effect."""
        outcome = self.dispatch(effect)
        return cast(E, outcome.effect) if isinstance(outcome, effects.Allowed) else outcome

    def begin(self, effect: effects.Effect) -> Steps:
        """Take an effect through all interceptors of its type. Yields the effects to perform, which all agreed to."""
        self.is_ending |= isinstance(effect, effects.EndTurn)
        is_guarded = type(effect) in self._guarded
        if is_guarded:
            effect = copy_effect(effect)
        # An approved entry or call is performed in a later turn: no capability may rewrite what the person saw.
        grant = (
            effect.grant
            if isinstance(effect, effects.WriteEntry)
            else isinstance(effect, RunTool) and effect.call.approved
        )
        approved = (copy_effect(effect) if is_guarded else effect,) if grant else ()
        outcome = yield from self._descend(effect, self._by_type.get(type(effect), ()), approved)
        is_compared = isinstance(outcome, effects.Allowed) and not isinstance(effect, effects.UNCOMPARED)
        if isinstance(outcome, effects.Allowed) and is_compared and not _is_same_content(outcome.effect, effect):
            outcome = effects.Replaced(outcome.effect, outcome.answer)
        if is_guarded and isinstance(outcome, effects.Allowed):
            outcome = replace(outcome, effect=copy_effect(outcome.effect))  # what a plugin holds changes nothing more
        self._record(effects.EffectFinished(effect, outcome))
        return outcome

    def find_participants(self, effect: effects.Effect) -> list[Interceptor]:
        """Return the interceptors that take part in an effect, without running them."""
        return [item for item in self._by_type.get(type(effect), ()) if item.intercept(effect) is not None]

    def _descend(
        self,
        effect: effects.Effect,
        interceptors: Sequence[Interceptor],
        approved: Sequence[effects.Effect] = (),
        before: Any = None,
    ) -> Steps:
        """Take an effect through interceptors. `approved`: as persons approved it. `before`: a copy of its content."""
        if before is None and interceptors:
            before = self._copy_values(effect)
        for depth, interceptor in enumerate(interceptors, 1):
            result = interceptor.intercept(effect)
            if self._is_changed(effect, before):
                return _refuse_change(interceptor, effect)
            if isinstance(result, effects.Outcome):
                return _checked(interceptor, effect, result, None)
            if isinstance(result, Generator):
                return (yield from self._drive(interceptor, result, effect, interceptors[depth:], approved, before))
            if result is not None:
                raise _invalid(interceptor, "return None, an outcome, or a generator that yields effects", result)
        return (yield from self._perform_last(effect, approved))

    def _drive(
        self,
        interceptor: Interceptor,
        steps: Generator[effects.Effect, Any, effects.Outcome | None],
        effect: effects.Effect,
        later: Sequence[Interceptor],
        approved: Sequence[effects.Effect],
        before: Any,
    ) -> Steps:
        """Run an interceptor that yields effects: its own goes through the rest of the chain, others start at the top."""
        reply, allowed, shown = None, None, None
        passed = list[tuple[effects.Effect, Any]]()
        approvers: tuple[str, ...] = ()
        try:
            while True:
                request = steps.send(reply)
                if not isinstance(request, effects.Effect):
                    raise _invalid(interceptor, "yield effects", request)
                if allowed is None and self._is_changed(effect, before):
                    steps.close()
                    return _refuse_change(interceptor, effect)
                if isinstance(request, effects.AskPerson):
                    request = _check_question(interceptor, request, approvers)
                name, intercept, facts = interceptor.name, interceptor.intercept, interceptor.facts
                if problem := find_violation(name, intercept, facts, before=effect, after=request):
                    steps.close()
                    if isinstance(effect, _COMPLETED):  # nobody may reject it
                        problem = problem.removeprefix(f"{interceptor.name} ")
                        raise capability_error(interceptor.name, interceptor.intercept, problem)
                    return effects.Rejected(problem)
                if type(request) is type(effect):
                    is_single = bool(approved) or isinstance(effect, (effects.LiveEffect, effects.EndTurn))
                    if is_single and isinstance(allowed, effects.Allowed):
                        twice = f"must yield {type(effect).__name__} once: it is performed already"
                        raise capability_error(interceptor.name, interceptor.intercept, twice)
                    copied = before if request is effect else self._copy_values(request)
                    passed.append((request, copied))
                    allowed = yield from self._descend(request, later, approved, copied)
                    reply = shown = _copy_entry(allowed) if is_plugin(interceptor.name) else allowed
                    continue
                if self.is_ending and isinstance(request, _OF_ENTRIES):
                    early = f"must yield {type(request).__name__} {AFTER_END}"
                    raise capability_error(interceptor.name, interceptor.intercept, early)
                if isinstance(request, effects.Withdraw):
                    request = replace(request, by=interceptor.name)
                reply = yield from self.begin(request)
                if isinstance(request, effects.AskPerson):
                    if not isinstance(reply, effects.Allowed):
                        steps.close()
                        return reply  # code after the question runs only once a person has approved
                    approved = (*approved, copy_effect(request.subject))
                    approvers = (*approvers, *find_approver(reply))
        except StopIteration as stop:
            result = stop.value if stop.value is not None else shown
        if any(self._is_changed(*item) for item in passed) or shown != allowed:
            late = f"must not change {type(effect).__name__} in place, as it did after its `yield`: {COPY}"
            raise capability_error(interceptor.name, interceptor.intercept, late)
        if result is None:
            if self._is_changed(effect, before):
                return _refuse_change(interceptor, effect)
            return (yield from self._descend(effect, later, approved, before))
        if not isinstance(result, effects.Outcome):
            raise _invalid(interceptor, "return an outcome or None at its end", result)
        is_late = isinstance(allowed, effects.Allowed) and not isinstance(result, effects.Allowed)
        if is_late and isinstance(effect, (effects.WriteEntry, SendRequest)):
            is_entry = isinstance(effect, effects.WriteEntry)
            moment = "an entry before it is written" if is_entry else "a request before it is sent"
            late = f"must decide about {moment}: `return (yield effect)`"
            raise capability_error(interceptor.name, interceptor.intercept, late)
        return allowed if result is shown and allowed else _checked(interceptor, effect, result, allowed, shown)

    def _copy_values(self, effect: effects.Effect) -> Any:
        """Return a copy of the values of an effect that a plugin may not change in place."""
        return deepcopy(list_values(effect)) if type(effect) in self._guarded else None

    def _is_changed(self, effect: effects.Effect, before: Any) -> bool:
        return before is not None and list_values(effect) != before

    def _perform_last(self, effect: effects.Effect, approved: Sequence[effects.Effect]) -> Steps:
        if isinstance(effect, effects.AskPerson) and isinstance(effect.subject, effects.UNCOMPARED):
            return effects.Rejected(f"{effect.reason}: a person must approve, and no capability here asks persons")
        if any(type(item) is type(effect) and not _is_same_content(item, effect) for item in approved):
            return effects.Rejected(
                "REFUSED: persons approved something else; a capability changed it after it had asked"
            )
        if isinstance(effect, effects.EndTurn):
            self.is_ending = False
        self._record(effects.EffectStarted(effect))
        answer = yield copy_effect(effect) if type(effect) in self._guarded else effect
        if isinstance(answer, effects.Outcome):
            return answer
        allowed = effects.Allowed(effect, answer)
        self._record(effects.EffectPerformed(effect, _copy_entry(allowed).answer))
        return allowed


def _require_sole_writer(fact: str, interceptor: Interceptor, other: Interceptor) -> None:
    """Raise `HookError` for a fact that a second capability writes; one that ships is not at fault."""
    if other.name != interceptor.name:
        late, owner = (interceptor, other) if is_plugin(interceptor.name) else (other, interceptor)
        problem = f"must not write the fact {fact!r}, which {owner.name} writes: declare one of its own in `facts`"
        raise capability_error(late.name, late.intercept, problem)


def _copy_entry(outcome: effects.Outcome) -> Any:
    """Return an outcome with a copy of the entry that was written. No plugin gets the entry itself."""
    if isinstance(outcome, effects.Allowed) and isinstance(outcome.answer, OutboxEntry):
        return replace(outcome, answer=deepcopy(outcome.answer))
    return outcome


def find_approver(outcome: effects.Allowed) -> Sequence[str]:
    """Return the person whose approval a question got, as a list of one, or nothing."""
    grants = outcome.answer.get(DECISION_RULES) if isinstance(outcome.answer, Mapping) else None
    return [list_grants(grants)[-1]["by"]] if grants else ()


def ignore(item: effects.Effect | effects.Event) -> None:
    """Do nothing: where effects are only decided, nothing is performed and nothing recorded."""


NO_CHAIN = EffectChain((), ignore, ignore)
"""The chain of all turns without capabilities."""


def _checked(
    interceptor: Interceptor,
    effect: effects.Effect,
    outcome: effects.Outcome,
    allowed: effects.Outcome | None,
    shown: effects.Outcome | None = None,
) -> effects.Outcome:
    """Return an interceptor's outcome. An allowed write must be the one that the rest of the chain has seen.

    `shown`: what the interceptor got of `allowed`.
    """
    if isinstance(outcome, (effects.Rejected, effects.Deferred)) and not isinstance(outcome.reason, str):
        raise _invalid(interceptor, f"give {type(outcome).__name__} a text as the reason", outcome.reason)
    if isinstance(effect, _COMPLETED) and is_plugin(interceptor.name) and not isinstance(outcome, effects.Allowed):
        raise _invalid(interceptor, f"pass on {type(effect).__name__}, changed or not", outcome)
    if (
        isinstance(outcome, effects.Allowed)
        and isinstance(outcome.effect, effects.AskPerson)
        and not isinstance(effect, effects.AskPerson)
    ):
        raise _invalid(interceptor, "return the outcome of its own effect, `return (yield effect)`,", outcome)
    if isinstance(outcome, effects.Suspended) and not isinstance(effect, (effects.AskPerson, *effects.UNCOMPARED)):
        return effects.Rejected(f"{interceptor.name} suspended what no person was asked about: yield an AskPerson")
    if not isinstance(outcome, effects.Allowed):
        return outcome
    if type(outcome.effect) is not type(effect):
        return effects.Rejected(f"{interceptor.name} allowed another effect: {type(outcome.effect).__name__}")
    if isinstance(effect, effects.EndTurn) and is_plugin(interceptor.name) and outcome is not shown:
        raise _invalid(interceptor, "pass on EndTurn, `return (yield effect)`", outcome)
    if isinstance(effect, effects.WRITES):
        if isinstance(shown, effects.Allowed) and outcome.effect is shown.effect and outcome.answer is shown.answer:
            assert allowed, "an outcome was shown to the interceptor"
            return allowed
        return effects.Rejected(
            f"{interceptor.name} allowed what later capabilities have not seen: reject it, {LET_THROUGH}"
        )
    expected = _ANSWERS.get(type(effect))
    if expected and is_plugin(interceptor.name) and not isinstance(outcome.answer, expected):
        answer = f"allow {type(effect).__name__} with an answer of the type {expected.__name__}"
        raise _invalid(interceptor, answer, outcome.answer)
    return effects.Allowed(outcome.effect, outcome.answer)  # only `begin` compares


def _check_question(
    interceptor: Interceptor, question: effects.AskPerson, approvers: Sequence[str]
) -> effects.AskPerson:
    """Return a question to persons with the name of the capability that asks, unless it names a rule.

    `approvers`: who has answered its questions about the same effect. Somebody else must answer a plugin's next one.
    """
    if not interceptor.may_ask:
        raise capability_error(
            interceptor.name, interceptor.intercept, "yields AskPerson without `asks_persons = True`"
        )
    if question.persons is not None and (
        isinstance(question.persons, str) or not isinstance(question.persons, Collection)
    ):
        persons = f"persons of AskPerson must be a list of names, got {question.persons!r}"
        raise capability_error(interceptor.name, interceptor.intercept, persons)
    if not isinstance(question.subject, effects.Effect):
        raise _invalid(interceptor, "ask about an effect", question.subject)
    asker = interceptor.name if is_plugin(interceptor.name) else ""
    by = question.asked_by or interceptor.name
    return replace(question, asked_by=by, asker=asker, besides=approvers if asker else ())


def _invalid(interceptor: Interceptor, expected: str, value: Any) -> HookError:
    """Return the error for a value that an interceptor returned or yielded."""
    fix = ""
    if isinstance(value, effects.Effect):
        fix = ": write `return (yield ...)`"
    elif isinstance(value, type) and issubclass(value, effects.Outcome):
        fix = f": write {value.__name__}(...)"
    got = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
    if isinstance(value, effects.Allowed) and isinstance(value.effect, effects.AskPerson):
        got = "the answer of AskPerson"
    return capability_error(interceptor.name, interceptor.intercept, f"must {expected}, got {got}{fix}")


def _is_same_content(first: effects.Effect, second: effects.Effect) -> bool:
    """Return True if two effects of one type do the same."""
    if first is second:
        return True
    if isinstance(first, RunTool) and isinstance(second, RunTool):
        return is_equal_json([first.call.tool, first.call.args], [second.call.tool, second.call.args])
    return effects.effect_content(first) == effects.effect_content(second)


def _refuse_change(interceptor: Interceptor, effect: effects.Effect) -> effects.Rejected:
    """Return the refusal of an effect changed in place. Where a refusal would only leave it out, the turn fails."""
    if isinstance(effect, (effects.WriteEntry, effects.CallTool, effects.WriteMemory, RunTool)):
        return effects.Rejected(f"{interceptor.name} changed an effect in place: yield a changed copy")
    late = f"must not change {type(effect).__name__} in place: {COPY}"
    raise capability_error(interceptor.name, interceptor.intercept, late)
