"""The tools `memory_read` and `memory_write`: access the agent's own memory. Always allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from lemming.capabilities.toolbox.file_tools import make_write_effect
from lemming.ext import describe_field
from lemming.kernel.access.agent_files import read_text, scan_folder
from lemming.kernel.access.allowed_paths import Access, resolve_path
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, ToolError
from lemming.kernel.base.jsontext import did_you_mean, dump_compact
from lemming.kernel.memory import decode_memory, list_memories, load_memory, make_memory_effect
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools import EngineTool, Places, ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.libraries.agent_folders import target_exists
from lemming.libraries.store_values import StoredValue, encode_stored_value, get_store_path, parse_stored_value

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
        name = context.agent.name
        value = load_memory(context.base, name, key, _ABSENT)  # also refuses an invalid key
        if (file := paths.memory_file(name, key)) in context.staged:
            value = decode_memory(context.staged[file], file)
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
            load_memory(context.base, context.agent.name, key)  # a damaged file is not replaced
        return ToolResult(True, f'saved "{key}"', (effect,))


def _list_keys(context: ToolContext) -> list[str]:
    prefix = f"{paths.memory_folder(context.agent.name)}/"
    staged = {path.removeprefix(prefix).removesuffix(".json") for path in context.staged if path.startswith(prefix)}
    return sorted(staged.union(list_memories(context.base, context.agent.name)))


class _StoreTool(EngineTool):
    """A tool with access to the folder of the store only."""

    keeps_deadline = True

    def read_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return the folder of the store."""
        return {paths.STORE: f"tool {self.name}"}


class StoreReadTool(_StoreTool):
    """Reads a value of the store, or lists the keys."""

    name = "store_read"
    description = (
        "Read a value that several agents keep, with its version and who wrote it; without a key, list the keys."
    )
    tool_class = "read"

    def source_file(self, agent_name: str, arguments: Mapping[str, Any]) -> str:
        """Return the path of the file read by a call."""
        key = arguments.get("key")
        return f"{paths.STORE}/{key}.json" if isinstance(key, str) and paths.MEMORY_KEY.match(key) else ""

    def plan(
        self, context: ToolContext, key: Annotated[str, describe_field("The key; empty: list all keys.")] = ""
    ) -> ToolResult:
        """Return version, writer and value as JSON, or the keys on separate lines."""
        if not key:
            return ToolResult(True, "\n".join(_list_store_keys(context, self.name)) or "(nothing is kept yet)")
        stored_value = _read_stored_value(context, key, self.name)
        if stored_value is None:
            hint = did_you_mean(key, _list_store_keys(context, self.name))
            raise ToolError(f'{self.name}: no key "{key}"', hint=hint)
        facts = {name: getattr(stored_value, name) for name in ("version", "agent", "tick", "value")}
        return ToolResult(True, dump_compact(facts).decode())


class StoreWriteTool(_StoreTool):
    """Writes a value of the store, if the writer knows the current version."""

    name = "store_write"
    description = (
        "Keep a value for several agents. `expect` is the version that store_read gave you, null for a key "
        "that is not there yet; if somebody has written it since, nothing is written and you are told."
    )
    tool_class = "write"
    replaces_whole = True

    def write_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return the folder of the store."""
        return self.read_paths(agent, settings)

    def plan(
        self,
        context: ToolContext,
        key: Annotated[str, describe_field("The key: letters, digits, _, - and dots.")],
        value: Annotated[Any, describe_field("Any JSON value.")],
        expect: Annotated[str | None, describe_field("The version you know; null: the key is not to be there.")],
    ) -> ToolResult:
        """Return the effect that writes the value, and the new version."""
        name = context.agent.name
        stored_value = _read_stored_value(context, key, self.name, access="write")
        if conflict := _version_conflict(stored_value, expect):
            raise ToolError(f'{self.name}: "{key}" {conflict}')
        content = encode_stored_value(key, value, context.now, name, context.tick)
        effect = make_write_effect(context, get_store_path(key), content.decode(), caller=self.name)
        return ToolResult(
            True, f'"{key}" has version {parse_stored_value(content, effect.path).version} now', (effect,)
        )


def _version_conflict(stored_value: StoredValue | None, expect: str | None) -> str:
    if stored_value is None:
        return "" if expect is None else "is not there: expect null to begin it"
    if expect == stored_value.version:
        return ""
    writer = (
        f"{stored_value.agent or 'somebody'} wrote it in tick {stored_value.tick}"
        if stored_value.tick >= 0
        else "it was written"
    )
    return f"is at version {stored_value.version} ({writer}): read it again, and write with that version"


def _read_stored_value(context: ToolContext, key: str, caller: str, *, access: Access = "read") -> StoredValue | None:
    """Return the value under a key as this turn sees the store, or None. Raises `ToolError`."""
    file = get_store_path(key)
    allowed_path = resolve_path(context.agent, context.base, file, access, caller=caller)
    if not target_exists(allowed_path, context.staged, context.removed):
        return None
    text = read_text(allowed_path, context.staged, context.removed)
    try:
        return parse_stored_value(text.encode(), file)
    except CorruptState as error:
        raise ToolError(f"{caller}: {error.message}; a person must repair or remove {file}") from error


def _list_store_keys(context: ToolContext, caller: str) -> list[str]:
    folder = resolve_path(context.agent, context.base, paths.STORE, "read", caller=caller)
    if not target_exists(folder, context.staged, context.removed) and not any(
        key.startswith(f"{folder.path_key}/") for key in context.staged
    ):
        return []
    names = scan_folder(folder, context.staged, context.removed)
    return sorted(name.removesuffix(".json") for name, mark in names.items() if name.endswith(".json") and not mark)
