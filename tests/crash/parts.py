"""What the organisations of the corpus are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.testing import say


def remembers(text: str, **more: Any) -> dict[str, Any]:
    return say(text, memory_updates=[{"key": "last", "value": text}], **more)


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}


def by_hand(base: Path, author: str, tick: int, ident: str, *, kind: str = "request", **payload: Any) -> None:
    """Put an entry into an outbox as a person with an editor would."""
    entry = {"id": ident, "tick": tick, "agent": author, "kind": kind, "payload": payload}
    file = f"agents/{author}/outbox/{tick:08d}_{ident}.json"
    fs.write_atomic(base, file, dump_pretty({**entry, "tags": [], "created_at": ""}))
