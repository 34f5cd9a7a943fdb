"""The tool `tool_search`: find permitted tools that the prompt does not list, by words.

SQLite's full-text search (BM25) ranks the tools by names, descriptions and argument names. The call's record
keeps the schemas of the matches, because a replay of the turn needs the same schemas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from lemming.ext import describe_field
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ToolError
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools import EngineTool, Tool, ToolResult, get_toolset
from lemming.kernel.tools.listing import describe_groups, describe_tool, is_deferrable, make_found_tools_state
from lemming.kernel.tools.tool_context import ToolContext
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

    def refusal_reason(self, agent: Agent, settings: OrgSettings) -> str:
        """Return the rule against a call: the agent needs a permission pattern for several tools."""
        return "" if agent.permissions.tool_patterns else super().refusal_reason(agent, settings)

    def plan(
        self,
        context: ToolContext,
        query: Annotated[str, describe_field("What the tool should do.", min_length=1, max_length=1000)],
    ) -> ToolResult:
        """Return the signatures of the most relevant tools, best first."""
        toolset = get_toolset(context.settings, context.org)
        allowed = toolset.allowed_tools(context.agent, context.settings).values()
        tools = {tool.name: tool for tool in allowed if is_deferrable(tool, context.agent)}
        matches = [describe_tool(tools[name]) for name in rank_tools([*tools.values()], query)[:TOOLS_LIMIT]]
        if not matches:
            groups = describe_groups(tools.values()) or "none"
            return ToolResult(True, f"No tool is about that. There are tools of: {groups}")
        return ToolResult(True, "\n".join(map(_format_signature, matches)), state=make_found_tools_state(matches))


def rank_tools(tools: Sequence[Tool], query: str) -> list[str]:
    """Return names of tools with a word of the query, best first, then by name. Raises `ToolError` without words."""
    import sqlite3  # only where a call is made

    terms = list(dict.fromkeys(re.findall(r"\w+", _split_camel_case(query))))[:TERMS_LIMIT]
    if not terms:
        raise ToolError(f"{TOOL_SEARCH}: the query has no word")
    index = sqlite3.connect(":memory:")
    try:
        index.execute("CREATE VIRTUAL TABLE t USING fts5(name, about, arguments, tokenize = 'porter unicode61')")
        index.executemany("INSERT INTO t (rowid, name, about, arguments) VALUES (?, ?, ?, ?)", _iter_rows(tools))
        rows = index.execute(
            f"SELECT rowid, round(bm25(t, {_WEIGHTS}), 6) FROM t WHERE t MATCH ?",  # noqa: S608 - numbers of ours
            (" OR ".join(f'"{term}"' for term in terms),),  # quoted: without quotes the text is a query language
        ).fetchall()
    except sqlite3.OperationalError as error:
        raise ToolError(f"{TOOL_SEARCH}: {error}") from error
    finally:
        index.close()
    return [name for _, name in sorted((score, tools[number].name) for number, score in rows)]


def _iter_rows(tools: Iterable[Tool]) -> Iterator[tuple[int, str, str, str]]:
    for number, tool in enumerate(tools):
        properties = tool.parameters.get("properties", {})
        names = " ".join(properties) if isinstance(properties, Mapping) else ""
        yield number, _split_camel_case(tool.name), tool.description, _split_camel_case(names)


def _split_camel_case(text: str) -> str:
    """Return a text followed by the separate words of names such as `createIssue`."""
    split = _HUMP.sub(" ", text).replace("_", " ")
    return text if split == text else f"{text} {split}"


def _format_signature(tool: Mapping[str, Any]) -> str:
    parameters = tool["parameters"]
    required = parameters.get("required", ())
    arguments = [name if name in required else f"{name}?" for name in parameters.get("properties", {})]
    text = " ".join(tool["description"].split())
    short = text if len(text) <= ABOUT_CHARS else f"{text[:ABOUT_CHARS]}..."
    return f"{tool['name']}({', '.join(arguments)}): {short}"
