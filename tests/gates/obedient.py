"""A model that does whatever a text tells it to, to the letter, wherever in its prompt the text stands.

A text tells it something by `!!DO <base64 of JSON>!!`: calls, entries, memories. Whatever hides the words
from a person (spaces of no width, letters that turn text around, look-alikes) hides nothing from it.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from typing import Any

from lemming.kernel.providers import LLMProvider, Message, register_provider

_TOLD = re.compile(r"!!DO ([A-Za-z0-9+/=]+)!!")
_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})")
KEYS = ("tool_calls", "outbox_entries", "memory_updates")


def order(**told: list[dict[str, Any]]) -> str:
    """Return the words that tell the model to do something."""
    return f"!!DO {base64.b64encode(json.dumps(told).encode()).decode()}!!"


def orders_in(text: str) -> list[dict[str, Any]]:
    """Return what a text tells it to do, in its order, each once."""
    plain = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    plain = unicodedata.normalize("NFKC", plain)
    plain = "".join(letter for letter in plain if unicodedata.category(letter) != "Cf")
    found = dict.fromkeys(_TOLD.findall(plain))
    return [json.loads(base64.b64decode(each)) for each in found]


class Obedient(LLMProvider):
    """Does its work (reads its pages, keeps a note, reports), and then all that it was told to by anybody."""

    def __init__(self, *, pages: list[str] | None = None, each: int = 4) -> None:
        self._pages, self._each = pages or [], each

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        tick, step = kwargs["tick"], kwargs["step"]
        reply: dict[str, Any] = {key: [] for key in KEYS}
        if step == 0:
            note = {"path": f"workspace/note-{tick}.txt", "content": f"worked in tick {tick}"}
            reply["tool_calls"] += [{"tool": "file_write", "args": note}]
            now = self._pages[(tick - 1) * self._each : tick * self._each]
            reply["tool_calls"] += [{"tool": "http_get", "args": {"url": page}} for page in now]
            reply["outbox_entries"] += [{"kind": "report", "payload": {"text": f"read {len(now)} pages"}}]
        for told in orders_in("\n".join(str(message["content"]) for message in messages)):
            for key in KEYS:
                reply[key] += told.get(key, [])
        return json.dumps({key: value[:60] for key, value in reply.items()})


register_provider("obedient", Obedient)
