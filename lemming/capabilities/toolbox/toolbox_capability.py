"""The toolbox capability: notes, problems and permissions of the built-in tools and of function tools."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from lemming.ext import CallNote, Capability, CheckSubject, ConfigError, DescribeQuery, Problem, StateQuery
from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.agents import Agent
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools.listing import load_found_tools
from lemming.libraries.permission_bindings import code_permission, digest_files
from lemming.libraries.tool_file_search import add_neighbour_modules, find_empty_patterns, find_files


class ToolboxCapability(Capability):
    """The built-in tools, and the function tools in an organisation's files."""

    name = "toolbox"
    describes = (CallNote,)

    def describe(self, query: DescribeQuery) -> Iterator[CallNote]:
        """Yield a note with the tools found by a search."""
        assert isinstance(query, StateQuery), "CallNote is asked with a StateQuery"
        found_tools = load_found_tools({self.name: query.state})
        yield CallNote(f"found {', '.join(tool['name'] for tool in found_tools)}", "", "")


def find_empty_tool_patterns(subject: CheckSubject) -> Iterator[Problem]:
    """Yield a warning for each pattern of tool files without a match."""
    with suppress(ConfigError):  # it stops the run, which the scan of tools reports
        yield from find_empty_patterns(subject.org.base, subject.config.org.tool_files)


def iter_permissions(
    org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
) -> Iterator[RequiredPermission]:
    """Yield a permission for the code of each tool file; for each pattern if the patterns are invalid."""
    patterns = config.org.tool_files
    try:
        for file in find_files(org.base, patterns)[0]:
            yield code_permission(
                f"runs the Python code in {file}", digest_files(org, add_neighbour_modules(org.base, [file]))
            )
    except ConfigError:
        for pattern in patterns:
            yield code_permission(f"runs the Python code in {pattern}")
