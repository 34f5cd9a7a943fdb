"""Code that lies in the organisation's folder: where Python finds plugins, and that no agent writes any."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lemming.kernel.access.allowed_paths import resolve
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import walk
from lemming.kernel.files.real_place import real_path
from lemming.kernel.files.refusals import OF_A_FILE
from lemming.kernel.files.stamps import is_folder
from lemming.kernel.org.organisation import Organisation

_CODE = (".py", ".pyc", ".so", ".pyd", ".pth", ".zip")
_CACHE = "__pycache__"
_MADE_BY_STAMP = bytes(4)
"""The flags of bytecode that Python checks: docs.python.org/3/reference/import.html, "Cached bytecode"."""


class PluginFiles:
    """The files of an organisation's plugins, as far as an agent might write them."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._looked_for: Sequence[str] = ()
        self._agents: Mapping[str, Agent] | None = None

    def require_unwritable(self, plugins: Sequence[str]) -> None:
        """Raise `ConfigError` that names each file of a plugin that some agent may write."""
        if not plugins:
            return
        agents = survey_agents(self._org).agents
        if agents is self._agents and plugins == self._looked_for:
            return
        files = [file for name in plugins for file in files_of_module(self._org.base, name)]
        if problems := writable(self._org.base, files, agents):
            raise ConfigError(str(problems[0]), problems=tuple(problems))
        self._agents, self._looked_for = agents, plugins


def files_of_module(base: Path, module: str) -> Iterator[str]:
    """Yield the files in here that an import of a module may run: its package, and what lies beside it."""
    org, top = Path(real_path(f"{base}")), module.partition(".")[0]
    for entry in dict.fromkeys(sys.path):
        folder = Path(real_path(entry))
        if not folder.is_relative_to(org) or not _holds(folder, top):
            continue
        for name in fs.list_names(folder):
            if name.endswith(_CODE):
                yield str((folder / name).relative_to(org))
        for above, _, files in walk(folder / top):
            for file in files:
                if Path(above).name != _CACHE or _is_never_checked(file.path):
                    yield str(Path(file.path).relative_to(org))


def _holds(folder: Path, top: str) -> bool:
    return is_folder(str(folder)) and any(name.partition(".")[0] == top for name in fs.list_names(folder))


def _is_never_checked(path: str) -> bool:
    """Return whether Python would run this bytecode whatever its source says; it writes none such."""
    try:
        with open(path, "rb") as file:
            return file.read(8)[4:] != _MADE_BY_STAMP
    except OSError:
        return True


def writable(base: Path, files: Sequence[str], agents: Mapping[str, Agent]) -> list[Problem]:
    """Return a problem for each file, or folder of one, that some agent may write."""
    # A new file counts too: it may have the name of something that the plugin imports.
    places = sorted({*files, *(f"{Path(file).parent}/any.py" for file in files)})
    return [
        Problem(
            f"{agent.name} may write it: {why}",
            place if place in files else str(Path(place).parent),
            hint="code that an agent can write is not loaded: move it, or take the right away",
        )
        for place in places
        for agent in agents.values()
        if (why := _why_writable(base, place, agent))
    ]


def _why_writable(base: Path, file: str, agent: Agent) -> str:
    if file.startswith(f"agents/{agent.name}/workspace/"):
        return "it is in its workspace"
    if any(_allows_write(agent, base, f"{root}/{file}") for root in {f"{base}", real_path(f"{base}")}):
        return "permissions.file_access.allow_write"
    return ""


def _allows_write(agent: Agent, base: Path, path: str) -> bool:
    try:
        resolve(agent, base, path, "write", caller="tool_files")
    except OF_A_FILE:
        return False
    return True
