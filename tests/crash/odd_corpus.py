"""The organisation of the corpus whose models write replies as small models do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parts import remembers

from lemming.testing import SCRIPT_FILE, make_org, resume, say


def odd(base: Path, org: dict[str, Any]) -> None:
    """Calls in text, faults of JSON, and replies of which an optional part is wrong."""
    fit = {"provider": "scripted", "prompt": "fit", "options": {"file": SCRIPT_FILE}}
    may = {"read_outboxes": ["*"], "tools": ["file_write", "file_read", "memory_write"]}
    written = '{"name": "file_write", "arguments": {"path": "n.txt", "content": "1"}}'
    unsound = say("sound", memory_updates=[{"key": "a b", "value": 1}], tool_calls=[{"tool": 7}], mood="glad")
    actions = [{"do": "remember", "value": "no key"}, {"do": "send", "text": "one of two"}]
    make_org(
        base,
        resume("ada", permissions=may, turn={"max_steps": 3}),
        resume("bob", model={"key": "fit"}, permissions=may),
        resume("cyd", permissions=may),
        org=org,
        models={"fit": fit},
        script=[
            {"agent": "ada", "step": 0, "reply": f"I write it.\n<tool_call>\n{written}\n</tool_call>"},
            {"agent": "ada", "step": 1, "reply": f"{json.dumps(say('beside'))}\n```json\n{written[:-1]}\n```"},
            {"agent": "ada", "reply": str(remembers("as Python"))},
            {"agent": "bob", "step": 0, "reply": json.dumps(actions)},
            {"agent": "cyd", "reply": unsound},
            {"reply": {"do": "done"}},
        ],
    )
