"""Take an effect through the interceptors of its type, one after another, and perform it at the end.

An interceptor that breaks the rules for hooks fails the turn, with capability, file and line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from lemming.kernel.base.jsontext import is_equal_json
from lemming.kernel.turn import turn_effects as effects
from lemming.kernel.turn.live_phase import CheckResult, RunTool, StartTool

E = TypeVar("E", bound=effects.Effect)
Perform = Callable[[Any], Any]
"""Performs an effect and returns the answer, or an outcome if the kernel itself refuses the effect."""


Steps = Generator[effects.Effect, Any, effects.Outcome]
"""Yields effects to perform, is sent their answers, and returns the outcome of the first effect."""


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
        for interceptor in interceptors:
            for handled in interceptor.handles:
                by_type.setdefault(handled, []).append(interceptor)
        self._by_type: Mapping[type[effects.Effect], Sequence[Interceptor]] = by_type
        self.handled: Collection[type[effects.Effect]] = by_type.keys()

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
        # An approved entry or call is performed in a later turn: no capability may rewrite what the person saw.
        grant = (
            effect.grant
            if isinstance(effect, effects.WriteEntry)
            else isinstance(effect, RunTool) and effect.call.approved
        )
        approved = (effect,) if grant else ()
        outcome = yield from self._descend(effect, self._by_type.get(type(effect), ()), approved)
        is_other = (
            isinstance(outcome, effects.Allowed)
            and outcome.effect is not effect
            and not isinstance(effect, effects.UNCOMPARED)
        )
        if (
            is_other
            and isinstance(outcome, effects.Allowed)
            and effects.effect_content(outcome.effect) != effects.effect_content(effect)
        ):
            outcome = effects.Replaced(outcome.effect, outcome.answer)
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
        """Take an effect through interceptors.

        `approved`: the effect as persons approved it. `before`: a copy of its content, if there is one.
        """
        if before is None and interceptors:
            before = deepcopy(_changeable(effect))
        for depth, interceptor in enumerate(interceptors, 1):
            result = interceptor.intercept(effect)
            if _changeable(effect) != before:
                return _refuse_change(interceptor)
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
        reply, allowed = None, None
        try:
            while True:
                request = steps.send(reply)
                if not isinstance(request, effects.Effect):
                    raise _invalid(interceptor, "yield effects", request)
                if allowed is None and _changeable(effect) != before:
                    steps.close()
                    return _refuse_change(interceptor)
                if isinstance(request, effects.AskPerson):
                    request = _check_question(interceptor, request)
                if problem := _find_violation(interceptor, effect, request):
                    steps.close()
                    return effects.Rejected(problem)
                if type(request) is type(effect):
                    copied = before if request is effect else None
                    reply = allowed = yield from self._descend(request, later, approved, copied)
                    continue
                reply = yield from self.begin(request)
                if isinstance(request, effects.AskPerson):
                    if not isinstance(reply, effects.Allowed):
                        steps.close()
                        return reply  # code after the question runs only once a person has approved
                    approved = (*approved, request.subject)
        except StopIteration as stop:
            result = stop.value if stop.value is not None else allowed
        if result is None:
            if _changeable(effect) != before:
                return _refuse_change(interceptor)
            return (yield from self._descend(effect, later, approved, before))
        if not isinstance(result, effects.Outcome):
            raise _invalid(interceptor, "return an outcome or None at its end", result)
        if (
            isinstance(effect, effects.WriteEntry)
            and isinstance(allowed, effects.Allowed)
            and not isinstance(result, effects.Allowed)
        ):
            late = "must decide about an entry before it is written: `return (yield effect)`"
            raise capability_error(interceptor.name, interceptor.intercept, late)
        return _checked(interceptor, effect, result, allowed)

    def _perform_last(self, effect: effects.Effect, approved: Sequence[effects.Effect]) -> Steps:
        if isinstance(effect, effects.AskPerson) and isinstance(effect.subject, effects.UNCOMPARED):
            return effects.Rejected(f"{effect.reason}: a person must approve, and no capability here asks persons")
        if any(type(item) is type(effect) and not _is_same_content(item, effect) for item in approved):
            return effects.Rejected(
                "REFUSED: persons approved something else; a capability changed it after it had asked"
            )
        self._record(effects.EffectStarted(effect))
        answer = yield effect
        if isinstance(answer, effects.Outcome):
            return answer
        self._record(effects.EffectPerformed(effect, answer))
        return effects.Allowed(effect, answer)


def ignore(item: effects.Effect | effects.Event) -> None:
    """Do nothing: where effects are only decided, nothing is performed and nothing recorded."""


NO_CHAIN = EffectChain((), ignore, ignore)
"""The chain of all turns without capabilities."""


def _checked(
    interceptor: Interceptor, effect: effects.Effect, outcome: effects.Outcome, allowed: effects.Outcome | None
) -> effects.Outcome:
    """Return an interceptor's outcome. An allowed write must be the one that the rest of the chain has seen."""
    if outcome is allowed:
        return outcome
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
    if isinstance(effect, effects.WRITES) and not (
        isinstance(allowed, effects.Allowed) and outcome.effect is allowed.effect and outcome.answer is allowed.answer
    ):
        return effects.Rejected(f"{interceptor.name} allowed what later capabilities have not seen")
    return effects.Allowed(outcome.effect, outcome.answer)  # only `begin` compares


def _check_question(interceptor: Interceptor, question: effects.AskPerson) -> effects.AskPerson:
    """Return a question to persons with the name of the capability that asks, unless it names a rule."""
    if not interceptor.may_ask:
        raise capability_error(
            interceptor.name, interceptor.intercept, "yields AskPerson without `asks_persons = True`"
        )
    if question.persons is not None and (
        isinstance(question.persons, str) or not isinstance(question.persons, Collection)
    ):
        persons = f"persons of AskPerson must be a list of names, got {question.persons!r}"
        raise capability_error(interceptor.name, interceptor.intercept, persons)
    return question if question.asked_by else replace(question, asked_by=interceptor.name)


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


def _find_violation(interceptor: Interceptor, before: effects.Effect, after: effects.Effect) -> str:
    """Return the reason against an effect that an interceptor yields, or an empty string.

    An effect of another type is new, and need not have all facts of `before`.
    """
    if after is before:
        return ""
    if type(after) is type(before):
        parts = zip(_fixed_parts(after), _fixed_parts(before), strict=True)
        if any(new is not old for new, old in parts):
            return f"{interceptor.name} altered the tool, or the approval that it carries"
    if after.facts is before.facts:
        return ""
    names = {*before.facts, *after.facts} if type(after) is type(before) else {*after.facts}
    altered = {name for name in names if before.facts.get(name) != after.facts.get(name)} - {*interceptor.facts}
    return f"{interceptor.name} altered facts of others: {', '.join(sorted(altered))}" if altered else ""


def _fixed_parts(effect: effects.Effect) -> Sequence[Any]:
    """Return the parts of an effect that no interceptor may replace."""
    if isinstance(effect, (RunTool, StartTool, CheckResult)):
        return effect.tool, effect.call.tool, effect.call.approved
    return (effect.grant,) if isinstance(effect, (effects.CallTool, effects.WriteEntry)) else ()


def _is_same_content(first: effects.Effect, second: effects.Effect) -> bool:
    """Return True if two effects of one type do the same."""
    if first is second:
        return True
    if isinstance(first, RunTool) and isinstance(second, RunTool):
        return is_equal_json([first.call.tool, first.call.args], [second.call.tool, second.call.args])
    return effects.effect_content(first) == effects.effect_content(second)


def _changeable(effect: effects.Effect) -> Any:
    """Return the values of a call or a write that an interceptor could change in place, or None."""
    match effect:
        case effects.WriteEntry():
            return effect.payload, effect.tags, {**effect.facts}
        case effects.CallTool():
            return effect.args, {**effect.facts}
        case effects.WriteMemory():
            return effect.value, {**effect.facts}
    return None


def _refuse_change(interceptor: Interceptor) -> effects.Rejected:
    return effects.Rejected(f"{interceptor.name} changed an effect in place: yield a changed copy")


# --- errors in the code of a capability: with capability, file and line


PAGE = "docs/capabilities.md"


class HookError(TypeError):
    """A hook of a capability breaks the rules for hooks. It fails the turn; the message has the place."""


def capability_error(name: str, hook: Callable[..., Any], problem: str) -> HookError:
    """Return the error that fails a turn because a hook of a capability breaks the rules for hooks."""
    while isinstance(hook, partial):
        hook = hook.func
    return HookError(f"{name}.{getattr(hook, '__name__', 'intercept')}{find_place(hook)} {problem}")


def check_json(name: str, hook: Callable[..., Any], value: Any, expected: str) -> None:
    """Check that a hook returned a JSON object.

    Raises:
        HookError: The value has another type, or a part without a JSON type.
    """
    if not isinstance(value, dict):
        got = type(value).__name__
        raise capability_error(name, hook, f"must return {expected}, got {got}: see {PAGE}")
    for problem in _find_non_json(value, ""):
        raise capability_error(name, hook, f"must return {expected}, got {problem}")


def _find_non_json(value: Any, pointer: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                yield f"the key {key!r} of type {type(key).__name__} at {pointer or '/'}: keys are texts"
            yield from _find_non_json(item, f"{pointer}/{key}")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _find_non_json(item, f"{pointer}/{number}")
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{value} at {pointer}: JSON has no such number"
    elif not (value is None or isinstance(value, (str, bool, int, float))):
        yield f"{type(value).__name__} at {pointer}: convert it to JSON"


def find_place(value: Any) -> str:
    """Return file and line of a function, in brackets, or an empty text."""
    code = getattr(value, "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
