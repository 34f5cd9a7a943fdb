"""Where a channel hands in what arrived: a message becomes an entry of the channel's agent, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple

from lemming.capabilities.channels.channel import LONGEST_ID, Message
from lemming.capabilities.channels.log import ChannelLog, ChannelLogs, ChannelWriter
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.errors import RateLimited, RequestRejected
from lemming.kernel.base.jsontext import pretty
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

PAYLOAD_LIMIT_BYTES = ENTRY_LIMIT_BYTES - 4096  # room for the other keys of the entry
_IDS_OF_A_MESSAGE = 8
_HOUR = timedelta(hours=1)


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
    """One channel's place in an organisation. `tick` and `now` tell the next tick and the time."""

    org: Organisation
    agent: Agent
    channel: str
    tick: Callable[[], int]
    now: Callable[[], datetime]
    syncs: bool = True

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
                self._require_few(writer, message.sender, most_an_hour)
            name, is_new = self._write(message, self.payload(message))
            writer.note(
                "received", self.now(), message=message.id, entry=name.identity, **{"from": message.sender}
            )
            return Receipt(name.identity, is_new)

    def _require_few(self, writer: ChannelWriter, sender: str, most: int) -> None:
        since = self.now() - _HOUR
        if writer.traffic.count_from(sender, since) >= most:
            first = next(at for at, who in writer.traffic.senders if who == sender and at >= since)
            wait_s = (first - since).total_seconds() + 1
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
