"""The files of tools that `config/org.json` names in `tool_files`: found, looked at again, and loaded.

A file that an agent may write is refused: code that an agent can write is not run. A file below
`agents/<name>/` brings tools for that agent only, and what is wrong with it takes out that agent only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from lemming.capabilities.toolbox.functions.body import trace_of
from lemming.capabilities.toolbox.functions.finding import (
    by_owner,
    empty_patterns,
    find_files,
    owner_of,
    with_neighbours,
)
from lemming.capabilities.toolbox.functions.loading import Home, Sources, forget, load
from lemming.capabilities.toolbox.functions.tool import FunctionTool
from lemming.capabilities.toolbox.functions.workers import FunctionWorkers
from lemming.kernel.access.plugin_files import writable
from lemming.kernel.access.trust import Consent
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.redaction.secrets import redact
from lemming.kernel.org.config import Org
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.errors import words_of
from lemming.kernel.plugins.registry import registered_by
from lemming.kernel.tools import Tool
from lemming.kernel.tools.declared import declared
from lemming.kernel.tools.toolset import OwnTools, ToolSource

SOURCE_LIMIT_BYTES = 1 << 20


class ToolFiles(ToolSource):
    """The tools in the files of one organisation, and the `sources` that they were loaded from."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._looked_at: tuple[object, ...] = ()
        self._writable: tuple[object, Sequence[str], list[Problem]] = None, (), []
        self.sources: Sources = {}

    def refresh(self, settings: Org) -> Sequence[Problem]:
        """Look at the files again, and load all of them if one has changed.

        Raises `ConfigError` for what concerns all agents, `NotTrusted` for code that nobody has agreed to.
        """
        base = self._org.base
        files, wrong = find_files(base, settings.tool_files)
        beside = with_neighbours(base, files)
        sources, unread = self._sources_of(beside)
        wrong += [*unread, *self._written_by_agents(beside)]
        looked_at = (files, wrong, sources)
        if looked_at == self._looked_at and self.tools is not None:
            return ()
        # Before anything of it is loaded, and for these very bytes.
        self._org.own(Consent).require_sources(sources)
        self.tools = self._load(
            files, {str(base / file): source for file, source in sources.items()}, wrong, settings
        )
        self._looked_at = looked_at
        return ()

    def _load(
        self, files: Sequence[str], sources: Sources, wrong: Sequence[Problem], settings: Org
    ) -> OwnTools:
        out = by_owner(wrong)
        files = [file for file in files if owner_of(file) not in out]
        out |= by_owner(self._org.own(FunctionWorkers).try_out(files, sources, settings))
        files = [file for file in files if owner_of(file) not in out]
        tools = load_all(self._org.base, files, sources)
        self.sources = self._org.own(FunctionWorkers).sources = sources
        gaps = "; ".join(map(str, empty_patterns(self._org.base, settings.tool_files)))
        return replace(tools, out={**out, **tools.out}, gaps=gaps)

    def _sources_of(self, files: Sequence[str]) -> tuple[dict[str, bytes], list[Problem]]:
        """Return what the files hold, and a problem for each that cannot be read."""
        sources: dict[str, bytes] = {}
        unread: list[Problem] = []
        for file in files:
            try:
                source = self._org.files.value(file, bytes, limit_bytes=SOURCE_LIMIT_BYTES)
            except OSError as error:
                unread.append(Problem(f"cannot be read: {error.strerror or error}", file))
            except ConfigError as error:
                unread += error.problems
            else:
                if len(source) <= SOURCE_LIMIT_BYTES:
                    sources[file] = source
                else:  # only its beginning was read
                    unread.append(Problem(f"larger than {SOURCE_LIMIT_BYTES} bytes", file))
        return sources, unread

    def _written_by_agents(self, files: Sequence[str]) -> list[Problem]:
        agents = survey_agents(self._org).agents
        if self._writable[0] is not agents or self._writable[1] != files:
            self._writable = agents, files, writable(self._org.base, files, agents)
        return self._writable[2]


def load_all(base: Path, files: Sequence[str], sources: Sources) -> OwnTools:
    """Return the tools in these files, and the agents that theirs keep out.

    Raises `ConfigError` with every problem of all files that bring tools for everybody.
    """
    forget({(base / file).parent for file in files})
    for_all: dict[str, Tool] = {}
    by_agent: dict[str, dict[str, Tool]] = {}
    problems: list[Problem] = []
    for file in files:
        owner = owner_of(file)
        try:
            tools = load_file(base, file, sources)
        except ConfigError as error:
            problems += error.problems
            continue
        problems += [*_added(by_agent.setdefault(owner, {}) if owner else for_all, tools)]
    out = by_owner(problems)
    return OwnTools(for_all, {name: own for name, own in by_agent.items() if name not in out}, out)


def load_file(base: Path, file: str, sources: Sources) -> list[Tool]:
    """Return the tools of one file: functions with `@tool`, and what it registers.

    Raises `ConfigError` that names the line and what went wrong.
    """
    module: list[ModuleType] = []
    try:
        registered = registered_by(lambda: module.append(load(base / file, sources)))
        return [*_functions(base, module[0], file), *(known.value for known in registered)]
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise _unloadable(base, file, error) from error


def _functions(base: Path, module: ModuleType, file: str) -> Iterator[Tool]:
    for thing in list(vars(module).values()):
        if declared(thing) is not None and thing.__module__ == module.__name__:
            home = Home(module.__name__, thing.__qualname__, file)
            yield FunctionTool(thing, base=base, home=home if home.can_be_found else None)


def _added(into: dict[str, Tool], tools: Sequence[Tool]) -> Iterator[Problem]:
    """Add tools to those of the same agents; yield a problem for each that is there twice."""
    for tool in tools:
        if tool.name in into:
            file, _, line = tool.origin.partition(":")
            both = f"that of {tool.origin}, and that of {into[tool.name].origin}"
            hint = "give one of them another name: @tool(name=...)"
            yield Problem(f'two tools are called "{tool.name}": {both}', file, int(line or 0), 1, hint=hint)
        into[tool.name] = tool


def _unloadable(base: Path, file: str, error: BaseException) -> ConfigError:
    steps = trace_of(error, base)
    line = next((int(found) for found in re.findall(rf"{re.escape(file)}:(\d+)", steps)[-1:]), 0)
    if isinstance(error, SyntaxError) and error.filename:
        line = error.lineno or 0
        file = (
            file if not error.filename.startswith(str(base)) else str(Path(error.filename).relative_to(base))
        )
    message = redact(f"cannot be loaded: {words_of(error)}{f'; {steps}' if steps else ''}")
    problem = Problem(
        message, file, line, min(line, 1), hint="mend it there, or take the file out of `tool_files`"
    )
    return ConfigError(str(problem), problems=(problem,))
