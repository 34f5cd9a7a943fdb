"""What embedded models are to the engine: a backend, and nothing else."""

from __future__ import annotations

from lemming.kernel.turn.seams import Capability


class EmbeddedModels(Capability):
    """Embedded models, which lines of `config/models.json` with the provider `local` stand for."""

    name = "embedded"
