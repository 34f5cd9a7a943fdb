"""Requests in tests: entries made by hand, and an organisation of agents who may read each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.messages import EntryName, OutboxEntry, entry_id
from lemming.kernel.org.resume import Agent, AgentPermissions
from lemming.libraries.outbox_files import write_person_entry
from lemming.obligations.request_outcome import build_requests
from lemming.obligations.request_view import AllRequests, RequestView
from lemming.testing import make_org, resume

NAMES = ("ada", "bob", "cyd")
PERSON = {"model": {"key": "human"}}


class Desk:
    """Entries of ada, bob, cyd and a person called human, as they come in."""

    def __init__(self, **reads: list[str]) -> None:
        self.agents = {name: _agent(name, reads.get(name, ["*"])) for name in (*NAMES, "human")}
        self.entries: dict[EntryName, OutboxEntry] = {}

    def write(self, author: str, kind: MessageKind, tick: int, text: str = "", **payload: Any) -> str:
        """Add an entry and return its id."""
        number = sum(name.author == author and name.tick == tick for name in self.entries)
        id_ = entry_id(tick, author, number)
        plain = {"text": text, **payload} if text else payload
        self.entries[EntryName(tick, number, id_, author)] = OutboxEntry(id_, tick, author, kind, plain)
        return id_

    def ask(self, author: str, target: Any, tick: int = 1, **payload: Any) -> str:
        return self.write(author, "request", tick, "please", target=target, **payload)

    def answer(self, author: str, id_: str, tick: int, **payload: Any) -> str:
        return self.write(author, "response", tick, "done", reply_to=id_, **payload)

    def hand_on(self, author: str, id_: str, to: Any, tick: int) -> str:
        return self.write(author, "request", tick, "yours", hands_on=id_, target=to)

    def cancel(self, author: str, id_: str, tick: int) -> str:
        return self.write(author, "status", tick, cancels=id_)

    def requests(self, tick: int = 100) -> AllRequests:
        order = (*NAMES, "human")
        return build_requests(self.entries, agents=self.agents, people=["human"], order=order, tick=tick)

    def request(self, id_: str, tick: int = 100) -> RequestView:
        (found,) = self.requests(tick).find_matches(id_)
        return found


def _agent(name: str, reads: list[str]) -> Agent:
    return Agent(name=name, instructions="x", permissions=AgentPermissions(read_outboxes=reads))


def organisation(base: Path, *, org: dict[str, Any] | None = None) -> Path:
    """Make a folder with ada, bob and cyd, whom a script answers for, and a person called human."""
    people = {"human": {"provider": "human"}}
    return make_org(base, *map(resume, NAMES), resume("human", **PERSON), models=people, org=org)


def put(base: Path, author: str, kind: MessageKind, tick: int, **payload: Any) -> OutboxEntry:
    """Write an entry into an outbox as if a turn of that tick had."""
    return write_person_entry(base, author, tick=tick, kind=kind, payload=payload, tags=[], created_at="x")


def named(entry: OutboxEntry) -> str:
    """Return an entry's id with author and tick."""
    return f"{entry.agent}/{entry.tick:08}_{entry.id}"
