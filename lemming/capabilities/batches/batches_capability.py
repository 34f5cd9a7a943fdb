"""Batches as a capability of the engine: the calls of a tick are sent together if the provider supports
batches.
"""

from __future__ import annotations

from lemming.capabilities.batches.queue import BatchQueue
from lemming.kernel.turn.guards import BatchContext
from lemming.kernel.turn.turn_hooks import Capability


class BatchesCapability(Capability):
    """Batches in a run that sends batches, and in the next run after an interruption."""

    name = "batches"

    def call_batcher(self, batch: BatchContext) -> BatchQueue:
        """Return the queue in which the calls of a tick wait for each other."""
        return BatchQueue(batch)
