"""The organisations of the corpus that differ in who reads what, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import by_hand, remembers

from lemming.testing import make_org, resume, say


def wildcards(base: Path, org: dict[str, Any]) -> None:
    """Everybody reads everybody, in an order that is not that of the names; a person has written too."""
    every_second = {"run_every_n_ticks": 2, "phase_offset": 1}
    make_org(
        base,
        resume("ada", schedule=every_second),
        resume("bob"),
        resume("human", model={"key": "human"}),
        org=org,
        script=[{"agent": "bob", "contains": "from ada", "reply": say("ada spoke")}, {"reply": say("hello")}],
    )
    by_hand(base, "human", 0, "byhand", text="go")


def idle(base: Path, org: dict[str, Any]) -> None:
    """Agents that wake only when something they read has changed."""
    make_org(
        base,
        resume("ada", schedule={"run_every_n_ticks": 2}),
        resume("bob", schedule={"wake": "changed"}, permissions={"read_outboxes": ["ada"]}),
        resume("cyd", schedule={"wake": "changed"}, permissions={"read_memories": ["ada/*", "bob/last"]}),
        org=org,
        script=[{"reply": remembers("seen")}],
    )


def retention(base: Path, org: dict[str, Any]) -> None:
    """Entries that are past their retention at the end of a tick."""
    agents = resume("ada"), resume("bob")
    make_org(base, *agents, org={**org, "retention_ticks": 1}, script=[{"reply": say("old news")}])


def letters(base: Path, org: dict[str, Any]) -> None:
    """Entries for one, for two, for all; an id used three times; more than is shown at once."""
    quiet = {"run_every_n_ticks": 1, "wake": "changed"}
    ask = {"kind": "request", "payload": {"text": "please", "target": ["bob"]}, "tags": []}
    make_org(
        base,
        resume("ada", permissions={"read_outboxes": ["human", "pat"]}),
        resume("bob", schedule=quiet),
        resume("cyd", schedule=quiet, permissions={"read_outboxes": ["human", "ada"]}),
        resume("human", model={"key": "human"}),
        resume("pat", model={"key": "human"}),
        org={**org, "inbox_limit": 3},
        models={"human": {"provider": "human"}},
        script=[
            {"agent": "ada", "reply": say("all hear this", outbox_entries=[ask])},
            {"agent": "bob", "contains": "for bob", "reply": remembers("it is mine")},
            {"reply": remembers("not for me")},
        ],
    )
    by_hand(base, "human", 0, "same", text="for all")
    by_hand(base, "human", 1, "same", text="for bob", target="bob")
    by_hand(base, "pat", 0, "same", text="for two", target=["bob", "ada"])
    for number in range(3):
        by_hand(base, "human", 0, f"more{number}", text=f"and {number}")


def missed(base: Path, org: dict[str, Any]) -> None:
    """Entries that wait for a reader, and go unread when it fails too long; it is told when it is back."""
    make_org(
        base,
        resume("ada", permissions={}),
        resume("bob", permissions={"read_outboxes": ["ada"]}),
        org={**org, "retention_ticks": 1},
        script=[
            {"agent": "ada", "reply": say("news")},
            {"agent": "bob", "contains": "expired unread", "reply": remembers("I have missed some")},
            *({"agent": "bob", "tick": tick, "error": "AuthenticationFailed"} for tick in range(1, 6)),
            {"agent": "bob", "reply": say("back")},
        ],
    )
