"""The scripted capability: backends with predefined answers, and nothing else."""

from __future__ import annotations

from lemming.ext import Capability


class ScriptedAnswersCapability(Capability):
    """Scripts and recordings, given by lines of `config/models.json` with one of these providers."""

    name = "scripted"
