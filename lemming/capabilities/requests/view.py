"""Requests: what somebody waits for, as entries tell of it; nothing stores them. Pure: docs/requests.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from lemming.kernel.mail.references import normal
from lemming.kernel.messages import EntryName, OutboxEntry

End = Literal["answered", "failed", "refused", "cancelled", "expired"]
ENDS: tuple[End, ...] = ("answered", "failed", "refused", "cancelled", "expired")
Place = tuple[int, int, int, str]
"""Where something stands in the order of all entries: tick, the author's place in it, number, id."""


class Hop(NamedTuple):
    """A request handed on: in which tick, by whom, to whom, and the entry that says so."""

    tick: int
    by: str
    to: str
    entry: OutboxEntry


@dataclass
class Share:
    """What one target of a request owes: who holds it since which tick, and how that ended."""

    target: str
    holder: str
    since: int
    hops: list[Hop] = field(default_factory=list)
    end: End | None = None
    answer: OutboxEntry | None = None


@dataclass
class RequestView:
    """A request as the entries tell it. `identity` is `author/TICK_ID`; `parent` and `children` are such.

    `wanted`: so many answers are enough. `deadline` is the last tick in which it may be answered, `not_after`
    the last moment. `end`:
    None while it is open; then `end_tick` is the tick in which it ended, and `closed_by` the entry that
    ended it: none when it expired, or was cancelled with its parent.
    """

    name: EntryName
    entry: OutboxEntry
    shares: list[Share]
    wanted: int = 1
    deadline: int | None = None
    parent: str | None = None
    children: list[str] = field(default_factory=list)
    end: End | None = None
    end_tick: int | None = None
    closed_by: OutboxEntry | None = None
    not_after: str = ""

    @property
    def id(self) -> str:
        """The id of the entry that opened it."""
        return self.entry.id

    @property
    def identity(self) -> str:
        """What tells it from all other requests."""
        return self.name.identity

    @property
    def asker(self) -> str:
        """Who asked, and is owed the answer."""
        return self.entry.agent

    @property
    def tick(self) -> int:
        """The tick in which it was asked."""
        return self.entry.tick

    @property
    def text(self) -> str:
        """What was asked, in words; empty when the payload has no text."""
        return _text(self.entry.payload.get("text"))

    @property
    def conversation(self) -> str:
        """The name that keeps it together with others; empty: none."""
        return _text(self.entry.payload.get("conversation"))

    @property
    def not_before(self) -> str:
        """The moment before which nobody sees it; empty: at once."""
        return self.entry.not_before

    @property
    def targets(self) -> tuple[str, ...]:
        """Whom it was asked of."""
        return tuple(share.target for share in self.shares)

    @property
    def is_open(self) -> bool:
        """Whether somebody still waits for it."""
        return self.end is None

    @property
    def open_shares(self) -> list[Share]:
        """What is still owed; nothing once it has ended."""
        return [share for share in self.shares if share.end is None] if self.is_open else []

    @property
    def holders(self) -> tuple[str, ...]:
        """Who still owes an answer; nobody once it has ended."""
        return tuple(share.holder for share in self.open_shares)

    @property
    def hops(self) -> list[Hop]:
        """How often it was handed on, in order."""
        return sorted((hop for share in self.shares for hop in share.hops), key=lambda hop: hop.tick)

    @property
    def answers(self) -> list[OutboxEntry]:
        """The entries that closed what its targets owed, in the order of the targets."""
        return [share.answer for share in self.shares if share.answer is not None]

    @property
    def has_default(self) -> bool:
        """Whether an answer is laid down for the case that nobody gives one in time."""
        return "default" in self.entry.payload

    @property
    def default(self) -> Any:
        """The answer when nobody gave one in time; None when there is none."""
        return self.entry.payload.get("default")

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of an answer; None when any will do."""
        schema = self.entry.payload.get("schema")
        return schema if isinstance(schema, dict) else None

    def was_held_by(self, agent: str) -> bool:
        """Return whether an agent was ever to answer it."""
        return any(
            agent == share.target or any(agent == hop.to for hop in share.hops) for share in self.shares
        )

    def age_ticks(self, tick: int) -> int:
        """Return for how many ticks it was or has been open; `tick` is the one that runs next."""
        return max(0, (tick if self.end_tick is None else self.end_tick) - self.tick)


class AllRequests:
    """All requests of an organisation, oldest first; `tick` is the one that runs next."""

    def __init__(self, found: dict[str, RequestView], tick: int) -> None:
        self.by_identity, self.tick = found, tick
        self._by_id: dict[str, list[RequestView]] = {}
        for request in found.values():
            self._by_id.setdefault(request.id, []).append(request)

    def __iter__(self) -> Iterator[RequestView]:
        return iter(self.by_identity.values())

    def __len__(self) -> int:
        return len(self.by_identity)

    def reference(self, request: RequestView) -> str:
        """Return what names a request in a payload: its id, with author and tick where others have it too."""
        return request.id if len(self._by_id[request.id]) == 1 else request.identity

    @property
    def open(self) -> list[RequestView]:
        """Those that have not ended."""
        return [request for request in self if request.is_open]

    @property
    def next_deadline(self) -> int | None:
        """The first deadline of an open request; None when there is none."""
        return min((it.deadline for it in self if it.is_open and it.deadline is not None), default=None)

    @property
    def next_moment(self) -> str:
        """The first moment after which an open request is over; empty when there is none."""
        return min((it.not_after for it in self if it.is_open and it.not_after), default="")

    @property
    def ids(self) -> list[str]:
        """All ids there are."""
        return list(self._by_id)

    def find(self, reference: str) -> list[RequestView]:
        """Return the requests that a bare id, the beginning of one, or `author/TICK_ID` may mean."""
        wanted = reference.strip()
        if "/" in wanted:
            found = self.by_identity.get(normal(wanted))
            return [found] if found else []
        if wanted in self._by_id:
            return self._by_id[wanted]
        return [it for id_, all_ in self._by_id.items() if wanted and id_.startswith(wanted) for it in all_]

    def tree(self, root: RequestView) -> list[tuple[int, RequestView]]:
        """Return a request and all that was asked for it, each with its depth, in the order of asking."""
        tree, pending = [], [(0, root)]
        while pending:
            depth, request = pending.pop()
            tree.append((depth, request))
            pending += [(depth + 1, self.by_identity[child]) for child in reversed(request.children)]
        return tree

    def root_of(self, request: RequestView) -> RequestView:
        """Return the request that all of a tree was asked for."""
        while request.parent is not None:
            request = self.by_identity[request.parent]
        return request


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
