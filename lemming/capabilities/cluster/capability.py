"""What a cluster is to the engine: what running the organisation connects to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lemming.kernel.access.bound import code
from lemming.kernel.access.trust import Reach
from lemming.kernel.agents import Agent
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.turn.seams import Capability


class Cluster(Capability):
    """A cluster, in an organisation whose `executor` is one."""

    name = "cluster"

    def reaches(
        self, org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
    ) -> Iterator[Reach]:
        """Yield that its answers are unpickled, and so may run whatever they like."""
        address = config.org.executor_address
        yield code(f"has its calls made by the cluster at {address}, which may run code here")
