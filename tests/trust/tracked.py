"""An organisation that tracks how far texts are trusted, with a channel that strangers write to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.engine import run_once
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.testing import FrozenClock, journal_lines, make_org, resume

MODELS = {"human": {"provider": "human"}, "post": {"provider": "folder", "options": {"path": "post"}}}


def owner(name: str = "eve") -> dict[str, Any]:
    """Return the resume of a person."""
    return resume(name, model={"key": "human"})


def post(name: str = "post") -> dict[str, Any]:
    """Return the resume of a channel that strangers write to."""
    return resume(name, model={"key": "post"})


def tracked(
    base: Path,
    *resumes: dict[str, Any],
    script: list[dict[str, Any]] | None = None,
    trust: dict[str, Any] | None = None,
    **settings: Any,
) -> Path:
    """Make an organisation that tracks trust, with a person and a channel beside these agents."""
    org = {"trust": trust or {}, **settings}
    return make_org(base, owner(), post(), *resumes, script=script, models=MODELS, org=org)


def write(base: Path, author: str, text: str, **payload: Any) -> OutboxEntry:
    """Write an entry by hand, as a person does or a channel."""
    plain = {"text": text, **payload}
    tags: list[str] = plain.pop("tags", [])
    at = "2026-01-01T00:00:00Z"
    return write_person_entry(
        base, author, tick=load_tick(base), kind="message", payload=plain, tags=tags, created_at=at
    )


def tick(base: Path) -> dict[str, TurnReport]:
    """Run one tick and return what became of each agent."""
    return {turn.agent: turn for turn in run_once(base, clock=FrozenClock()).turns}


def newest(base: Path, author: str) -> OutboxEntry:
    """Return the latest entry of an agent."""
    return read_outbox_entries(base, author)[-1]


def started(base: Path, number: int, agent: str) -> dict[str, Any]:
    """Return what the journal says of how a turn began."""
    lines = journal_lines(base, number)
    (found,) = (it for it in lines if it["type"] == "turn_started" and it["agent"] == agent)
    return found


def finished(base: Path, number: int, agent: str) -> list[dict[str, Any]]:
    """Return what the journal says of what the calls of a turn gave."""
    return [it for it in journal_lines(base, number) if it["type"] == "tool_finished" and it["agent"] == agent]
