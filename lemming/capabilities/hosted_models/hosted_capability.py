"""Capability of hosted models: the backends only."""

from __future__ import annotations

from lemming.ext import Capability


class HostedModelsCapability(Capability):
    """Hosted models: entries of `config/models.json` with a hosted provider."""

    name = "hosted"
