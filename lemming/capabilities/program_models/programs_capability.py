"""The programs capability: model backends whose programs need the user's approval."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lemming.ext import Capability
from lemming.kernel.access.permission_bindings import program_permission
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent
from lemming.kernel.org.config import MODELS_FILE, Config
from lemming.kernel.org.organisation import Organisation


class ProgramsCapability(Capability):
    """Programs as models, given by lines of `config/models.json` with the provider `cli`."""

    name = "programs"


def iter_permissions(
    org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
) -> Iterator[RequiredPermission]:
    """Yield a permission for the program of each line, because any resume may use any line."""
    for key, entry in config.models.items():
        if entry.provider == "cli":
            yield program_permission(org, f"{MODELS_FILE} {key}", entry.options)
