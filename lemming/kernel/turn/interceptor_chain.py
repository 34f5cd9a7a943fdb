"""Capabilities that take part in a turn: their effect chain, what they wrap, and the states they keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.org.capability_usage import find_used_capabilities
from lemming.kernel.plugins.capability_table import DECISION_RULES, LISTED, REQUEST_RULES, SPEAKING_PROVIDERS, USES
from lemming.kernel.turn.effect_chain import EffectChain, check_json
from lemming.kernel.turn.preparation import RunTurn
from lemming.kernel.turn.preparation_chain import load_capabilities
from lemming.kernel.turn.prompt_input import TrustLabeler
from lemming.kernel.turn.prompt_prefix import TickContext
from lemming.kernel.turn.turn_effects import AskModel, CallTool, EffectPerformed
from lemming.kernel.turn.turn_hooks import Capability
from lemming.kernel.turn.turn_values import TurnInputs
from lemming.kernel.turn.turn_view import TurnView

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_state import TurnState


class TurnCapabilities:
    """Capabilities of a turn, in the order in which they are called.

    `chain` is None if none of them handles an effect, and `wraps` has what runs around the turn, outermost first.
    """

    def __init__(
        self, capabilities: Iterable[Capability], snapshots: Mapping[str, Json], turn_state: TurnState | None
    ) -> None:
        self.chain: EffectChain | None = None
        self.wraps: list[Callable[[RunTurn], End]] = []
        self._members: list[tuple[Capability, TurnView]] = []
        if turn_state is None:
            return
        for capability in capabilities:
            snapshot = snapshots.get(capability.name, {})
            view = TurnView(capability.name, turn_state, snapshot, frozenset(capability.handles))
            self._members.append((capability, view))
            if capability.wraps_turns:
                self.wraps.append(partial(capability.wrap_turn, view))
        links = [capability.interceptor(view) for capability, view in self._members]
        if any(link.handles for link in links):
            self.chain = EffectChain(links, turn_state.perform, turn_state.events.append)

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


NO_CAPABILITIES = TurnCapabilities((), {}, None)
"""The capabilities of a plain turn."""


def find_turn_capabilities(turn_state: TurnState, plugins: Sequence[str] | None = None) -> TurnCapabilities:
    """Return the capabilities of a turn from the recorded inputs.

    Raises `ConfigError` for a missing capability.

    `plugins`: the organisation's plugins; None allows any plugin of the process.
    """
    inputs = turn_state.inputs
    agent, entry = inputs.agent, inputs.model
    snapshots: Mapping[str, Json] = inputs.given
    # Capabilities without a snapshot, by the other recorded inputs.
    extra_names = [name for name, uses in USES.items() if uses(agent, entry)]
    if entry.provider in SPEAKING_PROVIDERS:
        extra_names.append(SPEAKING_PROVIDERS[entry.provider][0])
    if has_requests(inputs):
        extra_names.append(REQUEST_RULES)
    if not (extra_names or snapshots):
        return NO_CAPABILITIES
    return TurnCapabilities(starting_capabilities(inputs, plugins, extra_names), snapshots, turn_state)


_WITHOUT_REQUESTS = LISTED.keys() - {REQUEST_RULES, DECISION_RULES}
"""Capabilities whose turns write no request that a person answers; a plugin's may."""


def has_requests(inputs: TurnInputs) -> bool:
    """Return True if a turn serves, shows or can create requests: to a team or to persons."""
    is_shown = inputs.open_requests or inputs.said_requests
    if inputs.task or is_shown or inputs.state.requests or "team" in inputs.agent.extensions:
        return True
    return not inputs.given.keys() <= _WITHOUT_REQUESTS


def starting_capabilities(
    inputs: TurnInputs, plugins: Sequence[str] | None, extra_names: Iterable[str] = ()
) -> list[Capability]:
    """Return the capabilities that a turn began with. Raises `ConfigError` for a missing capability."""
    try:
        return load_capabilities({*inputs.given, *extra_names}, plugins)
    except ConfigError as error:
        turn = f"the turn of {inputs.agent.name} in tick {inputs.tick}"
        message = f"{turn} was begun with {' and '.join(sorted(inputs.given))}: {error.message}"
        raise ConfigError(message, where=error.where, hint=error.hint) from error


def find_trust_labeler(tick_context: TickContext, agent: Agent) -> TrustLabeler | None:
    """Return the trust labeler of an agent's turns, or None without trust tracking."""
    config = tick_context.config
    capabilities = load_capabilities(find_used_capabilities(agent, config), config.org.plugins)
    labelers = (item.trust_labeler(tick_context) for item in capabilities)
    return next((labeler for labeler in labelers if labeler is not None), None)
