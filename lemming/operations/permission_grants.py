"""Workspace trust: the permissions a person has granted to an organisation on this machine.

An organisation is a folder from an arbitrary author. Every setting beyond plain turns becomes a sentence
(`lemming.queries.permissions_required`), bound to its subject: the contents of files, or the exact text of a command.
The grants are stored outside the folder, in `$XDG_STATE_HOME/lemming/agreed/` (else `~/.local/state/...`), in one
readable file for each organisation. A random word in the grants and in the organisation's `.lemming/made-here` marks an
organisation created on this machine by `lemming init`. Deleting the file revokes all grants.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.base.jsontext import JsonProblem, dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.files.canonical_path import real_path
from lemming.kernel.files.stat_cache import is_file, is_folder, path_exists
from lemming.libraries.output_files import get_state_folder

MADE_HERE_FILE = ".lemming/made-here"
_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True)
class MissingPermission:
    """A permission without a grant. `changed` names the parts changed since an earlier grant."""

    permission: RequiredPermission
    changed: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.changed:
            return self.permission.does
        return f"{self.permission.does} (changed since the permission was granted: {', '.join(self.changed)})"


@dataclass(frozen=True)
class PermissionGrants:
    """Permission grants of a person for the organisation in `base`."""

    base: Path

    def find_missing(self, permissions: Iterable[RequiredPermission]) -> list[MissingPermission]:
        """Return the permissions without a grant, or with a grant for an earlier content."""
        required = list(permissions)
        record = self._load_record() if required else {}
        if not required or self._is_ours(record):
            return []
        grants, own_permissions = _parse_grants(record), record.get("ours")
        if isinstance(own_permissions, dict) and self._is_local(record):
            grants = {**own_permissions, **grants}
        missing = []
        for permission in required:
            does, current = permission.does, permission.bound_to
            if (granted := grants.get(does)) != current:
                previous = granted if isinstance(granted, dict) else {} if does in grants else current
                names = sorted({*previous, *current})
                changed = tuple(name for name in names if previous.get(name) != current.get(name))
                missing.append(MissingPermission(permission, changed))
        return missing

    def grant(self, permissions: Iterable[RequiredPermission]) -> None:
        """Grant permissions in their current form. Raises: DiskError."""
        record = self._load_record()
        grants = _parse_grants(record) | {permission.does: dict(permission.bound_to) for permission in permissions}
        self._write_record({**record, "org": self._org_path, "agreed": grants})

    def record_own_permissions(self, permissions: Iterable[RequiredPermission]) -> None:
        """Record a local organisation's permissions; after a git fetch only new ones need a grant. Raises DiskError."""
        own_permissions = {permission.does: dict(permission.bound_to) for permission in permissions}
        record = self._load_record() if own_permissions else {}
        if record.get("ours") != own_permissions and self._is_ours(record):
            self._write_record({**record, "ours": own_permissions})

    def mark_as_local(self) -> None:
        """Mark the organisation as created on this machine. Raises: DiskError."""
        # Random, so that a foreign folder cannot claim to be created on this machine.
        token = os.urandom(16).hex()
        fs.write_atomic(self.base, MADE_HERE_FILE, f"{token}\n".encode())
        self._write_record({"org": self._org_path, "made_here": token})

    @property
    def file(self) -> Path:
        """The file with the grants."""
        return get_state_folder() / "agreed" / f"{sha256(os.fsencode(self._org_path)).hexdigest()[:24]}.json"

    @property
    def _org_path(self) -> str:
        return str(self.base.resolve())

    @property
    def is_ours(self) -> bool:
        """True for an organisation created on this machine without any git fetch since."""
        return self._is_ours(self._load_record())

    def _is_ours(self, record: Mapping[str, Any]) -> bool:
        return self._is_local(record) and not has_fetched(self.base)

    def _is_local(self, record: Mapping[str, Any]) -> bool:
        token = record.get("made_here")
        try:
            marker = fs.read_bytes(self.base / MADE_HERE_FILE, 100).decode("ascii", "replace").strip()
        except OSError:
            return False
        return isinstance(token, str) and bool(token) and marker == token

    def _load_record(self) -> dict[str, Any]:
        try:
            record = parse(fs.read_bytes(self.file, _LIMIT_BYTES))
        except (OSError, JsonProblem):
            return {}
        return record if isinstance(record, dict) and record.get("org") == self._org_path else {}

    def _write_record(self, record: dict[str, Any]) -> None:
        folder = get_state_folder()
        fs.make_root(folder)
        fs.write_atomic(folder, f"agreed/{self.file.name}", dump_pretty(record))


def _parse_grants(record: Mapping[str, Any]) -> dict[str, Any]:
    grants = record.get("agreed")
    return grants if isinstance(grants, dict) else {}


# --- git fetches ---------------------------------------------------------------------------------
# `FETCH_HEAD` is written by every fetch and pull (git-scm.com/docs/gitrevisions). A folder may lie deep in a
# repository, and `.git` may be a file that says where it is (git-scm.com/docs/gitrepository-layout).


_POINTER_LIMIT_BYTES = 1 << 13


def has_fetched(folder: Path) -> bool:
    """Return True if a git repository around the folder has ever fetched, or is unreadable. Raises: DiskError."""
    real_folder = Path(real_path(str(folder)))
    return any(_has_repository_fetched(parent / ".git") for parent in (real_folder, *real_folder.parents))


def _has_repository_fetched(git: Path) -> bool:
    if is_folder(str(git)):
        return path_exists(f"{git}/FETCH_HEAD")
    if not is_file(str(git)):
        return False
    try:
        work_tree = _resolve_git_folder(git, "gitdir: ")
        common_file = work_tree / "commondir"
        folders = [work_tree, _resolve_git_folder(common_file, "") if is_file(str(common_file)) else work_tree]
    except OSError:
        return True  # an unreadable repository counts as fetched
    return any(path_exists(f"{folder}/FETCH_HEAD") for folder in folders)


def _resolve_git_folder(file: Path, prefix: str) -> Path:
    """Return the folder named in a git pointer file, relative to the pointer file's folder."""
    text = os.fsdecode(fs.read_bytes(file, _POINTER_LIMIT_BYTES)).strip()
    return file.parent / text.removeprefix(prefix)
