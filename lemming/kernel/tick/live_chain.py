"""The chain of live effects of one turn: before a call runs, and before a request is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from lemming.kernel.plugins.capability_loader import get_capability, sort_capabilities
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.effect_chain import EffectChain, Interceptor, Steps
from lemming.kernel.turn.live_phase import LIVE_EFFECTS, CheckResult, LivePhase, RunTool
from lemming.kernel.turn.turn_effects import (
    Allowed,
    AskPerson,
    Deferred,
    Effect,
    EffectFinished,
    Event,
    Outcome,
    Rejected,
    Suspended,
)
from lemming.kernel.turn.turn_hooks import Capability
from lemming.kernel.turn.turn_view import TurnView

E = TypeVar("E", bound=Effect)


class LiveChain(EffectChain):
    """The interceptors of a turn's live effects."""

    def __init__(self, phase: LivePhase, capabilities: Iterable[Capability]) -> None:
        self.phase, capabilities = phase, [*capabilities]
        self._by_results = {item.name for item in capabilities if item.decides_by_results}
        interceptors = [
            Capability.interceptor(item, TurnView(item.name, phase, phase.inputs.given.get(item.name, {})))
            for item in capabilities
        ]
        super().__init__([*interceptors, _NOBODY_ASKS], _perform, self._note_grant)

    def start(self, effect: E) -> tuple[E | Outcome, Steps]:
        """Return an effect as all interceptors agreed to it, or its outcome, and the steps that await its answer."""
        steps, answer = self.begin(effect), None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as stop:
                outcome: Outcome = stop.value
                return outcome, steps
            if isinstance(request, type(effect)):
                return request, steps
            answer = _perform(request)

    def decides_by_results(self, effect: RunTool) -> bool:
        """Return True if the decision about a call may depend on the results of other calls."""
        interceptors = self._by_type.get(RunTool, ())
        if any(item.name in self._by_results for item in interceptors):
            return True
        # Facts follow from earlier results, and another capability may decide by them.
        return any(item.facts for item in interceptors) and len(self.find_participants(effect)) > 1

    def _note_grant(self, event: Event) -> None:
        match event:
            case EffectFinished(AskPerson(), Allowed(answer=Mapping() as grant)):
                self.phase.grants = {**self.phase.grants, **grant}


def _perform(effect: Effect) -> Any:
    """Return the result to check; refuse other effects that an interceptor requests beside its own."""
    return effect.result if isinstance(effect, CheckResult) else Rejected(f"{type(effect).__name__} is no effect here")


_NOBODY_ASKS = Interceptor(
    "",
    (AskPerson,),
    (),
    lambda effect: Rejected(f"REFUSED: a gate asks about it ({effect.asked_by}), and nothing here asks anybody"),
)
"""Answers questions that no capability takes."""


def make_live_chain(phase: LivePhase, active: Iterable[Capability], plugins: Sequence[str] | None) -> LiveChain | None:
    """Return the chain of the live effects of a turn, or None if no capability intercepts them.

    Capabilities of the turn's record take part, and `active` ones that join later. Raises `ConfigError` for a missing one.
    """
    snapshots = phase.inputs.given
    by_name = {item.name: item for item in active if item.name in snapshots or item.joins_later}
    by_name |= {name: get_capability(name, plugins) for name in snapshots if name not in by_name}
    capabilities = [by_name[name] for name in sort_capabilities(by_name, plugins)] if by_name else []
    if not any(effect in (*LIVE_EFFECTS, AskPerson) for item in capabilities for effect in item.handles):
        return None
    return LiveChain(phase, _writers_first(capabilities))


def _writers_first(capabilities: Sequence[Capability]) -> Iterator[Capability]:
    """Yield capabilities in order, but writers of facts before readers of the same facts."""
    remaining = [*capabilities]
    while remaining:
        written = [{*item.facts} for item in remaining]
        ready = next(
            (
                index
                for index, item in enumerate(remaining)
                if not any(facts & {*item.reads} for other, facts in enumerate(written) if other != index)
            ),
            0,  # a circle: in their order
        )
        yield remaining.pop(ready)


def to_result(outcome: Outcome) -> ToolResult:
    """Return the result of a call with this outcome."""
    match outcome:
        case Allowed(answer=ToolResult() as result):
            return result
        case Rejected(reason, is_final):
            return ToolResult(False, reason, outcome="refused", on_error="stop" if is_final else "return")
        case Deferred(reason):
            return ToolResult(False, reason, outcome="deferred")
        case Suspended(request=request, reason=reason, by=by) if request is not None:
            return ToolResult(False, reason, outcome="pending", entries=(request,), entries_by=by)
    return ToolResult(False, "REFUSED: a person would have to approve it, and nobody was asked", outcome="refused")
