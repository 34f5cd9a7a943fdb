"""`tool_search`: the tools that are about some words, of those that an agent may call and is not told of.

They are ranked by SQLite's full-text search (BM25), over names, descriptions and names of arguments. The
call's record keeps the schemas of what was found, so that the turn goes on with them wherever it is replayed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ToolError
from lemming.kernel.files.fitting import about
from lemming.kernel.org.config import Org
from lemming.kernel.tools import EngineTool, Tool, ToolResult, toolset_of
from lemming.kernel.tools.context import ToolContext
from lemming.kernel.tools.listing import describe_groups, describe_tool, is_deferrable, keep_found_tools
from lemming.kernel.tools.toolset import TOOL_SEARCH

TOOLS_LIMIT = 5
TERMS_LIMIT = 40
ABOUT_CHARS = 300
_WEIGHTS = "4.0, 1.0, 0.5"  # of names, descriptions, arguments
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class ToolSearch(EngineTool):
    """Finds tools by words."""

    name = TOOL_SEARCH
    description = "Find further tools by what they do. You can call those that are found."
    tool_class = "read"
    keeps_deadline = True

    def why_refused(self, agent: Agent, settings: Org) -> str:
        """Return the rule by which an agent may not call it: it needs a pattern that stands for tools."""
        return "" if agent.permissions.tool_patterns else super().why_refused(agent, settings)

    def plan(
        self,
        context: ToolContext,
        query: Annotated[str, about("What the tool should do.", min_length=1, max_length=1000)],
    ) -> ToolResult:
        """Return the signatures of the tools that are most about the words, best first."""
        toolset = toolset_of(context.settings, context.org)
        allowed = toolset.allowed(context.agent, context.settings).values()
        tools = {tool.name: tool for tool in allowed if is_deferrable(tool, context.agent)}
        found = [describe_tool(tools[name]) for name in rank_tools([*tools.values()], query)[:TOOLS_LIMIT]]
        if not found:
            there = describe_groups(tools.values()) or "none"
            return ToolResult(True, f"No tool is about that. There are tools of: {there}")
        return ToolResult(True, "\n".join(map(_signature, found)), kept=keep_found_tools(found))


def rank_tools(tools: Sequence[Tool], query: str) -> list[str]:
    """Return the names of the tools that hold a word of the query, best first, equal ones by name.

    Raises `ToolError` for a query without a word.
    """
    import sqlite3  # only where a call is made

    terms = list(dict.fromkeys(re.findall(r"\w+", _split_humps(query))))[:TERMS_LIMIT]
    if not terms:
        raise ToolError(f"{TOOL_SEARCH}: the query has no word")
    index = sqlite3.connect(":memory:")
    try:
        index.execute(
            "CREATE VIRTUAL TABLE t USING fts5(name, about, arguments, tokenize = 'porter unicode61')"
        )
        index.executemany("INSERT INTO t (rowid, name, about, arguments) VALUES (?, ?, ?, ?)", _rows(tools))
        rows = index.execute(
            f"SELECT rowid, round(bm25(t, {_WEIGHTS}), 6) FROM t WHERE t MATCH ?",  # noqa: S608 - numbers of ours
            (" OR ".join(f'"{term}"' for term in terms),),  # quoted: what is not is a language of its own
        ).fetchall()
    except sqlite3.OperationalError as error:
        raise ToolError(f"{TOOL_SEARCH}: {error}") from error
    finally:
        index.close()
    return [name for _, name in sorted((score, tools[number].name) for number, score in rows)]


def _rows(tools: Iterable[Tool]) -> Iterator[tuple[int, str, str, str]]:
    for number, tool in enumerate(tools):
        properties = tool.parameters.get("properties", {})
        names = " ".join(properties) if isinstance(properties, Mapping) else ""
        yield number, _split_humps(tool.name), tool.description, _split_humps(names)


def _split_humps(text: str) -> str:
    """Return a text with the words of names such as `createIssue` apart, beside the names themselves."""
    split = _HUMP.sub(" ", text).replace("_", " ")
    return text if split == text else f"{text} {split}"


def _signature(tool: Mapping[str, Any]) -> str:
    """Return one line about a tool: its name, its arguments, what it does."""
    parameters = tool["parameters"]
    required = parameters.get("required", ())
    arguments = [name if name in required else f"{name}?" for name in parameters.get("properties", {})]
    text = " ".join(tool["description"].split())
    short = text if len(text) <= ABOUT_CHARS else f"{text[:ABOUT_CHARS]}..."
    return f"{tool['name']}({', '.join(arguments)}): {short}"
