"""What hosted models are to the engine: backends, and nothing else."""

from __future__ import annotations

from lemming.kernel.turn.seams import Capability


class HostedModels(Capability):
    """Models that servers have, which lines of `config/models.json` with one of its providers stand for."""

    name = "hosted"
