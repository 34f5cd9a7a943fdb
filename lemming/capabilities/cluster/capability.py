"""What a cluster is to the engine: what running the organisation connects to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lemming.access.bound import code
from lemming.access.trust import Reach
from lemming.agents import Agent
from lemming.org.config import Config
from lemming.org.organisation import Organisation
from lemming.turn.seams import Capability


class Cluster(Capability):
    """A cluster, in an organisation whose `executor` is one."""

    name = "cluster"

    def reaches(
        self, org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
    ) -> Iterator[Reach]:
        """Yield that its answers are unpickled, and so may run whatever they like."""
        address = config.org.executor_address
        yield code(f"has its calls made by the cluster at {address}, which may run code here")
