"""A model that does whatever a text tells it to, to the letter, wherever in its prompt the text stands.

A text tells it something by `!!DO <json>!!`: a tool call, an entry, a memory. Whatever hides the words from
a person (spaces of no width, letters that turn text around, look-alikes) does not hide them from it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

from lemming.providers import LLMProvider, ProviderRegistry, Reply, Request

_TOLD = re.compile(r"!!DO (\{.*?\})!!", re.S)


def orders_in(text: str) -> list[dict[str, Any]]:
    """Return what a text tells it to do, in its order, each once."""
    plain = re.sub(r"\\+u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
    plain = "".join(
        letter for letter in unicodedata.normalize("NFKC", plain) if unicodedata.category(letter) != "Cf"
    )
    plain = plain.replace('\\\\"', '"').replace('\\"', '"').replace("\\\\", "\\")
    orders: list[dict[str, Any]] = []
    for found in _TOLD.finditer(plain):
        try:
            order = json.loads(found[1])
        except ValueError:
            continue
        if order not in orders:
            orders.append(order)
    return orders


class Obedient(LLMProvider):
    """Does its work (a note, a report), and then all that it was told to by anybody."""

    takes_schema = False

    def complete(self, request: Request) -> Reply:
        asked = "\n".join(str(message["content"]) for message in request.messages)
        reply: dict[str, Any] = {"outbox_entries": [], "tool_calls": [], "memory_updates": [], "notes": ""}
        work = {"text": f"worked in tick {request.tick}"}
        if request.step == 0:
            note = {"path": f"workspace/note-{request.tick}.txt", "content": work["text"]}
            reply["outbox_entries"].append({"kind": "report", "payload": work, "tags": []})
            reply["tool_calls"].append({"tool": "file_write", "args": note})
        for order in orders_in(asked)[:40]:
            for key in ("tool_calls", "outbox_entries", "memory_updates"):
                reply[key] += [order[key]] if key in order else []
        return Reply(json.dumps(reply))


ProviderRegistry.register("obedient", Obedient)
