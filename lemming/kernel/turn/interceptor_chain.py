"""Capabilities that take part in a turn, called hook by hook in their order (`turn.turn_hooks`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.capability_state import StateQuery
from lemming.kernel.org.capability_usage import find_used_capabilities
from lemming.kernel.plugins.capability_loader import get_capability, sort_capabilities
from lemming.kernel.plugins.capability_table import APPROVALS, LISTED, REQUESTS, SPEAKING_PROVIDERS, USES
from lemming.kernel.turn.check_subjects import ResumeCheck
from lemming.kernel.turn.descriptions import AuxiliaryPrompt
from lemming.kernel.turn.guards import TrustLabeler
from lemming.kernel.turn.preparation_chain import agent_capabilities
from lemming.kernel.turn.prompt_prefix import TickContext
from lemming.kernel.turn.turn_capabilities import NO_CAPABILITIES, TurnCapabilities
from lemming.kernel.turn.turn_hooks import Capability
from lemming.kernel.turn.turn_values import Purpose, TurnInputs

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_state import TurnState


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
        extra_names.append(REQUESTS)
    if not (extra_names or snapshots):
        return NO_CAPABILITIES
    return TurnCapabilities(starting_capabilities(inputs, plugins, extra_names), snapshots, turn_state)


_WITHOUT_REQUESTS = LISTED.keys() - {REQUESTS, APPROVALS}
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
        return [get_capability(name, plugins) for name in sort_capabilities({*inputs.given, *extra_names}, plugins)]
    except ConfigError as error:
        turn = f"the turn of {inputs.agent.name} in tick {inputs.tick}"
        message = f"{turn} was begun with {' and '.join(sorted(inputs.given))}: {error.message}"
        raise ConfigError(message, where=error.where, hint=error.hint) from error


def find_trust_labeler(tick_context: TickContext, agent: Agent) -> TrustLabeler | None:
    """Return the trust labeler of an agent's turns, or None without trust tracking."""
    return next(
        (
            labeler
            for item in agent_capabilities(agent, tick_context.config)
            if (labeler := item.trust_labeler(tick_context)) is not None
        ),
        None,
    )


def resume_blocker(inputs: TurnInputs, tick_context: TickContext) -> str:
    """Return the reason an interrupted turn cannot resume, or an empty string."""
    plugins = tick_context.config.org.plugins
    extra_names = (
        find_used_capabilities(inputs.agent, tick_context.config) & LISTED.keys()
    )  # applies now and is not in its record
    for item in starting_capabilities(inputs, plugins, extra_names):
        for problem in item.check(ResumeCheck(inputs, tick_context)):
            return problem.message
    return ""


def parse_purpose(raw: Json) -> Purpose:
    """Return the purpose of a turn from the record. Raises `ValueError` for invalid JSON."""
    from lemming.kernel.turn.current_request import CurrentRequest  # most turns have none

    purpose: Purpose = CurrentRequest.from_json(raw)
    return purpose


def auxiliary_prompts(snapshots: Mapping[str, Json]) -> Iterator[AuxiliaryPrompt]:
    """Yield the prompts that capabilities ask before the turn's own.

    Raises `ConfigError` for a missing capability.
    """
    for name in sort_capabilities(snapshots) if snapshots else ():
        yield from StateQuery(AuxiliaryPrompt, snapshots[name]).ask(get_capability(name))
