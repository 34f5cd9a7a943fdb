"""What answers that are known before are to the engine: backends, and nothing else."""

from __future__ import annotations

from lemming.kernel.turn.seams import Capability


class KnownAnswers(Capability):
    """Scripts and recordings, which lines of `config/models.json` with one of its providers stand for."""

    name = "scripted"
