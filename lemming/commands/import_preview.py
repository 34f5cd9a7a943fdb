"""Preview of an applied document, computed in a temporary copy of the target."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from lemming.import_export.apply_document import PlannedWrite, list_loosened_guards
from lemming.import_export.apply_document import apply_writes as write_changes
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.org.config import Config, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.queries.org_validation import validate_agents, validate_config
from lemming.queries.permissions_required import list_required_permissions

_LIMIT_BYTES = 1 << 20
_TOP_LEVEL_FILE = "AGENTS.md"
_COPIED_FOLDERS = ("config", "agents", "shared", "skills", "tools", "evals")
_EXCLUDED_FOLDERS = frozenset({"outbox", "memory", "logs", "workspace"})
_IDENTIFIER = re.compile(rb"[\w.-]+")
_QUOTED_TEXT = re.compile(r'"([^"]+)"')


class ChangePreview(NamedTuple):
    """Effects of a document: new code and permissions, loosened guards, and the resulting problems."""

    effects: Sequence[str]
    loosened_guards: Sequence[str]
    problems: Sequence[Problem]

    @property
    def errors(self) -> list[Problem]:
        """The problems that prevent the organisation from running."""
        return [problem for problem in self.problems if problem.severity == "error"]


def preview_changes(base: Path, changes: list[PlannedWrite], names: Iterable[str]) -> ChangePreview:
    """Preview changes for an organisation, of the agents `names`. Existing effects and problems are left out."""
    with TemporaryDirectory(prefix="lemming-apply-") as name:
        old_copy, new_copy = Path(name, "before"), Path(name, "after")
        for folder in (old_copy, new_copy):
            fs.make_root(folder)
            _copy_settings(base, folder)
        write_changes(new_copy, changes)
        old_permissions = {*map(_permission_key, _list_permissions(old_copy))}
        permissions = _list_permissions(new_copy)
        new_permissions = [item for item in permissions if _permission_key(item) not in old_permissions]
        effects = [permission.does for permission in new_permissions if permission.needs_agreement]
        named_files = {file for permission in new_permissions for file in permission.bound_to}
        code_paths = [change.path for change in changes if is_code(change.path) and change.path not in named_files]
        effects += [f"writes the Python code in {path}" for path in code_paths]
        old_problems = {_problem_key(problem) for problem in _find_problems(old_copy, names)}
        problems = [problem for problem in _find_problems(new_copy, names) if _problem_key(problem) not in old_problems]
    return ChangePreview(effects, [*_find_loosened_guards(changes)], problems)


def is_code(path: str) -> bool:
    """Return True if a file is Python that an organisation may load.

    >>> is_code("agents/ada/tools/x.py"), is_code("shared/x.py")
    (True, False)
    """
    return path.endswith(".py") and "tools" in path.split("/")[:-1]


def _find_loosened_guards(changes: list[PlannedWrite]) -> Iterator[str]:
    """Yield the guards that the changes loosen, each with its file."""
    for change in changes:
        if change.previous is not None:
            guards = list_loosened_guards(change.path, change.previous, change.content)
            yield from (f"{change.path}: {guard}" for guard in guards)


def _copy_settings(base: Path, target: Path) -> None:
    """Copy the settings of an organisation; entries, memories, logs and workspaces are omitted."""
    with suppress(FileNotFoundError):
        fs.write_atomic(target, _TOP_LEVEL_FILE, fs.read_bytes(base / _TOP_LEVEL_FILE, _LIMIT_BYTES))
    for top in _COPIED_FOLDERS:
        for folder, _, files in walk(str(base / top)):
            inside = Path(folder).relative_to(base).parts
            if inside[:1] == ("agents",) and _EXCLUDED_FOLDERS & {*inside[2:3]}:
                continue
            for file in files:
                relative = str(Path(file.path).relative_to(base))
                fs.write_atomic(target, relative, fs.read_bytes(file.path, _LIMIT_BYTES))


def _list_permissions(folder: Path) -> list[RequiredPermission]:
    """Return the required permissions of an organisation, or no permissions for a broken configuration."""
    org = Organisation(folder)
    try:
        return list_required_permissions(org, load_config(org), survey_agents(org).agents.values())
    except ConfigError:  # reported among the problems
        return []


def _find_problems(folder: Path, names: Iterable[str]) -> list[Problem]:
    """Return the problems of the settings and of the named agents, without loading tool files."""
    org = Organisation(folder)
    try:
        config = load_config(org)
    except ConfigError as error:
        return [*error.problems]
    config_without_code = replace(config, org=replace(config.org, tool_files=[]))
    problems = [*validate_config(org, config_without_code)]
    for name in names:
        problems += validate_agents(org, config_without_code, name)
    return [problem for problem in problems if not _may_come_from_code(folder, config, problem)]


def _may_come_from_code(folder: Path, config: Config, problem: Problem) -> bool:
    """Return True if a missing tool may be defined by a tool file or a plugin."""
    match = _QUOTED_TEXT.search(problem.message)
    if "/permissions/tools/" not in problem.pointer or match is None:
        return False
    code_paths = (file.path for _, _, files in walk(str(folder)) for file in files if is_code(file.path))
    return bool(config.org.plugins) or any(
        match[1].encode() in _IDENTIFIER.findall(fs.read_bytes(path, _LIMIT_BYTES)) for path in code_paths
    )


def _permission_key(permission: RequiredPermission) -> tuple[object, ...]:
    return permission.does, *sorted(permission.bound_to.items())


def _problem_key(problem: Problem) -> tuple[str, str, str]:
    return problem.message, problem.file, problem.pointer
