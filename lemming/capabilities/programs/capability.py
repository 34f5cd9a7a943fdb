"""What programs as models are to the engine: a backend, whose programs a person agrees to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lemming.kernel.access.bound import program
from lemming.kernel.access.trust import Reach
from lemming.kernel.agents import Agent
from lemming.kernel.org.config import MODELS_FILE, Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.turn.seams import Capability


class Programs(Capability):
    """Programs, which lines of `config/models.json` with the provider `cli` stand for."""

    name = "programs"

    def reaches(
        self, org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
    ) -> Iterator[Reach]:
        """Yield the programs of all lines, as each may be taken by a resume."""
        for key, entry in config.models.items():
            if entry.provider == "cli":
                yield program(org, f"{MODELS_FILE} {key}", entry.options)
