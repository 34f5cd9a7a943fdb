"""Find, refresh and load the tool files named by `tool_files` in `config/org.json`.

A file writable by an agent is rejected, because no code written by an agent may run. A file below
`agents/<name>/` provides tools for this agent only, and an invalid one excludes only this agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from lemming.capabilities.toolbox.functions.function_call import format_trace
from lemming.capabilities.toolbox.functions.function_import import FunctionLocation, Sources, load_module, unload
from lemming.capabilities.toolbox.functions.function_tool import FunctionTool
from lemming.capabilities.toolbox.functions.worker_pool import FunctionWorkers
from lemming.ext import ConfigError, Problem
from lemming.kernel.access.plugin_files import find_writable_files
from lemming.kernel.access.workspace_trust import WorkspaceTrust
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.redaction.secrets import redact
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.plugin_registry import capture_registrations
from lemming.kernel.plugins.provider_errors import describe_exception
from lemming.kernel.tools import Tool
from lemming.kernel.tools.toolset import OrgTools, ToolSource
from lemming.libraries.tool_decorator import get_declaration
from lemming.libraries.tool_file_search import (
    add_neighbour_modules,
    find_empty_patterns,
    find_files,
    get_owner,
    group_by_owner,
)

SOURCE_LIMIT_BYTES = 1 << 20


class FunctionToolSource(ToolSource):
    """The tools in the files of an organisation, and the `sources` of the loaded files."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._loaded_state: tuple[object, ...] = ()
        self._writable: tuple[object, Sequence[str], list[Problem]] = None, (), []
        self.sources: Sources = {}

    def refresh(self, settings: OrgSettings) -> Sequence[Problem]:
        """Scan the files, and load all of them if a file has changed.

        Raises `ConfigError` for problems affecting all agents, and `NotTrusted` for code without the user's approval.
        """
        base = self._org.base
        files, problems = find_files(base, settings.tool_files)
        all_files = add_neighbour_modules(base, files)
        sources, unreadable = self._read_sources(all_files)
        problems += [*unreadable, *self._find_agent_writable(all_files)]
        current_state = (files, problems, sources)
        if current_state == self._loaded_state and self.tools is not None:
            return ()
        # Before anything of it is loaded, and for these very bytes.
        self._org.get_cache(WorkspaceTrust).require_sources(sources)
        self.tools = self._load_tools(
            files, {str(base / file): source for file, source in sources.items()}, problems, settings
        )
        self._loaded_state = current_state
        return ()

    def _load_tools(
        self, files: Sequence[str], sources: Sources, problems: Sequence[Problem], settings: OrgSettings
    ) -> OrgTools:
        excluded = group_by_owner(problems)
        files = [file for file in files if get_owner(file) not in excluded]
        excluded |= group_by_owner(self._org.get_cache(FunctionWorkers).load_in_worker(files, sources, settings))
        files = [file for file in files if get_owner(file) not in excluded]
        tools = load_all(self._org.base, files, sources)
        self.sources = self._org.get_cache(FunctionWorkers).sources = sources
        gaps = "; ".join(map(str, find_empty_patterns(self._org.base, settings.tool_files)))
        return replace(tools, broken_agents={**excluded, **tools.broken_agents}, gaps=gaps)

    def _read_sources(self, files: Sequence[str]) -> tuple[dict[str, bytes], list[Problem]]:
        """Return the contents of the files, and a problem for each unreadable file."""
        sources: dict[str, bytes] = {}
        unreadable: list[Problem] = []
        for file in files:
            try:
                source = self._org.files.get_value(file, bytes, limit_bytes=SOURCE_LIMIT_BYTES)
            except OSError as error:
                unreadable.append(Problem(f"cannot be read: {error.strerror or error}", file))
            except ConfigError as error:
                unreadable += error.problems
            else:
                if len(source) <= SOURCE_LIMIT_BYTES:
                    sources[file] = source
                else:  # only its beginning was read
                    unreadable.append(Problem(f"the file must have at most {SOURCE_LIMIT_BYTES} bytes, got more", file))
        return sources, unreadable

    def _find_agent_writable(self, files: Sequence[str]) -> list[Problem]:
        agents = survey_agents(self._org).agents
        if self._writable[0] is not agents or self._writable[1] != files:
            self._writable = agents, files, find_writable_files(self._org.base, files, agents)
        return self._writable[2]


def load_all(base: Path, files: Sequence[str], sources: Sources) -> OrgTools:
    """Return the tools in files, and agents whose own files have problems. Raises `ConfigError` for shared files."""
    unload({(base / file).parent for file in files})
    shared_tools: dict[str, Tool] = {}
    by_agent: dict[str, dict[str, Tool]] = {}
    problems: list[Problem] = []
    for file in files:
        owner = get_owner(file)
        try:
            tools = load_file(base, file, sources)
        except ConfigError as error:
            problems += error.problems
            continue
        problems += [*_add_tools(by_agent.setdefault(owner, {}) if owner else shared_tools, tools)]
    excluded = group_by_owner(problems)
    return OrgTools(
        shared_tools, {name: agent_tools for name, agent_tools in by_agent.items() if name not in excluded}, excluded
    )


def load_file(base: Path, file: str, sources: Sources) -> list[Tool]:
    """Return the `@tool` functions and registered tools of a file. Raises `ConfigError` with the line and the error."""
    module: list[ModuleType] = []
    try:
        registered = capture_registrations(lambda: module.append(load_module(base / file, sources)))
        tools: list[Tool] = []
        for candidate in list(vars(module[0]).values()):
            if get_declaration(candidate) is not None and candidate.__module__ == module[0].__name__:
                location = FunctionLocation(candidate.__module__, candidate.__qualname__, file)
                home = location if location.is_importable else None
                tools.append(FunctionTool(candidate, base=base, location=home))
        return [*tools, *(item.value for item in registered)]
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise _load_error(base, file, error) from error


def _add_tools(existing: dict[str, Tool], tools: Sequence[Tool]) -> Iterator[Problem]:
    """Add tools to the tools of the same agents. Yield a problem for each duplicate name."""
    for tool in tools:
        if tool.name in existing:
            file, _, line = tool.origin.partition(":")
            locations = f"that of {tool.origin}, and that of {existing[tool.name].origin}"
            hint = "rename one of them: @tool(name=...)"
            yield Problem(f'two tools have the name "{tool.name}": {locations}', file, int(line or 0), 1, hint=hint)
        existing[tool.name] = tool


def _load_error(base: Path, file: str, error: BaseException) -> ConfigError:
    steps = format_trace(error, base)
    line = next((int(number) for number in re.findall(rf"{re.escape(file)}:(\d+)", steps)[-1:]), 0)
    if isinstance(error, SyntaxError) and error.filename:
        line = error.lineno or 0
        file = file if not error.filename.startswith(str(base)) else str(Path(error.filename).relative_to(base))
    message = redact(f"cannot be loaded: {describe_exception(error)}{f'; {steps}' if steps else ''}")
    problem = Problem(message, file, line, min(line, 1), hint="correct it there, or remove the file from `tool_files`")
    return ConfigError(str(problem), problems=(problem,))
