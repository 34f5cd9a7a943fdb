"""An organisation with a desk that answers, and a channel beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lemming.kernel.messages import OutboxEntry
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import make_org, resume, say

ANSWER = {"reply": say("hello")}


def with_channel(base: Path, options: dict[str, Any], *, provider: str = "folder", **more: Any) -> Path:
    """Make an organisation: `desk` answers what `door`, a channel, takes in."""
    wakes = {"run_every_n_ticks": 1, "phase_offset": 0, "wake": "changed"}
    desk = resume("desk", schedule=wakes, turn={"take": "all"})
    door = resume("door", model={"key": "door"}, permissions={"read_outboxes": ["desk"], "tools": []})
    models = {"door": {"provider": provider, "options": options}}
    return make_org(base, desk, door, models=models, **more)


def arrived(base: Path) -> list[OutboxEntry]:
    """Return what the channel has taken in, oldest first."""
    return read_outbox_entries(base, "door")


def noted(base: Path) -> list[dict[str, Any]]:
    """Return the lines of the channel's log."""
    file = base / "agents/door/channel.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def answer_to(base: Path, entry: OutboxEntry, text: str) -> None:
    """Put a response of the desk to an entry into its outbox, as of the tick before the next."""
    from lemming.engine import load_tick
    from lemming.libraries.outbox_files import write_person_entry

    payload = {"text": text, "reply_to": entry.id}
    write_person_entry(base, "desk", tick=load_tick(base), kind="response", payload=payload, tags=[], created_at="")
