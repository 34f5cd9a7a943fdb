"""What a channel is: a provider that is never called like a model, with something outside at its other end.

Its options stand in the entry of `config/models.json`; every agent with that key is such a channel. A channel
of the engine is seen to between ticks, one of `lemming serve` by that.
"""

from __future__ import annotations

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from lemming.capabilities.channels.log import ChannelLog, ChannelLogs, Traffic
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.errors import (
    ConfigError,
    DiskError,
    ProviderError,
    RateLimited,
    RequestRejected,
    Unavailable,
)
from lemming.kernel.base.jsontext import compact, nearest, pretty
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.base.redaction.secrets import excerpt
from lemming.kernel.files import fs
from lemming.kernel.mail.index import EntryIndex
from lemming.kernel.messages import (
    ENTRY_LIMIT_BYTES,
    EntryName,
    OutboxEntry,
    create_entry,
    names_in,
    read_entry,
    send,
)
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import LLMProvider

KINDS = ("request", "message", "report", "status")
LONGEST_ID = 400
PAYLOAD_LIMIT_BYTES = ENTRY_LIMIT_BYTES - 4096  # room for the other keys of the entry
_IDS_OF_A_MESSAGE = 8
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message from outside. `id` is its sender's: the same message is delivered under the same id.

    `more`: further keys of the entry's payload. `verified`: what the channel itself has made sure of; where
    trust is tracked it is `payload.verified`, which rules look at.
    """

    id: str
    text: str
    sender: str = ""
    kind: MessageKind = "request"
    target: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    verified: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outgoing:
    """An entry that is to go out. `answers`: the entry of the channel's agent that it is the response to."""

    entry: OutboxEntry
    answers: OutboxEntry | None = None

    @property
    def key(self) -> str:
        """The idempotency key: the entry's identity, the same however often it goes out."""
        return self.entry.identity

    @property
    def asked(self) -> str:
        """The identity of what it answers; empty when it answers nothing."""
        return self.answers.identity if self.answers else ""

    @property
    def text(self) -> str:
        """What the entry says, for people."""
        return text_of(self.entry.payload)


class Soon(NamedTuple):
    """What is left after a look at a channel. `waiting`: messages that were there and were not taken yet;
    `again_s`: seconds after which another look is worth it; None: when something changes.
    """

    waiting: int = 0
    again_s: float | None = None


class Channel(LLMProvider):
    """A channel. `deliver` is all that one must have that only sends."""

    is_channel = True
    keeps_deadline = True
    can_be_down = False

    seen_to_by: ClassVar[Literal["engine", "serve"]] = "engine"
    """Who looks at it: the engine between ticks, or `lemming serve`."""

    sends = True
    """Whether what is addressed to the agent is sent out; else it is fetched."""

    variables: Sequence[str] = ()
    """The environment variables without which it cannot be used."""

    to: str = ""
    """The agent that messages are for; empty: everybody who reads the channel's agent."""

    def call(self, model_name: str, messages: list[Any], temperature: float | None, **kwargs: Any) -> str:
        """Raise `RequestRejected`: nobody asks a channel through this interface."""
        raise RequestRejected("a channel is not called like a model", where=model_name)

    def collect(self, context: ChannelContext) -> Soon:
        """Take in what has arrived, as far as there is room, and return what is left.

        Raises `Unavailable` when the other end cannot be reached.
        """
        return Soon()

    @abstractmethod
    def deliver(self, context: ChannelContext, outgoing: Outgoing) -> None:
        """Send one entry out; the same one may come again, under the same key.

        Raises a `ProviderError`; one that is not retryable gives the entry up.
        """

    @property
    def can_collect(self) -> bool:
        """Whether there is something to `collect` at all."""
        return type(self).collect is not Channel.collect

    def arrived(self, base: Path) -> list[str]:
        """Return the names of what is there to be taken in, as far as one look tells."""
        return []

    def place(self, host: str, port: int, agent: str) -> str:
        """Return in words where it listens, for the person who starts `lemming serve`."""
        return "sends"

    def watched(self) -> str:
        """Return the folder in which something may arrive, as its options name it."""
        return ""


def text_of(payload: Mapping[str, Any]) -> str:
    """Return what a payload says, for people: its text, else all of it as JSON.

    >>> text_of({"text": "Hello."}), text_of({"answer": 4})
    ('Hello.', '{"answer":4}')
    """
    text = payload.get("text")
    if isinstance(text, str) and text:
        return text
    rest = {key: value for key, value in payload.items() if key not in ("reply_to", "target")}
    return compact(rest).decode()


def require_kind(kind: str) -> None:
    """Raise `ConfigError` for a kind that no message from outside has."""
    if kind not in KINDS:
        hint = nearest(kind, list(KINDS)) or f"kinds: {', '.join(KINDS)}"
        raise ConfigError(f'option "kind": there is no kind "{kind}" for what arrives', hint=hint)


def require_name(to: str) -> None:
    """Raise `ConfigError` for what can be no agent's name; empty is for everybody."""
    if to and not paths.AGENT_NAME.match(to):
        raise ConfigError(f'option "to": "{to[:80]}" is no agent\'s name', hint=paths.AGENT_NAME_RULE)


class Receipt(NamedTuple):
    """What a message became. `is_new` is false for one that had arrived before."""

    identity: str
    is_new: bool

    @property
    def id(self) -> str:
        """The entry's id."""
        return self.identity.rpartition("_")[2]


@dataclass(frozen=True)
class ChannelContext:
    """One channel's place in an organisation. `tick` and `now` tell the next tick and the time.

    `stop` is set when the process is to end: what is under way with a server is then broken off.
    """

    org: Organisation
    agent: Agent
    channel: str
    tick: Callable[[], int]
    now: Callable[[], datetime]
    syncs: bool = True
    stop: threading.Event | None = None

    @property
    def is_stopping(self) -> bool:
        """Whether the process is to end, so that what fails now says nothing about the other end."""
        return self.stop is not None and self.stop.is_set()

    @property
    def log(self) -> ChannelLog:
        """What came and went."""
        log = self.org.own(ChannelLogs).of(self.agent.name)
        log.syncs = self.syncs
        return log

    def payload(self, message: Message) -> dict[str, Any]:
        """Return the payload of a message's entry; raise `RequestRejected` for one that is too large."""
        told = {
            "text": message.text,
            "target": message.target or None,
            "from": message.sender or None,
            "channel": self.channel,
            "message_id": message.id,
        }
        payload = clean({**{key: value for key, value in told.items() if value is not None}, **message.more})
        if "trust" in load_config(self.org).org.further:  # what a sender says of itself has no place there
            payload = {**payload, "verified": clean(dict(message.verified))}
        if (size := len(pretty(payload))) > PAYLOAD_LIMIT_BYTES:
            raise RequestRejected(f"{size:,} bytes are too many for one entry ({PAYLOAD_LIMIT_BYTES:,})")
        return dict(payload)

    def receive(self, message: Message, *, most_an_hour: int | None = None) -> Receipt:
        """Write a message's entry, unless it has arrived before; it survives power loss then.

        Raises `RequestRejected` for a message that can be none, and `RateLimited` for one too many of its
        sender in an hour.
        """
        if not 0 < len(message.id) <= LONGEST_ID:
            raise RequestRejected(f"a message's id has 1 to {LONGEST_ID} characters")
        # Held from the look to the note: of two deliveries of one message only one may write.
        with self.log.writing() as writer:
            if known := writer.traffic.messages.get(message.id):
                return Receipt(known, is_new=False)
            if most_an_hour is not None:
                self.require_few(writer.traffic, message.sender, most_an_hour)
            name, is_new = self._write(message, self.payload(message))
            writer.note(
                "received", self.now(), message=message.id, entry=name.identity, **{"from": message.sender}
            )
            return Receipt(name.identity, is_new)

    def require_few(self, traffic: Traffic, sender: str, most: int) -> None:
        """Raise `RateLimited` where a sender has written `most` messages in the last hour."""
        since = self.now() - _HOUR
        moments = [at for at, who in traffic.senders if who == sender and at >= since]
        if len(moments) >= most:
            wait_s = (moments[0] - since).total_seconds() + 1
            raise RateLimited(f"more than {most} messages of {sender} in an hour", retry_after_s=wait_s)

    def _write(self, message: Message, payload: dict[str, Any]) -> tuple[EntryName, bool]:
        """Write an entry under the id that follows from the message's; return whether it was not there."""
        folder = f"{self.org}/{paths.outbox_folder(self.agent.name)}"
        tick = self.tick()
        for number in range(_IDS_OF_A_MESSAGE):
            ident = id_of_message(self.agent.name, message.id, number)
            there = [file for file in fs.list_names(folder) if file.endswith(f"_{ident}.json")]
            for name in names_in(self.agent.name, there):
                if read_entry(self.org.base, name).payload.get("message_id") == payload["message_id"]:
                    return name, False
            if there:  # another message's: two ids of 48 bits may be the same
                continue
            at = timestamp(self.now())
            entry = OutboxEntry(ident, tick, self.agent.name, message.kind, payload, [], at)
            if create_entry(self.org.base, entry, sync=self.syncs):
                return names_in(self.agent.name, [f"{tick:08}_{ident}.json"])[0], True
        raise RequestRejected("no id is left for the message")

    def room(self, most: int) -> int:
        """Return how many entries the agent may still write in this tick, of `most`."""
        tick = self.tick()
        return most - sum(name.tick == tick for name in self.own_entries())

    def own_entries(self) -> list[EntryName]:
        """Return the entries of the channel's agent, in order; for one thread at a time."""
        return self.org.own(EntryIndex).outbox(self.agent.name).all

    def write_next(self, message: Message) -> OutboxEntry:
        """Write a message's entry under the next free id of the tick. The caller knows what had arrived.

        Raises `RequestRejected` for one that is too large.
        """
        return send(
            self.org.base,
            self.agent.name,
            tick=self.tick(),
            kind=message.kind,
            payload=self.payload(message),
            tags=[],
            created_at=timestamp(self.now()),
            sync=self.syncs,
        )

    def refuse(self, message: str, why: str, *, file: str = "") -> None:
        """Note that a message became no entry, why, and where it was put."""
        told = {"message": message[:LONGEST_ID], "file": file}
        facts = {key: clean(value) for key, value in told.items() if value}
        self.log.note("refused", self.now(), why=why, **facts)


def id_of_message(agent: str, message_id: str, number: int = 0) -> str:
    """Return the id of the entry that a message becomes: 12 hex digits of BLAKE2b over agent and message.

    `number`: from 0, for the case that another message has the same.

    >>> id_of_message("mailbox", "<1@example.org>")
    '17e10cf2396c'
    """
    return blake2b(f"{agent}/{number}/{message_id}".encode("utf-8", "replace"), digest_size=6).hexdigest()


def clean(value: Any) -> Any:
    """Return a JSON value whose texts can be written as UTF-8.

    >>> clean({"text": "half a pair: " + chr(0xD83D)})
    {'text': 'half a pair: ?'}
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    return [clean(item) for item in value] if isinstance(value, (list, tuple)) else value


@contextlib.contextmanager
def edge() -> Iterator[None]:
    """Turn what the block raises into a `ProviderError`, but for a disk that refuses: that is everybody's."""
    try:
        yield
    except ProviderError:
        raise
    except Exception as error:
        if isinstance(error, DiskError) and not error.concerns_one_file:
            raise
        raise Unavailable(excerpt(f"{type(error).__name__}: {error}", 400)) from error
