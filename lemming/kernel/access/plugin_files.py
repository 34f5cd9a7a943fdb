"""Code inside the organisation's folder: the location of plugins, and a check that no agent can write them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lemming.kernel.access.allowed_paths import resolve_path
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.files import fs
from lemming.kernel.files.canonical_path import real_path
from lemming.kernel.files.descriptors import walk
from lemming.kernel.files.disk_errors import FILE_ERRORS
from lemming.kernel.files.stat_cache import is_folder
from lemming.kernel.org.organisation import Organisation

_CODE = (".py", ".pyc", ".so", ".pyd", ".pth", ".zip")
_CACHE = "__pycache__"
_TIMESTAMP_FLAGS = bytes(4)
"""The flags of bytecode that Python checks: docs.python.org/3/reference/import.html, "Cached bytecode"."""


class PluginFileGuard:
    """Files of an organisation's plugins, checked for write access of agents."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._looked_for: Sequence[str] = ()
        self._agents: Mapping[str, Agent] | None = None

    def require_unwritable(self, plugins: Sequence[str]) -> None:
        """Raise a `ConfigError` naming each plugin file that an agent may write."""
        if not plugins:
            return
        agents = survey_agents(self._org).agents
        if agents is self._agents and plugins == self._looked_for:
            return
        files = [file for name in plugins for file in find_module_files(self._org.base, name)]
        if problems := find_writable_files(self._org.base, files, agents):
            raise ConfigError(str(problems[0]), problems=tuple(problems))
        self._agents, self._looked_for = agents, plugins


def find_module_files(base: Path, module: str) -> Iterator[str]:
    """Yield the files an import of a module may run: its package and the files beside it."""
    org, top = Path(real_path(f"{base}")), module.partition(".")[0]
    for entry in dict.fromkeys(sys.path):
        folder = Path(real_path(entry))
        names = fs.list_names(folder) if folder.is_relative_to(org) and is_folder(str(folder)) else ()
        if not any(name.partition(".")[0] == top for name in names):
            continue
        # The files beside it too: the import may load any of them.
        for name in names:
            if name.endswith(_CODE):
                yield str((folder / name).relative_to(org))
        for parent, _, files in walk(folder / top):
            for file in files:
                if Path(parent).name != _CACHE or _is_never_checked(file.path):
                    yield str(Path(file.path).relative_to(org))


def _is_never_checked(path: str) -> bool:
    """Return True if Python would run this bytecode without checking the source, as it writes none itself."""
    try:
        with open(path, "rb") as file:
            return file.read(8)[4:] != _TIMESTAMP_FLAGS
    except OSError:
        return True


def find_writable_files(base: Path, files: Sequence[str], agents: Mapping[str, Agent]) -> list[Problem]:
    """Return a problem for each file, or parent folder of a file, that an agent may write."""
    # A new file counts too: it could take the name of a module that the plugin imports.
    candidates = sorted({*files, *(f"{Path(file).parent}/any.py" for file in files)})
    return [
        Problem(
            f"{agent.name} may write the file: {reason}",
            path if path in files else str(Path(path).parent),
            hint="move the file, or remove the permission: code that an agent can write is not loaded",
        )
        for path in candidates
        for agent in agents.values()
        if (reason := _writable_reason(base, path, agent))
    ]


def _writable_reason(base: Path, file: str, agent: Agent) -> str:
    if file.startswith(f"agents/{agent.name}/workspace/"):
        return "it is in the agent's workspace"
    for root in {f"{base}", real_path(f"{base}")}:
        with contextlib.suppress(*FILE_ERRORS):
            resolve_path(agent, base, f"{root}/{file}", "write", caller="tool_files")
            return "permissions.file_access.allow_write"
    return ""
