"""What MCP servers were last known to have: `config/mcp.lock.json`, which a person has accepted.

A server's tools are offered as they stand here, whether it runs or not. What a server says differently later
is told to a person, and used once accepted: its words go into prompts. Pure but for reading the file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.base.jsontext import compact, pretty
from lemming.kernel.base.redaction.secrets import redact_foreign, redact_json
from lemming.kernel.files import fs
from lemming.kernel.files.documents import Document, read_text, unreadable
from lemming.kernel.files.fitting import about
from lemming.kernel.org.organisation import Organisation, OrgPath

LOCK_FILE = "config/mcp.lock.json"
LOCK_LIMIT_BYTES = 16 << 20
MOST_TOOLS = 500
DESCRIPTION_CHARS = 2000
SCHEMA_BYTES = 16 << 10
TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
_STEERING = {*"\u200e\u200f\u061c", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}


@dataclass(frozen=True, kw_only=True)
class KnownTool:
    """One tool of a server. `hash` is of all that the server said of it, also of what was cut here."""

    hash: str = field(metadata=about("Of name, description, schemas and hints as the server gave them."))
    description: str = field(default="", metadata=about("What the server says that it does, cut."))
    schema: dict[str, Any] = field(default_factory=dict, metadata=about("JSON Schema of its arguments."))
    hints: dict[str, Any] = field(
        default_factory=dict, metadata=about("What the server hints at, unchecked.")
    )


@dataclass(frozen=True, kw_only=True)
class KnownServer:
    """The tools of one server by name."""

    tools: dict[str, KnownTool] = field(default_factory=dict, metadata=about("Its tools by name."))


@dataclass(frozen=True, kw_only=True)
class McpLock:
    """What `config/mcp.lock.json` holds."""

    servers: dict[str, KnownServer] = field(default_factory=dict, metadata=about("The servers by name."))


NOTHING_KNOWN = McpLock()


def known_servers(base: OrgPath) -> McpLock:
    """Return what is known of servers; the very same value when the file says nothing new.

    Raises `ConfigError` for a file that is damaged.
    """
    org = Organisation.at(base)
    try:
        reading = org.files.reading(LOCK_FILE, _decode, limit_bytes=LOCK_LIMIT_BYTES)
    except FileNotFoundError:
        return NOTHING_KNOWN
    except OSError as error:
        raise unreadable(LOCK_FILE, error) from None
    outcome: Document[McpLock] | ConfigError = reading.outcome
    if isinstance(outcome, ConfigError):
        raise outcome.with_traceback(None)
    return outcome.value


def _decode(raw: bytes) -> Document[McpLock]:
    return read_text(raw, LOCK_FILE, McpLock, limit_bytes=LOCK_LIMIT_BYTES, any_integer=True)


def keep(base: OrgPath, servers: Mapping[str, KnownServer], *, sync: bool = False) -> None:
    """Write down what these servers have, in the place of what was known of them. Raises `DiskError`."""
    org = Organisation.at(base)
    all_of_them = {**known_servers(org).servers, **servers}
    plain = {
        "servers": {
            name: {"tools": {tool: _plain(known) for tool, known in sorted(server.tools.items())}}
            for name, server in sorted(all_of_them.items())
        }
    }
    fs.publish(org.base, LOCK_FILE, pretty(plain), sync=sync)


def _plain(tool: KnownTool) -> dict[str, Any]:
    hints = {"hints": tool.hints} if tool.hints else {}
    return {"hash": tool.hash, "description": tool.description, "schema": tool.schema, **hints}


# --- what a server says, made fit to be kept -------------------------------------------------------


def known_tool(said: Mapping[str, Any]) -> KnownTool | str:
    """Return a tool as it is kept, of what a server says of it; a text says why it cannot be used.

    `said` has `name`, `description`, `input_schema`, `output_schema` and `hints`.
    """
    name = said["name"]
    if not TOOL_NAME.match(name):
        return "its name has characters beside letters, digits, _, - and ."
    schema = redact_json(plain_text(said["input_schema"]))
    if len(compact(schema)) > SCHEMA_BYTES:
        return f"the schema of its arguments is longer than {SCHEMA_BYTES} bytes"
    description = redact_foreign(" ".join(plain_text(said["description"] or "").split()))
    if len(description) > DESCRIPTION_CHARS:
        description = f"{description[:DESCRIPTION_CHARS].rstrip()}... (cut)"
    return KnownTool(
        hash=sha256(compact(dict(said))).hexdigest()[:32],
        description=description,
        schema=schema,
        hints={key: value for key, value in said["hints"].items() if value is not None},
    )


def plain_text(value: Any) -> Any:
    """Return a JSON value whose texts hold nothing that steers a terminal or hides from a reader.

    >>> plain_text({"a\\x1b[2J": ["b\\u202ec", 1]})
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
    is_hidden = letter in _STEERING or 0xE0000 <= ord(letter) <= 0xE0FFF  # "tags", which nobody sees
    return not is_hidden and unicodedata.category(letter) not in ("Cc", "Cs", "Cn", "Co")


# --- what has changed ------------------------------------------------------------------------------


def differences(known: KnownServer, now: KnownServer) -> dict[str, str]:
    """Return in words what a server says otherwise than was accepted, by the tool's name."""
    found = {name: "is new" for name in now.tools if name not in known.tools}
    for name, tool in known.tools.items():
        if name not in now.tools:
            found[name] = "is gone"
        elif now.tools[name].hash != tool.hash:
            found[name] = _what_changed(tool, now.tools[name])
    return dict(sorted(found.items()))


def _what_changed(before: KnownTool, after: KnownTool) -> str:
    parts = {
        "its description": before.description != after.description,
        "its arguments": before.schema != after.schema,
        "its hints": before.hints != after.hints,
    }
    changed = [part for part, is_other in parts.items() if is_other] or ["what the server says of it"]
    return f"has changed: {', '.join(changed)}"


def problem_of(server: str, tool: str, what: str) -> Problem:
    """Return what a person is told of a tool that is not offered until it is accepted."""
    return Problem(
        f'tool "{tool}" of MCP server {server} {what}; it is not offered',
        LOCK_FILE,
        hint=f"look with `lemming mcp list`, then `lemming mcp accept {server}`",
        severity="warning",
        code="LMG-306",
    )
