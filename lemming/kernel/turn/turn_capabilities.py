"""The capabilities that take part in one turn: their effect chain, what they wrap, and the states they keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import End
from lemming.kernel.plugins.capability_table import LISTED
from lemming.kernel.turn.capability_errors import check_json
from lemming.kernel.turn.effect_chain import EffectChain
from lemming.kernel.turn.turn_context import RunTurn
from lemming.kernel.turn.turn_effects import AskModel, CallTool, EffectPerformed
from lemming.kernel.turn.turn_view import TurnView

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_hooks import Capability
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
