"""The tools `memory_read` and `memory_write`: access the agent's own memory. Always allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from lemming.ext import describe_field
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import did_you_mean, dump_compact
from lemming.kernel.memory import decode_memory, list_memories, load_memory, make_memory_effect, require_intact
from lemming.kernel.tools import EngineTool, ToolResult
from lemming.kernel.tools.tool_context import ToolContext

_ABSENT = object()


class MemoryReadTool(EngineTool):
    """Reads a memory, or lists the keys."""

    name = "memory_read"
    description = "Read one of your memories as JSON; without a key, list the keys you have."
    tool_class = "read"
    always_allowed = True
    keeps_deadline = True

    def source_file(self, agent_name: str, arguments: Mapping[str, Any]) -> str:
        """Return the path of the memory read by a call."""
        key = arguments.get("key")
        is_key = isinstance(key, str) and paths.MEMORY_KEY.match(key)
        return paths.memory_file(agent_name, key) if is_key else ""

    def plan(
        self, context: ToolContext, key: Annotated[str, describe_field("The memory's key; empty: list all keys.")] = ""
    ) -> ToolResult:
        """Return the value as JSON, or the keys on separate lines, including values saved earlier in this turn."""
        if not key:
            return ToolResult(True, "\n".join(_list_keys(context)) or "(no memories yet)")
        value = _read_value(context, key)
        if value is _ABSENT:
            raise ToolError(f'{self.name}: no memory "{key}"', hint=did_you_mean(key, _list_keys(context)))
        return ToolResult(True, dump_compact(value).decode())


class MemoryWriteTool(EngineTool):
    """Saves a memory."""

    name = "memory_write"
    description = "Save a memory: it replaces the value of its key and is shown in your later prompts."
    tool_class = "write"
    always_allowed = True
    keeps_deadline = True
    success_is_news = False
    replaces_whole = True

    def plan(
        self,
        context: ToolContext,
        key: Annotated[str, describe_field("The memory's key: letters, digits, _, - and dots.")],
        value: Annotated[Any, describe_field("Any JSON value.")],
    ) -> ToolResult:
        """Return the effect that saves the value. A damaged file at the key is never overwritten."""
        effect = make_memory_effect(context.agent.name, key, value, context.now)
        if effect.path_key not in context.staged:
            require_intact(context.base, context.agent.name, key)
        return ToolResult(True, f'saved "{key}"', (effect,))


def _read_value(context: ToolContext, key: str) -> Any:
    name = context.agent.name
    saved = load_memory(context.base, name, key, _ABSENT)  # also refuses an invalid key
    file = paths.memory_file(name, key)
    return decode_memory(context.staged[file], file) if file in context.staged else saved


def _list_keys(context: ToolContext) -> list[str]:
    prefix = f"{paths.memory_folder(context.agent.name)}/"
    staged = {path.removeprefix(prefix).removesuffix(".json") for path in context.staged if path.startswith(prefix)}
    return sorted(staged.union(list_memories(context.base, context.agent.name)))
