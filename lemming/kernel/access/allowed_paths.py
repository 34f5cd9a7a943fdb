"""From a path in a tool call to a place that `permissions.file_access` covers. Nothing is opened.

The other half is `access`, which opens places and trusts no name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from lemming.kernel.access.grants import why_no_grant, why_unsafe
from lemming.kernel.access.nearest_file import nearest_file
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import PermissionDenied, ToolError
from lemming.kernel.base.paths import Components, below_a_name, components, place_of
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.real_place import real_path

Access = Literal["read", "write"]

# What programs obey wherever it lies (git, ssh, the engine): written by an agent, it would be a command.
NEVER_WRITTEN = frozenset({"resume.json", ".lemming", ".git", ".ssh"})
ENGINE_OWNED = frozenset({"config", "logs", ".lemming", paths.TRUST, paths.TICK_FILE})
NEVER_OPEN = ENGINE_OWNED | {"tools", "skills", paths.EVALS}
"""What no grant opens for writing at the top of an organisation; names that begin with a dot neither."""


@dataclass(frozen=True)
class AccessAttempt:
    """What was asked for, by which tool, and which folders the resume grants for it."""

    caller: str
    path: str
    access: Access
    grants: tuple[str, ...]
    nearest: Callable[[bool], str] = field(default=lambda _: "", compare=False)

    def missing(self, *, is_folder: bool = False) -> ToolError:
        """Return the error for a path at which nothing is, with the nearest one that the agent may use."""
        nearest = self.nearest(is_folder)
        hint = f"did you mean {json.dumps(nearest, ensure_ascii=False)}?" if nearest else ""
        return ToolError(f"{self._subject} does not exist", hint=hint)

    def refused(self, why: str = "") -> PermissionDenied:
        """Return the refusal, which names the rule."""
        rule = f"permissions.file_access.allow_{self.access} {json.dumps(self.grants, ensure_ascii=False)}"
        return PermissionDenied(f"{self._subject} refused by {rule}{': ' if why else ''}{why}")

    def failed(self, why: str) -> ToolError:
        """Return the error for a path that is allowed and does not serve."""
        return ToolError(f"{self._subject} {why}")

    @property
    def _subject(self) -> str:
        shown = self.path[:200].encode("utf-8", "replace").decode()
        return f"{self.caller}: {json.dumps(shown, ensure_ascii=False)}"


@dataclass(frozen=True)
class Place:
    """A path that the grants allow, not opened yet: `relative` is walked from `root`, which is trusted.

    `granted` is the folder that allows it, from `root`; empty for `root` itself and for one above it.
    """

    asked: AccessAttempt
    base: Path
    root: Path
    relative: str
    is_granted_folder: bool
    granted: Components = ()

    @property
    def parts(self) -> list[str]:
        """The components of `relative`."""
        return self.relative.split("/") if self.relative else []

    @property
    def effect_root(self) -> str:
        """The `root` of a `FileEffect` here: empty inside the organisation."""
        return "" if self.root == self.base else str(self.root)

    @property
    def key(self) -> str:
        """The `FileEffect.place` of this path."""
        return FileEffect(self.relative, b"", self.effect_root).place


def resolve(agent: Agent, base: Path, path: str, access: Access, *, caller: str) -> Place:
    """Return the place a path names, or raise `PermissionDenied` with the rule that refused it.

    `workspace/...` and `shared/...` name those folders, with or without `./`; any other relative path is
    below the workspace; an absolute one must lie below a granted folder. Nothing is opened yet.
    """
    file_access = agent.permissions.file_access
    granted = file_access.allow_read if access == "read" else file_access.allow_write
    asked = AccessAttempt(
        caller, path, access, tuple(granted), partial(nearest_readable, agent, base, path, access)
    )
    org = components(os.path.normpath(base))
    own = (*org, *paths.workspace_folder(agent.name).split("/"))
    target = _target(asked, org, own)
    covering, refusal = list[Components](), asked.refused()
    for grant in granted:
        try:
            folder = _granted_folder(asked, grant, org, own)
        except PermissionDenied as error:  # that one grants nothing; the others do
            refusal = error
            continue
        if target[: len(folder)] == folder:
            covering.append(folder)
    if not covering:
        raise refusal
    folder = max(covering, key=len)
    below_grant = target[len(folder) :]
    folder, org = _without_links(folder, org)
    asked_at, target = target, (*folder, *below_grant)
    is_inside = target[: len(org)] == org
    root = base if is_inside else Path("/", *folder)
    parts = target[len(org) if is_inside else len(folder) :]
    if access == "write":
        if target == folder:
            raise asked.failed("is a folder")
        _refuse_names(asked, target[len(folder) :])
        if is_inside and target[:-1] != asked_at[:-1] and parts[0] == "agents":
            raise asked.refused("agents, reached under another name, is closed to agents")
        if is_inside:
            refuse_engines(asked, parts, granted=folder[len(org) :])
    granted_parts = folder[len(org) :] if is_inside else ()
    return Place(asked, base, root, "/".join(parts), target == folder, granted_parts)


@dataclass(frozen=True)
class _Kept(AccessAttempt):
    """What was asked for, where the organisation and no grant of a resume says where it lies."""

    def refused(self, why: str = "") -> PermissionDenied:
        """Return the refusal."""
        return PermissionDenied(f"{self._subject} refused{': ' if why else ''}{why}")


def kept_at(base: Path, path: str, *, caller: str, nearest: str = "") -> Place:
    """Return the place of what people keep for agents, by its path in the organisation; for reading only.

    `nearest`: what is named where nothing is at the path.
    """
    asked = _Kept(caller, path, "read", (), lambda _: nearest)
    return Place(asked, base, base, path, is_granted_folder=False)


def nearest_readable(
    agent: Agent, base: Path, path: str, access: Access = "read", is_folder: bool = False
) -> str:
    """Return the path that is nearest to one at which nothing is, as the agent would write it."""
    return nearest_file(agent.name, base, path, granted_places(agent, access), is_folder=is_folder)


def granted_places(agent: Agent, access: Access) -> dict[str, str]:
    """Return each folder that a resume grants, each with the grant; one that is not understood is left out.

    Folders are relative to the organisation, or absolute.
    """
    file_access = agent.permissions.file_access
    granted = file_access.allow_read if access == "read" else file_access.allow_write
    return {
        place_of(agent.name, grant): f"file_access.allow_{access} {grant}"
        for grant in granted
        if not why_no_grant(grant)
    }


def _without_links(granted: Components, org: Components) -> tuple[Components, Components]:
    """Return a granted folder as it is opened, and the organisation's, where they are told apart by links.

    A grant may lead into the organisation through a link of the person who wrote it: then it lies there.
    """
    if granted[: len(org)] == org:
        return granted, org
    real, home = components(real_path(_path(granted))), components(real_path(_path(org)))
    return (*org, *real[len(home) :]) if real[: len(home)] == home else real, org


def _path(parts: Components) -> str:
    return f"/{'/'.join(parts)}"


def _target(asked: AccessAttempt, org: Components, own: Components) -> Components:
    parts = components(asked.path)
    if why := why_unsafe(asked.path, parts):
        raise asked.refused(why)
    if asked.path.startswith("/"):
        return parts
    return below_a_name(parts, org, own) or (*own, *parts)


def _granted_folder(asked: AccessAttempt, grant: str, org: Components, own: Components) -> Components:
    if why := why_no_grant(grant):
        raise asked.refused(f"the resume grants {json.dumps(grant)}, which is not understood: {why}")
    parts = components(grant)
    return parts if grant.startswith("/") else below_a_name(parts, org, own) or parts


def _refuse_names(asked: AccessAttempt, below_grant: Components) -> None:
    """Raise for names that nobody may write inside a grant."""
    for name in below_grant:
        if name.casefold() in NEVER_WRITTEN or name.casefold().endswith(".lock"):
            raise asked.refused(f'"{name}" is never written by an agent')


def refuse_engines(asked: AccessAttempt, in_org: Components, *, granted: Components = ()) -> None:
    """Raise for a path, from the organisation's folder on, that only the engine and people write.

    A grant, however wide, opens workspaces and `shared/`; of the rest only a folder that it names itself, for
    plugins, settings of other programs and the like may lie anywhere. `granted` is that folder.
    """
    if in_org[0] == "shared" and len(in_org) > 1:
        return
    if in_org[0] == "agents" and in_org[2:3] == ("workspace",) and len(in_org) > 3:
        return
    # On file systems that ignore case, or dots and spaces at the end, it has these names too.
    top = in_org[0].casefold().rstrip(". ")
    is_closed = top in (*NEVER_OPEN, "agents") or in_org[0].startswith(".")
    if is_closed:
        raise asked.refused(f"{in_org[0]} of the organisation is written by the engine and by people only")
    if not granted:
        raise asked.refused(
            f"{in_org[0]} of the organisation is written by people, where no grant names the folder itself"
        )
