"""Locked tools of MCP servers: `config/mcp.lock.json`, accepted by a person.

A server's tools are offered as locked, whether the server runs or not. Later changes are reported to a person
and used after acceptance, because descriptions go into prompts. Pure except for the file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from lemming.ext import Problem, describe_field, make_field
from lemming.kernel.base.jsontext import dump_compact, dump_pretty
from lemming.kernel.base.redaction.secrets import redact_json, redact_untrusted
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import Document, parse_document, unreadable_error
from lemming.kernel.org.organisation import Organisation, OrgPath

LOCK_FILE = "config/mcp.lock.json"
LOCK_LIMIT_BYTES = 16 << 20
MAX_TOOLS = 500
DESCRIPTION_CHARS = 2000
SCHEMA_BYTES = 16 << 10
TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
_CONTROL_CHARS = {*"\u200e\u200f\u061c", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}


@dataclass(frozen=True, kw_only=True)
class LockedTool:
    """Locked tool of a server. `hash` covers the server's complete description, before truncation."""

    hash: str = field(metadata=describe_field("Hash of name, description, schemas and hints as the server sent them."))
    description: str = make_field("", "The server's description, shortened.")
    schema: dict[str, Any] = make_field(dict, "JSON Schema of its arguments.")
    hints: dict[str, Any] = make_field(dict, "The server's hints, unchecked.")


@dataclass(frozen=True, kw_only=True)
class LockedServer:
    """Locked tools of a server, by name."""

    tools: dict[str, LockedTool] = make_field(dict, "Its tools by name.")


@dataclass(frozen=True, kw_only=True)
class McpLock:
    """Content of `config/mcp.lock.json`."""

    servers: dict[str, LockedServer] = make_field(dict, "The servers by name.")


EMPTY_LOCK = McpLock()


def load_lock(base: OrgPath) -> McpLock:
    """Return the lock. An unchanged file gives the same object. Raises: ConfigError for a damaged file."""
    org = Organisation.from_path(base)

    def parse_lock(raw: bytes) -> Document[McpLock]:
        return parse_document(raw, LOCK_FILE, McpLock, limit_bytes=LOCK_LIMIT_BYTES, any_integer=True)

    try:
        return org.files.get_value(LOCK_FILE, parse_lock, limit_bytes=LOCK_LIMIT_BYTES).value
    except FileNotFoundError:
        return EMPTY_LOCK
    except OSError as error:
        raise unreadable_error(LOCK_FILE, error) from None


def save_lock(base: OrgPath, servers: Mapping[str, LockedServer], *, sync: bool = False) -> None:
    """Save the tools of these servers, replacing their earlier lock. Raises: DiskError."""
    org = Organisation.from_path(base)
    all_servers = {**load_lock(org).servers, **servers}
    plain = {
        "servers": {
            name: {"tools": {tool: _to_json(locked_tool) for tool, locked_tool in sorted(server.tools.items())}}
            for name, server in sorted(all_servers.items())
        }
    }
    fs.write_atomic(org.base, LOCK_FILE, dump_pretty(plain), sync=sync)


def _to_json(tool: LockedTool) -> dict[str, Any]:
    hints = {"hints": tool.hints} if tool.hints else {}
    return {"hash": tool.hash, "description": tool.description, "schema": tool.schema, **hints}


# --- bounded copies of a server's answers ---------------------------------------------------------


def lock_tool(raw_tool: Mapping[str, Any]) -> LockedTool | str:
    """Return a locked tool from a server's description, or a text with the reason for its rejection.

    `raw_tool` has `name`, `description`, `input_schema`, `output_schema` and `hints`.
    """
    name = raw_tool["name"]
    if not TOOL_NAME.match(name):
        return "its name has characters beside letters, digits, _, - and ."
    schema = redact_json(plain_text(raw_tool["input_schema"]))
    if len(dump_compact(schema)) > SCHEMA_BYTES:
        return f"the schema of its arguments is longer than {SCHEMA_BYTES} bytes"
    description = redact_untrusted(" ".join(plain_text(raw_tool["description"] or "").split()))
    if len(description) > DESCRIPTION_CHARS:
        description = f"{description[:DESCRIPTION_CHARS].rstrip()}... (cut)"
    return LockedTool(
        hash=sha256(dump_compact(dict(raw_tool))).hexdigest()[:32],
        description=description,
        schema=schema,
        hints={key: value for key, value in raw_tool["hints"].items() if value is not None},
    )


def plain_text(value: Any) -> Any:
    """Return a JSON value without terminal control characters and hidden characters.

    >>> plain_text({"a" + chr(0x1B) + "[2J": ["b" + chr(0x202E) + "c", 1]})
    {'a[2J': ['bc', 1]}
    """
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else "".join(filter(_is_plain, value))
    if isinstance(value, Mapping):
        return {plain_text(str(key)): plain_text(inner) for key, inner in value.items()}
    return [plain_text(inner) for inner in value] if isinstance(value, list) else value


def _is_plain(letter: str) -> bool:
    if letter in "\n\t":
        return True
    is_hidden = letter in _CONTROL_CHARS or 0xE0000 <= ord(letter) <= 0xE0FFF  # invisible "tags"
    return not is_hidden and unicodedata.category(letter) not in ("Cc", "Cs", "Cn", "Co")


# --- changes --------------------------------------------------------------------------------------


def find_differences(locked: LockedServer, current: LockedServer) -> dict[str, str]:
    """Return descriptions of changes since acceptance, by tool name."""
    changes = {name: "is new" for name in current.tools if name not in locked.tools}
    for name, tool in locked.tools.items():
        if name not in current.tools:
            changes[name] = "is gone"
        elif current.tools[name].hash != tool.hash:
            changes[name] = _describe_changes(tool, current.tools[name])
    return dict(sorted(changes.items()))


def _describe_changes(locked: LockedTool, current: LockedTool) -> str:
    parts = {
        "its description": locked.description != current.description,
        "its arguments": locked.schema != current.schema,
        "its hints": locked.hints != current.hints,
    }
    changed = [part for part, is_other in parts.items() if is_other] or ["what the server says of it"]
    return f"has changed: {', '.join(changed)}"


def make_problem(server: str, tool: str, change: str) -> Problem:
    """Return the warning about a tool withheld until accepted."""
    return Problem(
        f'tool "{tool}" of MCP server {server} {change}; it is not offered',
        LOCK_FILE,
        hint=f"check it with `lemming mcp list`, then run `lemming mcp accept {server}`",
        severity="warning",
        code="LMG-306",
    )
