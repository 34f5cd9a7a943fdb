"""The capabilities of a turn that has begun: the chain of its effects, the code around it, and their states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import ENDS, End
from lemming.kernel.plugins.capability_errors import capability_error, check_json
from lemming.kernel.plugins.capability_table import DECISION_RULES, LISTED, REQUEST_RULES, SPEAKING_PROVIDERS, USES
from lemming.kernel.turn.effect_chain import EffectChain
from lemming.kernel.turn.preparation import RunTurn
from lemming.kernel.turn.preparation_chain import starting_capabilities
from lemming.kernel.turn.turn_effects import AskModel, CallTool, EffectPerformed
from lemming.kernel.turn.turn_hooks import Capability, make_interceptor
from lemming.kernel.turn.turn_state import TurnState
from lemming.kernel.turn.turn_values import TurnInputs
from lemming.kernel.turn.turn_view import TurnView


class TurnChain(EffectChain):
    """The capabilities of a turn, in the order in which they are called. `wraps`: what runs around it, outermost first."""

    def __init__(self, capabilities: Iterable[Capability], turn_state: TurnState) -> None:
        snapshots = turn_state.inputs.given
        self._members = [
            (item, TurnView(item.name, turn_state, snapshots.get(item.name, {}), frozenset(item.handles)))
            for item in capabilities
        ]
        self.wraps = [partial(_run_inside, item, view) for item, view in self._members if item.wraps_turns]
        links = [make_interceptor(item, view) for item, view in self._members]
        super().__init__(links, turn_state.perform, turn_state.events.append)

    def reduce_states(self, states: Mapping[str, Json], *, is_applied: bool) -> dict[str, Json]:
        """Return the states for the ledger, by capability, after the events of the turn that count.

        `is_applied`: all events count. Of a failed turn only calls and answers of models do. A capability gets the events
        of the types it handles, whatever others handle.
        """
        reduced = {**states}
        for capability, view in self._members:
            if not capability.reduces_events:
                continue
            state = states.get(capability.name, {})
            for event in view.iter_events():
                is_outside = isinstance(event, EffectPerformed) and isinstance(event.effect, (CallTool, AskModel))
                if is_applied or is_outside:
                    state = capability.reduce(state, event, view)
            if capability.name not in LISTED and is_applied:  # a failed turn must keep the states of the others
                check_json(capability.name, capability.reduce, state, "the state to keep, a JSON object")
            reduced[capability.name] = state
        return {name: state for name, state in reduced.items() if state}


def _run_inside(capability: Capability, view: TurnView, run: RunTurn) -> End:
    """Run a turn inside a capability, and return the end of the turn."""
    if (end := capability.wrap_turn(view, run)) in ENDS:
        return end
    problem = f"must return an end of the turn, got {end!r}: `return run()`"
    raise capability_error(capability.name, capability.wrap_turn, problem)


def find_turn_chain(turn_state: TurnState, plugins: Sequence[str] | None = None) -> TurnChain | None:
    """Return the capabilities of a turn from the recorded inputs, or None for a plain turn.

    `plugins`: the organisation's plugins; None allows any plugin of the process. Raises `ConfigError` for a missing
    capability.
    """
    inputs = turn_state.inputs
    agent, entry = inputs.agent, inputs.model
    # Capabilities without a snapshot, by the other recorded inputs.
    extra_names = [name for name, uses in USES.items() if uses(agent, entry)]
    if entry.provider in SPEAKING_PROVIDERS:
        extra_names.append(SPEAKING_PROVIDERS[entry.provider][0])
    if has_requests(inputs):
        extra_names.append(REQUEST_RULES)
    if not (extra_names or inputs.given):
        return None
    return TurnChain(starting_capabilities(inputs, plugins, extra_names), turn_state)


_WITHOUT_REQUESTS = LISTED.keys() - {REQUEST_RULES, DECISION_RULES}
"""Capabilities whose turns write no request that a person answers; a plugin's may."""


def has_requests(inputs: TurnInputs) -> bool:
    """Return True if a turn serves, shows or can create requests: to a team or to persons."""
    is_shown = inputs.open_requests or inputs.said_requests
    if inputs.current_request or is_shown or inputs.state.requests or "team" in inputs.agent.extensions:
        return True
    return not inputs.given.keys() <= _WITHOUT_REQUESTS
