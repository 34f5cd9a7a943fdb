"""Asking where something came from, for the tests of `lemming why`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.journal_tools.provenance.provenance_tree import build_provenance
from lemming.journal_tools.provenance.write_log import ProvenanceNode, WriteLog
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import make_org, resume, say

HIRE = {
    "tool": "create_agent",
    "args": {"name": "eve", "title": "Eve", "instructions": "You are eve.", "model_key": "scripted"},
}
READER = {"read_outboxes": ["*"], "tools": ["file_read", "file_write"]}


def chain(base: Path, **ada: Any) -> Path:
    """A person speaks, ada reports it, bob reads ada alone and remembers it."""
    make_org(
        base,
        resume("human", model={"key": "human"}),
        resume("ada", permissions={"read_outboxes": ["human"]}, **ada),
        resume("bob", permissions={"read_outboxes": ["ada"]}),
        script=[
            {"agent": "ada", "reply": say("rolls were baked")},
            {"reply": say("headline", memory_updates=[{"key": "news", "value": "rolls"}])},
        ],
        models={"human": {"provider": "human"}},
    )
    return base


def say_as_human(base: Path, text: str, tick: int = 1) -> str:
    payload = {"text": text}
    sent = write_person_entry(base, "human", tick=tick, kind="message", payload=payload, tags=[], created_at="")
    return sent.id


def ask(base: Path, target: str, depth: int = 3) -> ProvenanceNode:
    return build_provenance(WriteLog(base), target, depth=depth)


def seen(thing: ProvenanceNode) -> list[ProvenanceNode]:
    assert thing.turn is not None
    return thing.turn.saw


def one(things: list[ProvenanceNode], what: str, name: str = "") -> ProvenanceNode:
    (found,) = [thing for thing in things if thing.what == what and name in thing.name]
    return found
