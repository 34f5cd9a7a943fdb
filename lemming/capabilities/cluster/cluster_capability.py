"""Clusters as a capability of the engine: the required permission to connect."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lemming.ext import Capability
from lemming.kernel.access.permission_bindings import code_permission
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation


class ClusterCapability(Capability):
    """A cluster as the organisation's `executor`."""

    name = "cluster"


def iter_permissions(
    org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
) -> Iterator[RequiredPermission]:
    """Yield the permission for the cluster: answers are unpickled, and unpickling may run any code."""
    address = config.org.executor_address
    yield code_permission(f"has its calls made by the cluster at {address}, which may run code here")
