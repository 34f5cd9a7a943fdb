"""Which of an agent's tools its model is told of, and which it has to search for. Pure.

The schemas of a few servers can be longer than everything else that a model is sent, with every call. Above
a share of the model's context (`tools_share` of its line in `config/models.json`) tools that the agent has by
a pattern alone, and that do not ship with the engine, are deferred: the model is given `tool_search` in their
place. What it may call does not change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.base.json_schema.shorten import shorten_schema
from lemming.kernel.base.jsontext import compact
from lemming.kernel.journal.dialogue import is_found_tool
from lemming.kernel.plugins.shipped import LISTED, PREFIXES
from lemming.kernel.tools.definition import Tool
from lemming.kernel.tools.toolset import TOOL_SEARCH

MOST_GROUPS_NAMED = 12
BYTES_A_TOKEN = 4
_WORD = re.compile(r"[._-]")
ACTIONS = frozenset({"answer", "send", "remember", "done"})
"""Names that the engine's own actions have: a tool of such a name is offered under another."""
_NEVER = ACTIONS.union(*(it.tools for it in LISTED.values()))


class ToolListing(NamedTuple):
    """The tools that a model is told of, and those that it has to search for."""

    listed: tuple[Tool, ...]
    deferred: tuple[Tool, ...] = ()


def list_tools(tools: Mapping[str, Tool], agent: Agent, *, context_tokens: int, share: float) -> ToolListing:
    """Return which of the tools that an agent may call are listed, in the order of `tools`.

    The same tools, resume and settings give the same listing: a turn that is taken again has it too.
    """
    named = agent.permissions.tools
    if TOOL_SEARCH not in tools:
        return ToolListing((*tools.values(),))
    deferred = [tool for tool in tools.values() if is_deferrable(tool, agent)]
    if not deferred or count_tokens_about(deferred) <= share * context_tokens:
        listed = (tool for name, tool in tools.items() if name != TOOL_SEARCH or name in named)
        return ToolListing((*listed,))
    left_out = {tool.name for tool in deferred}
    search = copy(tools[TOOL_SEARCH])
    search.description = f"{search.description} There are {len(deferred)} more: {describe_groups(deferred)}."
    listed = (tool for name, tool in {**tools, TOOL_SEARCH: search}.items() if name not in left_out)
    return ToolListing((*listed,), (*deferred,))


def is_deferrable(tool: Tool, agent: Agent) -> bool:
    """Return True for a tool that may be left to the search: not the engine's, nor named in the resume."""
    name = tool.name
    return not (name in _NEVER or name in agent.permissions.tools or tool.always_allowed)


@lru_cache(maxsize=4096)
def describe_tool(tool: Tool) -> Mapping[str, Any]:
    """Return a tool as models are told of it: its name, what it does, and the schema of its arguments."""
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": shorten_schema(tool.parameters),
    }


def count_tokens_about(tools: Iterable[Tool]) -> int:
    """Return an estimate of the tokens that the descriptions of tools take."""
    return sum(map(_count_bytes, tools)) // BYTES_A_TOKEN


@lru_cache(maxsize=4096)
def _count_bytes(tool: Tool) -> int:
    return len(compact(describe_tool(tool)))


def describe_groups(tools: Iterable[Tool]) -> str:
    """Return where tools come from, with how many there are of each, largest first.

    A group is a server, or the first word of the names of other tools.
    """
    counts = Counter(map(_group_of, tools))
    largest = sorted(counts.items(), key=lambda it: (-it[1], it[0]))
    named = [f"{name} ({count})" for name, count in largest[:MOST_GROUPS_NAMED]]
    return ", ".join([*named, *(["and others"] if len(largest) > MOST_GROUPS_NAMED else [])])


def _group_of(tool: Tool) -> str:
    for prefix in PREFIXES:
        if tool.name.startswith(prefix):
            return tool.name.removeprefix(prefix).partition(".")[0]
    return _WORD.split(tool.name, maxsplit=1)[0]


# --- tools that were found -------------------------------------------------------------------------

_KEEPER, _KEY = "toolbox", "tools"


def keep_found_tools(tools: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what the result of a search keeps: the descriptions of the tools that were found."""
    return {_KEEPER: {_KEY: [*tools]}}


def read_found_tools(kept: Mapping[str, Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the descriptions of the tools that a call found, by what its result or record keeps."""
    return sound_tools(kept.get(_KEEPER, {}).get(_KEY))


def sound_tools(values: object) -> Sequence[Mapping[str, Any]]:
    """Return what of a list describes tools: it may come from a file that somebody has changed."""
    return [it for it in values if is_found_tool(it)] if isinstance(values, list) else ()
