"""What money is to the engine: it says what a call costs, where its line or the list of prices does."""

from __future__ import annotations

from lemming.kernel.turn.seams import Capability


class Money(Capability):
    """Prices of models in dollars, and sums of what was spent. Credits are the engine's own."""

    name = "money"
