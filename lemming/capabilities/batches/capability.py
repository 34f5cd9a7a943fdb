"""What batches are to the engine: the calls of a tick go together where a provider takes them so."""

from __future__ import annotations

from lemming.capabilities.batches.queue import Batches
from lemming.kernel.turn.places import CallsOfTick
from lemming.kernel.turn.seams import Capability


class BatchesInUse(Capability):
    """Batches, in the ticks of a run that sends them, and of one that comes after such a run."""

    name = "batches"

    def gathers(self, calls: CallsOfTick) -> Batches:
        """Return where the calls of a tick wait for each other."""
        return Batches(calls)
