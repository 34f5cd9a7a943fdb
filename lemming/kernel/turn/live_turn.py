"""A turn as an interceptor of live effects sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lemming.kernel.files.field_types import Json
from lemming.kernel.turn.live_phase import LivePhase
from lemming.kernel.turn.turn_view import TurnView

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_state import TurnState


class LiveTurn(TurnView):
    """A turn as one capability sees it in the live phase: inputs, snapshot, own state, and `live`."""

    __slots__ = ("_live",)

    def __init__(self, name: str, live: LivePhase, snapshot: Json) -> None:
        super().__init__(name, cast("TurnState", live), snapshot)
        self._live = live

    @property
    def live(self) -> LivePhase:
        """The live phase."""
        return self._live
