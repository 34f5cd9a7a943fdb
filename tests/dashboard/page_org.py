"""An organisation of eight, in which something of everything has happened that the page shows."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from patience import PATIENCE_S

from lemming.engine import run_once
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.files import fs
from lemming.kernel.messages import entry_id
from lemming.testing import FrozenClock, make_org, resume, say

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)> \u202egnp.exe\u202c {{7*7}}"
SEEN = HOSTILE.replace("\u202e", "⟨U+202E⟩").replace("\u202c", "⟨U+202C⟩")
LETTER = "Dear Ms Okafor,\n\nyour order 4711 was paid twice. 49.00 EUR go back to your card today.\n\nThe desk\n"
FORM = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean", "description": "May it be paid?"},
        "amount": {"type": "number", "description": "How much, in EUR"},
        "reason": {"enum": ["double", "defect", "late"]},
    },
    "required": ["ok", "reason"],
}


class HeldClock(SystemClock):
    """A clock under which answers with a `delay_s` wait until they are `released`."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.released = threading.Event()

    def pause(self, seconds: float) -> None:
        """Wait, whatever the seconds."""
        self.released.wait(PATIENCE_S)


def make_desk(base: Path) -> Path:
    """Make the organisation and run three ticks of it: an approval, a form and a failure are left over."""
    shared = {"allow_read": ["./shared"], "allow_write": ["./shared"]}
    reads = {"read_outboxes": ["*"], "tools": ["file_write"], "file_access": shared}
    limits = {"max_credits": 40, "soft_cap": 30}
    may: dict[str, Any] = {"permissions": reads, "credits": limits}
    make_org(
        base,
        resume("desk", title="Front desk", **may),
        resume("billing", title="Knows what was paid", **may, schedule={"wake": "addressed"}),
        resume("refunds", title="Pays back", **may),
        resume("writer", title="Writes to customers", **may),
        resume("watcher", title="Looks at the mailbox", **may),
        resume("archivist", title="Files it all away", **may, schedule={"run_every_n_ticks": 50}),
        resume("stranger", title=HOSTILE, **may),
        resume("human", title="The person at the desk", model={"key": "human"}, permissions=reads),
        models={"human": {"provider": "human"}},
        org={
            "gates": [{"at": "call", "tool": "file_write", "then": "ask", "because": "letters are read first"}],
            "trust": {},
        },
        script=SCRIPT,
    )
    fs.write_atomic(base, "shared/letters/okafor.txt", b"Dear customer,\n\nyour order 4711 is under way.\n\nThe desk\n")
    for _ in range(3):
        run_once(base, clock=FrozenClock())
    return base


def _asks(text: str, target: str, **more: Any) -> dict[str, Any]:
    entry = {"kind": "request", "payload": {"text": text, "target": target, **more}, "tags": []}
    return {"outbox_entries": [entry], "tool_calls": [], "memory_updates": [], "notes": ""}


_ANSWER = say("Yes: on 3 and on 5 November, 49.00 EUR each time.", kind="response")
_ANSWER["outbox_entries"][0]["payload"]["reply_to"] = entry_id(1, "desk", 0)
_LETTER = {"tool": "file_write", "args": {"path": "shared/letters/okafor.txt", "content": LETTER}}
SCRIPT: list[dict[str, Any]] = [
    {"agent": "watcher", "error": "AuthenticationFailed"},
    {"agent": "desk", "tick": 1, "reply": _asks("Was order 4711 really paid twice?", "billing")},
    {"agent": "billing", "tick": 2, "reply": _ANSWER},
    {"agent": "desk", "tick": 2, "reply": say("Ticket 12: billing confirms a double payment.", kind="report")},
    {"agent": "refunds", "tick": 2, "reply": _asks("May I pay 49.00 EUR back to Ms Okafor?", "human", schema=FORM)},
    {"agent": "writer", "tick": 2, "step": 0, "reply": say("I have a draft.", tool_calls=[_LETTER])},
    {"agent": "stranger", "tick": 2, "reply": say(HOSTILE)},
    {"agent": "stranger", "tick": 3, "reply": say("long " * 12_000)},
    {"reply": {"outbox_entries": [], "tool_calls": [], "memory_updates": [], "notes": ""}},
]
