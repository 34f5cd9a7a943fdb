"""Resolution of a tool call's path to a path covered by `permissions.file_access`. Nothing is opened.

The counterpart is `access`, which opens paths and trusts no name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Literal

from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import PermissionDenied, ToolError
from lemming.kernel.files.canonical_path import real_path
from lemming.kernel.files.file_effects import FileEffect

Access = Literal["read", "write"]
COMPONENT_LIMIT_BYTES = 255
DEPTH_LIMIT = 32

MEMORY_GRANT = re.compile(r"(?P<owner>[^/*]+)/(?P<key>[^/]+)")
"""Form of a memory in `permissions.read_memories`."""

# Programs obey these wherever they are (git, ssh, the engine): an agent that writes one gives a command.
NEVER_WRITTEN = frozenset({"resume.json", ".lemming", ".git", ".ssh"})
ENGINE_OWNED = frozenset({"config", "logs", ".lemming", paths.TRUST, paths.TICK_FILE})
NEVER_OPEN = ENGINE_OWNED | {"tools", "skills", paths.EVALS}
"""Top-level names that no grant opens for writing; names with a leading dot are closed too."""


@dataclass(frozen=True)
class AccessAttempt:
    """A requested path, the calling tool, and the folders granted by the resume."""

    caller: str
    path: str
    access: Access
    grants: tuple[str, ...]
    nearest: Callable[[bool], str] = field(default=lambda _: "", compare=False)

    def missing(self, *, is_folder: bool = False) -> ToolError:
        """Return the error for a missing path, with the nearest path available to the agent."""
        nearest = self.nearest(is_folder)
        hint = f"did you mean {json.dumps(nearest, ensure_ascii=False)}?" if nearest else ""
        return ToolError(f"{self._describe_attempt} does not exist", hint=hint)

    def to_denial(self, reason: str = "") -> PermissionDenied:
        """Return the refusal, which names the rule."""
        rule = f"permissions.file_access.allow_{self.access} {json.dumps(self.grants, ensure_ascii=False)}"
        return PermissionDenied(f"{self._describe_attempt} refused by {rule}{': ' if reason else ''}{reason}")

    def to_tool_error(self, reason: str) -> ToolError:
        """Return the error for an allowed path that cannot be used."""
        return ToolError(f"{self._describe_attempt} {reason}")

    @property
    def _describe_attempt(self) -> str:
        path_text = self.path[:200].encode("utf-8", "replace").decode()
        return f"{self.caller}: {json.dumps(path_text, ensure_ascii=False)}"


@dataclass(frozen=True)
class AllowedPath:
    """A path allowed by the grants, not opened yet: `relative` is walked from the trusted `root`.

    `granted` is the allowing folder, relative to `root`; empty for `root` itself and for a folder above.
    """

    attempt: AccessAttempt
    base: Path
    root: Path
    relative: str
    is_granted_folder: bool
    granted: paths.Components = ()

    @property
    def parts(self) -> list[str]:
        """The components of `relative`."""
        return self.relative.split("/") if self.relative else []

    @property
    def effect_root(self) -> str:
        """The `root` of a `FileEffect` for this path: empty inside the organisation."""
        return "" if self.root == self.base else str(self.root)

    @property
    def path_key(self) -> str:
        """The `FileEffect.path_key` of this path."""
        return FileEffect(self.relative, b"", self.effect_root).path_key


def resolve_path(agent: Agent, base: Path, path: str, access: Access, *, caller: str) -> AllowedPath:
    """Return the allowed path for a name. Raise `PermissionDenied` with the violated rule.

    `workspace/...` and `shared/...` name these folders, with or without `./`; any other relative path is
    below the workspace; an absolute path must be below a granted folder. Nothing is opened yet.
    """
    file_access = agent.permissions.file_access
    grants = file_access.allow_read if access == "read" else file_access.allow_write
    attempt = AccessAttempt(caller, path, access, tuple(grants), partial(nearest_readable, agent, base, path, access))
    org = paths.components(os.path.normpath(base))
    workspace = (*org, *paths.workspace_folder(agent.name).split("/"))
    target = _resolve_target(attempt, org, workspace)
    covering, refusal = list[paths.Components](), attempt.to_denial()
    for grant in grants:
        if reason := grant_error(grant):  # this grant is invalid; the others apply
            message = f"the resume grants {json.dumps(grant)}, which is not understood: {reason}"
            refusal = attempt.to_denial(message)
            continue
        folder = paths.components(grant)
        if not grant.startswith("/"):
            folder = paths.expand_named_root(folder, org, workspace) or folder
        if target[: len(folder)] == folder:
            covering.append(folder)
    if not covering:
        raise refusal
    # The longest: elsewhere in the organisation only a grant that names the folder opens it.
    folder = max(covering, key=len)
    below_grant = target[len(folder) :]
    folder, org = _resolve_links(folder, org)
    requested, target = target, (*folder, *below_grant)
    is_inside = target[: len(org)] == org
    root = base if is_inside else Path("/", *folder)
    parts = target[len(org) if is_inside else len(folder) :]
    if access == "write":
        if target == folder:
            raise attempt.to_tool_error("is a folder")
        for name in target[len(folder) :]:
            # A volume that ignores case opens `RESUME.JSON` as `resume.json`.
            if name.casefold() in NEVER_WRITTEN or name.casefold().endswith(".lock"):
                raise attempt.to_denial(f'"{name}" is never written by an agent')
        # A link may lead into the folder of another agent: `agents/` opens under its own name only.
        if is_inside and target[:-1] != requested[:-1] and parts[0] == "agents":
            raise attempt.to_denial("agents, reached under another name, is closed to agents")
        if is_inside:
            require_agent_writable(attempt, parts, grants=folder[len(org) :])
    granted_parts = folder[len(org) :] if is_inside else ()
    return AllowedPath(attempt, base, root, "/".join(parts), target == folder, granted_parts)


@dataclass(frozen=True)
class _OrgFileAccess(AccessAttempt):
    """A requested path whose location is defined by the organisation, not by a grant of a resume."""

    def to_denial(self, reason: str = "") -> PermissionDenied:
        """Return the refusal."""
        return PermissionDenied(f"{self._describe_attempt} refused{': ' if reason else ''}{reason}")


def resolve_org_path(base: Path, path: str, *, caller: str, nearest: str = "") -> AllowedPath:
    """Return the read-only path of a file kept for agents by people. `nearest`: the suggestion for a missing path."""
    attempt = _OrgFileAccess(caller, path, "read", (), lambda _: nearest)
    return AllowedPath(attempt, base, base, path, is_granted_folder=False)


def granted_folders(agent: Agent, access: Access) -> dict[str, str]:
    """Return the folders granted by a resume, each with its grant; invalid grants are left out.

    Folders are relative to the organisation, or absolute.
    """
    file_access = agent.permissions.file_access
    grants = file_access.allow_read if access == "read" else file_access.allow_write
    return {
        paths.resolve_agent_path(agent.name, grant): f"file_access.allow_{access} {grant}"
        for grant in grants
        if not grant_error(grant)
    }


def _resolve_links(granted: paths.Components, org: paths.Components) -> tuple[paths.Components, paths.Components]:
    """Return the granted folder and the organisation's folder, with links resolved if the paths differ.

    A grant may lead into the organisation through a link made by the author of the grant. The folder then
    counts as inside.
    """
    if granted[: len(org)] == org:
        return granted, org
    real_granted, real_org = (paths.components(real_path(f"/{'/'.join(parts)}")) for parts in (granted, org))
    return (*org, *real_granted[len(real_org) :]) if real_granted[: len(real_org)] == real_org else real_granted, org


def _resolve_target(attempt: AccessAttempt, org: paths.Components, workspace: paths.Components) -> paths.Components:
    parts = paths.components(attempt.path)
    if reason := unsafe_path_reason(attempt.path, parts):
        raise attempt.to_denial(reason)
    if attempt.path.startswith("/"):
        return parts
    return paths.expand_named_root(parts, org, workspace) or (*workspace, *parts)


def require_agent_writable(attempt: AccessAttempt, in_org: paths.Components, *, grants: paths.Components = ()) -> None:
    """Raise an error for a path, relative to the organisation, that only the engine and people may write.

    A grant, however wide, opens workspaces and `shared/`; elsewhere it opens only a folder it names itself,
    because plugins, settings of other programs and similar files may be anywhere. `grants` is this folder, relative too.
    """
    if in_org[0] == "shared" and len(in_org) > 1:
        return
    if in_org[0] == "agents" and in_org[2:3] == ("workspace",) and len(in_org) > 3:
        return
    # File systems that ignore case, or trailing dots and spaces, open it under these spellings too.
    top = in_org[0].casefold().rstrip(". ")
    is_closed = top in (*NEVER_OPEN, "agents") or in_org[0].startswith(".")
    if is_closed:
        raise attempt.to_denial(f"{in_org[0]} of the organisation is written by the engine and by people only")
    if not grants:
        raise attempt.to_denial(
            f"{in_org[0]} of the organisation is written by people, where no grant names the folder itself"
        )


def grant_error(grant: str) -> str:
    """Return the reason a granted folder is invalid, or an empty string.

    >>> grant_error("./shared/news"), grant_error("shared/../config")
    ('', '".." leads outside the granted folders')
    """
    parts = paths.components(grant)
    if reason := unsafe_path_reason(grant, parts):
        return reason
    if "*" in grant:
        return '"*" is not allowed in a folder\'s name; a grant covers all files below a folder'
    if grant.startswith("/") or parts[:1] in (("workspace",), ("shared",)):
        return ""
    return "it is no folder that can be granted"


def unsafe_path_reason(path: str, parts: paths.Components) -> str:
    """Return the reason a path is refused outright, or an empty string."""
    if any(character < " " or character == "\x7f" for character in path):
        return "control characters are not allowed"
    if "\\" in path:
        return 'the separator is "/"'
    if ".." in parts:
        return '".." leads outside the granted folders'
    if parts and parts[0].startswith("~"):
        return '"~" has no meaning here'
    if len(parts) > DEPTH_LIMIT:
        return f"more than {DEPTH_LIMIT} folders deep"
    try:
        longest = max((len(part.encode("utf-8")) for part in parts), default=0)
    except UnicodeEncodeError:
        return "not text"
    return f"a name is longer than {COMPONENT_LIMIT_BYTES} bytes" if longest > COMPONENT_LIMIT_BYTES else ""


MIN_SIMILARITY = 0.8
"""High, because different paths share much of their text."""
MAX_FILES, MAX_FOLDERS = 2000, 500
"""Limits of the search: files beyond them are not suggested."""


def nearest_readable(agent: Agent, base: Path, path: str, access: Access = "read", is_folder: bool = False) -> str:
    """Return the existing path nearest to a missing path, as the agent would write it, or an empty string.

    Only granted folders are searched: those of the agent's workspace and `shared/`, and external ones. No link is
    followed.
    """
    candidates: dict[str, None] = {}
    workspace = paths.workspace_folder(agent.name)
    for folder in sorted(granted_folders(agent, access)):
        if folder == workspace or folder.startswith(f"{workspace}/"):
            name = folder[len(workspace) + 1 :]
        elif folder.startswith("/") or folder.split("/")[0] == "shared":
            name = folder
        else:
            continue
        for relative in _iter_names(os.path.join(base, folder), is_folder=is_folder):
            if len(candidates) >= MAX_FILES:
                break
            candidates[f"{name}/{relative}" if name else relative] = None
    requested = PurePosixPath(path.strip().removeprefix("./").removeprefix("workspace/"))
    close_matches = get_close_matches(str(requested), candidates, n=5, cutoff=MIN_SIMILARITY)
    # Files of one folder share its name and their suffixes: the stems decide.
    close_matches = [
        candidate for candidate in close_matches if get_close_matches(requested.stem, [PurePosixPath(candidate).stem])
    ]
    if close_matches:
        return close_matches[0]
    same_name = [candidate for candidate in candidates if PurePosixPath(candidate).name == requested.name]
    same_name = same_name or [candidate for candidate in candidates if PurePosixPath(candidate).stem == requested.stem]
    return same_name[0] if len(same_name) == 1 else ""


def _iter_names(folder: str, *, is_folder: bool) -> Iterator[str]:
    """Yield the paths below a folder, relative to the folder: of folders, or of files."""
    for parent, folders, files in islice(os.walk(folder), MAX_FOLDERS):
        folders[:] = sorted(folder_name for folder_name in folders if not folder_name.startswith("."))
        for name in folders if is_folder else sorted(files):
            file = os.path.join(parent, name)
            if name.isprintable() and not os.path.islink(file):
                yield os.path.relpath(file, folder)
