"""What a call of an MCP tool gave, as text: a stranger's, with nothing in it that steers or hides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lemming.capabilities.mcp.lock import plain_text
from lemming.kernel.base.jsontext import to_line


def as_text(blocks: Iterable[Mapping[str, Any]], structured: Any = None) -> str:
    """Return content blocks as one text; what is no text is named. Format: the protocol's `CallToolResult`.

    >>> as_text([{"type": "text", "text": "3"}, {"type": "image", "mime_type": "image/png", "data": "aGk="}])
    '3\\n[image image/png, 2 bytes: not shown]'
    >>> as_text([], {"sum": 3})
    '{"sum": 3}'
    """
    parts = [_block(block) for block in blocks]
    if not any(parts) and structured is not None:
        parts = [to_line(structured)]
    text: str = plain_text("\n".join(part for part in parts if part))
    return text


def _block(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio" as kind:
            return f"[{kind} {block.get('mime_type', '')}, {_size(block.get('data'))} bytes: not shown]"
        case "resource_link":
            return f"[resource {block.get('uri', '')}: {block.get('name', '')}]"
        case "resource":
            inner = block.get("resource") or {}
            if isinstance(inner.get("text"), str):
                return f"[resource {inner.get('uri', '')}]\n{inner['text']}"
            return f"[resource {inner.get('uri', '')}, {_size(inner.get('blob'))} bytes: not shown]"
    return f"[{str(block.get('type'))[:40]}: not shown]"


def _size(base64: Any) -> int:
    text = base64 if isinstance(base64, str) else ""
    return len(text) * 3 // 4 - text.count("=", -2)
