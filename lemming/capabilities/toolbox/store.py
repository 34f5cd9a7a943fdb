"""`store_read`, `store_write`: values that several agents keep, written by who knows the latest version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from lemming.capabilities.store.values import Stored, store_file, stored, stored_content
from lemming.capabilities.toolbox.files import effect_of
from lemming.kernel.access.allowed_paths import Access, resolve
from lemming.kernel.access.open import is_taken, read_text, scan_folder
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, ToolError
from lemming.kernel.base.jsontext import compact, nearest
from lemming.kernel.files.fitting import about
from lemming.kernel.org.config import Org
from lemming.kernel.tools import EngineTool, Places, ToolResult
from lemming.kernel.tools.context import ToolContext


class _OfTheStore(EngineTool):
    """A tool that touches the folder of the store, and nothing else that others may."""

    keeps_deadline = True

    def reads(self, agent: Agent, settings: Org) -> Places:
        """Return the folder of the store."""
        return {paths.STORE: f"tool {self.name}"}


class StoreRead(_OfTheStore):
    """Reads one value of the store, or lists the keys."""

    name = "store_read"
    description = (
        "Read a value that several agents keep, with its version and who wrote it; without a key, list the "
        "keys."
    )
    tool_class = "read"

    def source(self, agent_name: str, arguments: Mapping[str, Any]) -> str:
        """Return the file that is read."""
        key = arguments.get("key")
        return f"{paths.STORE}/{key}.json" if isinstance(key, str) and paths.MEMORY_KEY.match(key) else ""

    def plan(
        self,
        context: ToolContext,
        key: Annotated[str, about("The key; empty: list all keys.")] = "",
    ) -> ToolResult:
        """Return version, writer and value as JSON, or the keys, one a line."""
        if not key:
            return ToolResult(True, "\n".join(_keys(context, self.name)) or "(nothing is kept yet)")
        found = _read(context, key, self.name)
        if found is None:
            raise ToolError(f'{self.name}: no key "{key}"', hint=nearest(key, _keys(context, self.name)))
        facts = {"version": found.version, "agent": found.agent, "tick": found.tick, "value": found.value}
        return ToolResult(True, compact(facts).decode())


class StoreWrite(_OfTheStore):
    """Writes one value of the store, if it is still as the writer knows it."""

    name = "store_write"
    description = (
        "Keep a value for several agents. `expect` is the version that store_read gave you, null for a key "
        "that is not there yet; if somebody has written it since, nothing is written and you are told."
    )
    tool_class = "write"
    replaces_whole = True

    def writes(self, agent: Agent, settings: Org) -> Places:
        """Return the folder of the store."""
        return self.reads(agent, settings)

    def plan(
        self,
        context: ToolContext,
        key: Annotated[str, about("The key: letters, digits, _, - and dots.")],
        value: Annotated[Any, about("Any JSON value.")],
        expect: Annotated[str | None, about("The version you know; null: the key is not to be there.")],
    ) -> ToolResult:
        """Return the effect that writes the value, and its version."""
        name = context.agent.name
        found = _read(context, key, self.name, access="write")
        if why := _why_not_expected(found, expect):
            raise ToolError(f'{self.name}: "{key}" {why}')
        content = stored_content(key, value, context.now, name, context.tick)
        effect = effect_of(context, store_file(key), content.decode(), caller=self.name)
        return ToolResult(True, f'"{key}" has version {stored(content, effect.path).version} now', (effect,))


def _why_not_expected(found: Stored | None, expect: str | None) -> str:
    """Return why a value is not as its writer knows it; empty when it is."""
    if found is None:
        return "" if expect is None else "is not there: expect null to begin it"
    if expect == found.version:
        return ""
    by = f"{found.agent or 'somebody'} wrote it in tick {found.tick}" if found.tick >= 0 else "it was written"
    return f"is at version {found.version} ({by}): read it again, and write with that version"


def _read(context: ToolContext, key: str, caller: str, *, access: Access = "read") -> Stored | None:
    """Return what is kept under a key, as this turn sees it; None when nothing is. Raises `ToolError`."""
    file = store_file(key)
    place = resolve(context.agent, context.base, file, access, caller=caller)
    if not is_taken(place, context.staged, context.removed):
        return None
    text = read_text(place, context.staged, context.removed)
    try:
        return stored(text.encode(), file)
    except CorruptState as error:
        raise ToolError(f"{caller}: {error.message}; a person must repair or remove {file}") from error


def _keys(context: ToolContext, caller: str) -> list[str]:
    place = resolve(context.agent, context.base, paths.STORE, "read", caller=caller)
    if not is_taken(place, context.staged, context.removed) and not any(
        key.startswith(f"{place.key}/") for key in context.staged
    ):
        return []
    names = scan_folder(place, context.staged, context.removed)
    return sorted(
        name.removesuffix(".json") for name, mark in names.items() if name.endswith(".json") and not mark
    )
