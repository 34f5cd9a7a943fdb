"""The key `workspace` of a resume: the repository and the branch that a worker works on. Format: docs/workers.md."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lemming.ext import describe_field, make_field
from lemming.kernel.base import paths
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.files import fs
from lemming.kernel.org.resume import Agent


@dataclass(frozen=True, kw_only=True)
class CheckCommand:
    """A command whose exit status is evidence: it runs in a fresh clone with the patch applied, in the sandbox."""

    command: list[str] = field(metadata=describe_field("Program and arguments.", min_length=1))
    timeout_s: float = make_field(600.0, "Time limit in seconds.", gt=0, le=86_400)


@dataclass(frozen=True, kw_only=True)
class WorkspaceSettings:
    """A repository and a branch on which an agent may work."""

    repository: str = field(
        metadata=describe_field("Folder of a git repository, absolute or relative to the organisation.", min_length=1)
    )
    branch: str = make_field("", "Branch that patches are merged into; empty: lemming/NAME. Never a checked-out one.")
    base: str = make_field("", "Branch that the work starts from; empty: the repository's current one.")
    paths: list[str] = make_field(list, "Patterns of paths that a patch may change, such as src/**; empty: any path.")
    checks: list[CheckCommand] = make_field(list, "Commands that must pass before a patch is merged.")
    sandbox: Literal["required", "none"] = make_field(
        "required", '"none": the harness runs unconfined, which you must agree to by `lemming trust`.'
    )
    copy: Literal["shared", "full"] = make_field(
        "shared",
        'Objects of the private clone. "shared": those of the repository, also its stash; "full": a copy of what '
        "the branch needs.",
    )
    readable: list[str] = make_field(
        list, "Further absolute folders that the sandbox may read, such as those of a toolchain."
    )
    max_corrections: int = make_field(2, "Times that the harness may correct what the checks find.", ge=0, le=20)
    max_conflicts: int = make_field(3, "Conflicts of one request in a row, then its asker decides.", ge=0, le=20)
    max_file_bytes: int = make_field(5_000_000, "Maximum bytes of a changed file; a larger one is left out.", ge=1)

    def branch_name(self, agent: str) -> str:
        """Return the branch that patches of an agent are merged into."""
        return self.branch or f"lemming/{agent}"


@dataclass(frozen=True, kw_only=True)
class WorkspaceResumeSettings:
    """Keys of a resume that belong to workers."""

    workspace: WorkspaceSettings | None = make_field(
        None, "Repository and branch that the agent works on: docs/workers.md."
    )


def locate_repository(base: str | os.PathLike[str], repository: str) -> Path:
    """Return the folder of a workspace's repository, in a rehearsal that of the organisation that is rehearsed."""
    with suppress(OSError, JsonProblem, TypeError, KeyError):
        base = parse(fs.read_bytes(Path(base) / paths.REHEARSAL_FILE, 1 << 20))["of"]
    return Path(base) / repository


def get_workspace(agent: Agent) -> WorkspaceSettings | None:
    """Return an agent's workspace, or None for an agent without a repository."""
    settings: Any = agent.extensions.get("workspace")
    return settings if isinstance(settings, WorkspaceSettings) else None
