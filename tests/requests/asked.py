"""An organisation in which a person asks: what tests of requests share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lemming.engine import run_once
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.testing import FrozenClock, journal_lines, make_org, resume

PEOPLE = {"human": {"provider": "human"}}


def person(name: str = "human", **blocks: Any) -> dict[str, Any]:
    """Return the resume of a person."""
    return resume(name, model={"key": "human"}, **blocks)


def org_of(base: Path, *resumes: dict[str, Any], script: list[dict[str, Any]] | None = None) -> Path:
    """Make an organisation with a person in it."""
    return make_org(base, person(), *resumes, script=script, models=PEOPLE)


def tried_once(base: Path) -> Path:
    """Have each model of an organisation asked once and no more, lest a test wait for the next try."""
    models = json.loads((base / "config/models.json").read_text())
    for entry in models.values():
        entry |= {} if entry["provider"] in ("human", "plan") else {"attempts": 1}
    (base / "config/models.json").write_text(json.dumps(models))
    return base


def ask(
    base: Path, whom: str, text: str = "what?", *, author: str = "human", kind: MessageKind = "request", **payload: Any
) -> OutboxEntry:
    """Write a request as a person (or another kind of entry) and wait for nothing."""
    plain = {"text": text, "target": whom, "conversation": "talk", **payload}
    return write_person_entry(
        base, author, tick=load_tick(base), kind=kind, payload=plain, tags=[], created_at="2026-01-01T00:00:00Z"
    )


def tick(base: Path) -> TickReport:
    """Run one tick."""
    return run_once(base, clock=FrozenClock())


def said(base: Path, author: str) -> list[tuple[str, dict[str, Any]]]:
    """Return what an agent has written, oldest first: kind and payload."""
    return [(entry.kind, entry.payload) for entry in read_outbox_entries(base, author)]


def answers(base: Path, author: str) -> dict[str, dict[str, Any]]:
    """Return an agent's answers, by the request that each is to."""
    return {payload["reply_to"]: payload for kind, payload in said(base, author) if kind == "response"}


def prompts(base: Path, number: int) -> dict[str, str]:
    """Return what each turn of a tick was shown last, by agent: the end of its prompt, and what follows."""
    started = [line for line in journal_lines(base, number) if line["type"] == "turn_started"]
    return {
        line["agent"]: "\n".join(it["content"] for it in (line["prompt"][-1], *line.get("dialogue", ())))
        for line in started
    }


def open_of(base: Path, name: str) -> list[str]:
    """Return the requests that an agent has begun and not finished."""
    return [begun.request for begun in read_state(base, name).requests]
