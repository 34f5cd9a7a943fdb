"""The files of tools that `config/org.json` names in `tool_files`: found, looked at again, and loaded.

A file that an agent may write is refused: code that an agent can write is not run. A file below
`agents/<name>/` brings tools for that agent only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from lemming.access.trust import Consent
from lemming.agents import Agent, survey_agents
from lemming.config import Org
from lemming.declared import declared
from lemming.errors import ConfigError, Problem
from lemming.organisation import Organisation
from lemming.plugins.errors import words_of
from lemming.plugins.registry import registered_by
from lemming.redaction import redact
from lemming.toolbox.functions.body import trace_of
from lemming.toolbox.functions.finding import find_files, refuse_writable, with_neighbours
from lemming.toolbox.functions.homes import Home
from lemming.toolbox.functions.loading import Sources, forget, load
from lemming.toolbox.functions.tool import FunctionTool
from lemming.toolbox.functions.workers import Workers
from lemming.tools import Tool
from lemming.toolset import OwnTools

SOURCE_LIMIT_BYTES = 1 << 20


class ToolFiles:
    """The tools in the files of one organisation, and the `sources` that they were loaded from."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._agents: Mapping[str, Agent] | None = None
        self.sources: Sources = {}
        self.tools: OwnTools | None = None

    def refresh(self, settings: Org) -> Sequence[Problem]:
        """Look at the files again, and load all of them if one has changed.

        Raises `ConfigError`, and `NotTrusted` for code that nobody has agreed to.
        """
        base = self._org.base
        files = find_files(base, settings.tool_files)
        beside = with_neighbours(base, files)
        sources = {str(base / file): self._source(file) for file in beside}
        agents = survey_agents(self._org).agents
        is_as_before = sources == self.sources and self.tools is not None
        if not is_as_before or agents is not self._agents:
            refuse_writable(base, beside, agents)
            self._agents = agents
        if not is_as_before:
            self._org.own(Consent).require_sources({file: sources[str(base / file)] for file in beside})
            self._org.own(Workers).try_out(files, sources, settings)
            self.tools, self.sources = load_all(base, files, sources), sources
            self._org.own(Workers).sources = sources
        return ()

    def _source(self, file: str) -> bytes:
        try:
            return self._org.files.value(file, bytes, limit_bytes=SOURCE_LIMIT_BYTES)
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror or error}", where=file) from error


def load_all(base: Path, files: Sequence[str], sources: Sources) -> OwnTools:
    """Return the tools in these files; raise `ConfigError` with every problem of all of them."""
    forget({(base / file).parent for file in files})
    for_all: dict[str, Tool] = {}
    by_agent: dict[str, dict[str, Tool]] = {}
    problems: list[Problem] = []
    for file in files:
        try:
            tools = load_file(base, file, sources)
        except ConfigError as error:
            problems += error.problems
            continue
        into = by_agent.setdefault(file.split("/")[1], {}) if file.startswith("agents/") else for_all
        problems += [*_added(into, tools)]
    if problems:
        raise ConfigError(str(problems[0]), problems=tuple(problems))
    return OwnTools(for_all, by_agent)


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
