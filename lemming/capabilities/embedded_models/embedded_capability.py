"""Embedded models as a capability of the engine: only a backend."""

from __future__ import annotations

from lemming.ext import Capability


class EmbeddedModelsCapability(Capability):
    """Embedded models: entries of `config/models.json` with the provider `local`."""

    name = "embedded"
