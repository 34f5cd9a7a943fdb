"""Tools of a tick: the catalogues of tool servers, and warnings about tools in resumes that do not exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.name_patterns import is_match
from lemming.kernel.files.field_types import Json
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_table import PREFIXES
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.tools import get_server_sources, missing_server_tool_reason, refresh_tools
from lemming.kernel.tools.toolset import Toolset

if TYPE_CHECKING:
    from lemming.kernel.journal.journal_records import TickStarted


def apply_server_scan(
    snapshot: Snapshot, started: TickStarted | None, scan: Callable[[Snapshot], dict[str, Json]]
) -> Snapshot:
    """Return the snapshot with server catalogues: from the tick's record, else from a scan."""
    if not snapshot.survey.has_server_tools:
        return snapshot
    # A resumed tick offers the recorded tools: the servers may list others by now.
    servers = started.server_tools if started else scan(snapshot)
    for name, source in get_server_sources(snapshot.org).items():
        source.apply_scan(servers.get(name, {}))
    refresh_tools(snapshot.config.org, snapshot.org)
    return replace(snapshot, servers=servers)


def find_unknown_tools(snapshot: Snapshot) -> list[Problem]:
    """Return a warning for each tool in a resume that does not exist."""
    survey = snapshot.survey
    toolsets = {name: snapshot.toolset.for_agent(name) for mentions in survey.by_tool.values() for name, _ in mentions}
    return [
        Problem(
            message,
            paths.resume_file(name),
            pointer=f"/permissions/tools/{index}",
            hint=hint,
            severity="warning",
            code="LMG-301",
        )
        for tool, mentions in sorted(survey.by_tool.items())
        for name, index in mentions
        if not survey.agents[name].permissions.may_be_absent
        and not any(is_match(tool_name, tool) for tool_name in toolsets[name])
        for message, hint in _explain_unknown(snapshot.org, tool, toolsets[name])
    ]


def _explain_unknown(org: Organisation, tool: str, toolset: Toolset) -> Iterator[tuple[str, str]]:
    """Yield problem and hint for an unknown tool name in a resume."""
    if not tool.startswith(PREFIXES):
        yield f'tool "{tool}" does not exist', toolset.suggest_tools(tool)
    elif problem := missing_server_tool_reason(org, tool, today=True):
        yield problem
