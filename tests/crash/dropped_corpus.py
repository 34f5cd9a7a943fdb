"""An organisation that is crashed, and has a channel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.kernel.files import fs
from lemming.kernel.messages import entry_id
from lemming.testing import make_org, resume, say


def dropped(base: Path, org: dict[str, Any]) -> None:
    """Files dropped into the folder of a channel: some a tick, answered in the next."""
    replies = [
        {
            "agent": "ada",
            "tick": tick,
            "reply": say("", outbox_entries=[_response(tick, number) for number in range(2)]),
        }
        for tick in (1, 2)
    ]
    make_org(
        base,
        resume("ada"),
        resume("door", model={"key": "door"}),
        org=org,
        models={"door": {"provider": "folder", "options": {"path": "shared/drop", "to": "ada", "per_tick": 2}}},
        script=replies,
    )
    for number in range(4):
        fs.write_atomic(base, f"shared/drop/{number}.txt", f"question {number}".encode())


def _response(tick: int, number: int) -> dict[str, Any]:
    asked = {"text": f"to {tick}.{number}", "reply_to": entry_id(tick, "door", number)}
    return {"kind": "response", "payload": asked, "tags": []}
