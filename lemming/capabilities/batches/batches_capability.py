"""Batches as a capability of the engine: the calls of a tick are sent together if the provider supports batches."""

from __future__ import annotations

from lemming.ext import Capability


class BatchesCapability(Capability):
    """Batches in a run that sends batches, and in the next run after an interruption."""

    name = "batches"
