"""Select the tools listed in a model's prompt; deferred tools are found by search. Pure.

The schemas of a few servers can be longer than the rest of a prompt, and are sent with every call. Above a
share of the model's context (`tools_share` of its entry in `config/models.json`), external tools granted by a
pattern only are deferred: the model gets `tool_search` instead. The permissions do not change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.base.json_schema.schema_violations import shorten_schema
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.journal.open_requests import is_found_tool
from lemming.kernel.plugins.capability_table import PREFIXES, provided
from lemming.kernel.tools.tool_definition import Tool
from lemming.kernel.tools.toolset import TOOL_SEARCH

MAX_GROUPS = 12
BYTES_A_TOKEN = 4
_WORD = re.compile(r"[._-]")
ACTIONS = frozenset({"answer", "send", "remember", "done"})
"""Names that the engine's own actions have: a tool of such a name is offered under another."""
_NEVER = ACTIONS | provided("tools").keys()


class ToolListing(NamedTuple):
    """The tools listed in a prompt, and the deferred tools."""

    listed: tuple[Tool, ...]
    deferred: tuple[Tool, ...] = ()


def list_tools(tools: Mapping[str, Tool], agent: Agent, *, context_tokens: int, share: float) -> ToolListing:
    """Select the listed and the deferred tools among an agent's allowed tools, in the order of `tools`.

    The same tools, resume and settings give the same listing, so a replayed turn has the same listing too.
    """
    named = agent.permissions.tools
    if TOOL_SEARCH not in tools:
        return ToolListing((*tools.values(),))
    deferred = [tool for tool in tools.values() if is_deferrable(tool, agent)]
    if not deferred or estimate_tool_tokens(deferred) <= share * context_tokens:
        listed = (tool for name, tool in tools.items() if name != TOOL_SEARCH or name in named)
        return ToolListing((*listed,))
    deferred_names = {tool.name for tool in deferred}
    search = copy(tools[TOOL_SEARCH])
    search.description = f"{search.description} There are {len(deferred)} more: {describe_groups(deferred)}."
    listed = (tool for name, tool in {**tools, TOOL_SEARCH: search}.items() if name not in deferred_names)
    return ToolListing((*listed,), (*deferred,))


def is_deferrable(tool: Tool, agent: Agent) -> bool:
    """Return True for a tool that can be deferred: neither the engine's own nor named in the resume."""
    name = tool.name
    return not (name in _NEVER or name in agent.permissions.tools or tool.always_allowed)


@lru_cache(maxsize=4096)
def describe_tool(tool: Tool) -> Mapping[str, Any]:
    """Return a tool's description for a model: name, purpose, and schema of the arguments."""
    return {"name": tool.name, "description": tool.description, "parameters": shorten_schema(tool.parameters)}


def estimate_tool_tokens(tools: Iterable[Tool]) -> int:
    """Return an estimate of the tokens taken by the descriptions of tools."""
    return sum(map(_count_bytes, tools)) // BYTES_A_TOKEN


@lru_cache(maxsize=4096)
def _count_bytes(tool: Tool) -> int:
    return len(dump_compact(describe_tool(tool)))


def describe_groups(tools: Iterable[Tool]) -> str:
    """Return the groups of tools by size: a server's tools, or those whose names begin with the same word."""
    counts = Counter(map(_get_group, tools))
    largest = sorted(counts.items(), key=lambda spec: (-spec[1], spec[0]))
    named = [f"{name} ({count})" for name, count in largest[:MAX_GROUPS]]
    return ", ".join([*named, *(["and others"] if len(largest) > MAX_GROUPS else [])])


def _get_group(tool: Tool) -> str:
    for prefix in PREFIXES:
        if tool.name.startswith(prefix):
            return tool.name.removeprefix(prefix).partition(".")[0]
    return _WORD.split(tool.name, maxsplit=1)[0]


_STATE_OWNER, _STATE_KEY = "toolbox", "tools"


def make_found_tools_state(tools: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the state of a search result: the descriptions of the matching tools."""
    return {_STATE_OWNER: {_STATE_KEY: [*tools]}}


def load_found_tools(state: Mapping[str, Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the tool descriptions in the state of a search result or its record."""
    return filter_tool_descriptions(state.get(_STATE_OWNER, {}).get(_STATE_KEY))


def filter_tool_descriptions(values: object) -> Sequence[Mapping[str, Any]]:
    """Return the valid tool descriptions in a list, which may come from an edited file."""
    return [spec for spec in values if is_found_tool(spec)] if isinstance(values, list) else ()
