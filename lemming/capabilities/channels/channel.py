"""Base of channels: providers for exchange with the outside, never called like a model.

Options are in the entry of `config/models.json`; every agent with this model key is such a channel. The
engine handles its channels between ticks; `lemming channels serve` handles the others.
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
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from lemming.capabilities.channels.channel_log import ChannelHistory, ChannelLog, ChannelLogs
from lemming.ext import ConfigError
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.aliases import accept_old_fields, accept_old_keywords, accept_old_names, old_names_of
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import DiskError, ProviderError, RateLimited, RequestRejected, Unavailable
from lemming.kernel.base.jsontext import did_you_mean, dump_compact, dump_pretty
from lemming.kernel.base.redaction.secrets import redacted_excerpt
from lemming.kernel.files import fs
from lemming.kernel.inboxes.entry_index import EntryIndex
from lemming.kernel.messages import ENTRY_LIMIT_BYTES, EntryName, OutboxEntry, parse_file_names
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import LLMProvider
from lemming.libraries.outbox_files import create_entry, read_entry, write_person_entry

KINDS = ("request", "message", "report", "status")
MAX_ID_CHARS = 400
PAYLOAD_LIMIT_BYTES = ENTRY_LIMIT_BYTES - 4096  # room for the other keys of the entry
_MAX_ID_VARIANTS = 8
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class InboundMessage:
    """Message from outside. `id` is the sender's: a repeated message has the same id.

    `more`: extra keys of the entry's payload. `verified`: facts verified by the channel. With trust tracking,
    the facts become `payload.verified` for trust rules.
    """

    id: str
    text: str
    sender: str = ""
    kind: MessageKind = "request"
    target: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    verified: Mapping[str, str] = field(default_factory=dict)


@accept_old_names
@dataclass(frozen=True)
class OutgoingEntry:
    """Entry to deliver. `answers`: the entry of the channel's agent answered by this response."""

    entry: OutboxEntry
    answers: OutboxEntry | None = None

    @property
    def key(self) -> str:
        """Idempotency key: the entry's identity, the same for every attempt."""
        return self.entry.identity

    @property
    def answered_id(self) -> str:
        """Identity of the answered entry, or the empty string."""
        return self.answers.identity if self.answers else ""

    @property
    def text(self) -> str:
        """Text of the entry for people."""
        return payload_text(self.entry.payload)

    @property
    def facts(self) -> dict[str, Any]:
        """The entry as a program outside gets it."""
        entry = self.entry
        place = {"agent": entry.agent, "tick": entry.tick, "kind": entry.kind}
        return {**place, "text": self.text, "payload": entry.payload}


@accept_old_fields
class PollResult(NamedTuple):
    """Result of polling a channel. `waiting`: number of messages left for later.

    `poll_after_s`: seconds until the next useful poll; None means after a change.
    """

    waiting: int = 0
    poll_after_s: float | None = None


@accept_old_names
class Channel(LLMProvider):
    """Channel to the outside. A channel that only sends needs only `deliver`."""

    is_channel = True
    keeps_deadline = True
    can_be_down = False

    seen_to_by: ClassVar[Literal["engine", "serve"]] = "engine"
    """The process that polls the channel: the engine between ticks, or `lemming channels serve`."""

    sends = True
    """True if entries addressed to the agent are pushed out; False if the other end fetches them."""

    variables: Sequence[str] = ()
    """The environment variables without which it cannot be used."""

    to: str = ""
    """The agent that messages are for; empty: every reader of the channel's agent."""

    kind: MessageKind = "request"
    """The kind of the entries of messages that name none."""

    def call(self, model_name: str, messages: list[Any], temperature: float | None, **kwargs: Any) -> str:
        """Raise `RequestRejected`: a channel cannot be called like a model."""
        raise RequestRejected("a channel cannot be called as a model", where=model_name)

    def collect(self, context: ChannelContext) -> PollResult:
        """Receive messages while there is room, and return the remaining work. Raises: Unavailable if unreachable."""
        return PollResult()

    @abstractmethod
    def deliver(self, context: ChannelContext, outgoing: OutgoingEntry) -> None:
        """Send an entry, possibly again under the same key. Raises: ProviderError; without retry, it is abandoned."""

    @property
    def can_collect(self) -> bool:
        """Return True if the channel receives messages."""
        return type(self).collect is not Channel.collect

    def pending_arrivals(self, base: Path) -> list[str]:
        """Return the names of waiting arrivals, as far as one look tells."""
        return []

    def endpoint(self, host: str, port: int, agent: str) -> str:
        """Return a description of the channel's endpoint, for the person who starts `lemming channels serve`."""
        return "sends"

    def watch_folder(self) -> str:
        """Return the folder for arrivals, as named in the options."""
        return ""


def payload_text(payload: Mapping[str, Any]) -> str:
    """Return the text of a payload for people: its text, else all fields as JSON.

    >>> payload_text({"text": "Hello."}), payload_text({"answer": 4})
    ('Hello.', '{"answer":4}')
    """
    text = payload.get("text")
    if isinstance(text, str) and text:
        return text
    other_fields = {key: value for key, value in payload.items() if key not in ("reply_to", "target")}
    return dump_compact(other_fields).decode()


def require_kind(kind: str) -> None:
    """Raise `ConfigError` for an invalid kind of message from outside."""
    if kind not in KINDS:
        hint = did_you_mean(kind, list(KINDS)) or f"use one of {', '.join(KINDS)}"
        raise ConfigError(f'option "kind" must be a kind of incoming entry, got "{kind}"', hint=hint)


def require_name(to: str) -> None:
    """Raise `ConfigError` for an invalid agent name. An empty name means every reader."""
    if to and not paths.AGENT_NAME.match(to):
        raise ConfigError(f'option "to" must be the name of an agent, got "{to[:80]}"', hint=paths.AGENT_NAME_RULE)


class Receipt(NamedTuple):
    """Entry created from a message. `is_new` is false for a repeated message."""

    identity: str
    is_new: bool

    @property
    def id(self) -> str:
        """Id of the entry."""
        return self.identity.rpartition("_")[2]


@accept_old_names
@dataclass(frozen=True)
class ChannelContext:
    """Context of a channel in an organisation. `tick` and `now` return the next tick and the time.

    `stop` is set when the process must end. Exchanges in progress are then cancelled.
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
        """Return True if the process is ending. Failures at this time say nothing about the other end."""
        return self.stop is not None and self.stop.is_set()

    @property
    def log(self) -> ChannelLog:
        """Log of the channel."""
        log = self.org.get_cache(ChannelLogs).get_log(self.agent.name)
        log.syncs = self.syncs
        return log

    def build_payload(self, message: InboundMessage) -> dict[str, Any]:
        """Return the payload of a message's entry. Raises: RequestRejected for a payload over the size limit."""
        fields = {
            "text": message.text,
            "target": message.target or None,
            "from": message.sender or None,
            "channel": self.channel,
            "message_id": message.id,
        }
        payload = to_utf8_safe({**{key: value for key, value in fields.items() if value is not None}, **message.more})
        if "trust" in load_config(self.org).org.extensions:  # claims of the sender do not belong there
            payload = {**payload, "verified": to_utf8_safe(dict(message.verified))}
        if (size := len(dump_pretty(payload))) > PAYLOAD_LIMIT_BYTES:
            raise RequestRejected(f"an entry must have at most {PAYLOAD_LIMIT_BYTES:,} bytes, got {size:,}")
        return dict(payload)

    def receive(self, message: InboundMessage, *, most_an_hour: int | None = None) -> Receipt:
        """Write the entry of a new message. With `syncs`, the entry survives power loss.

        Raises: RequestRejected for an invalid message, and RateLimited for a sender over the hourly limit.
        """
        if not 0 < len(message.id) <= MAX_ID_CHARS:
            raise RequestRejected(f"the id of a message must have 1 to {MAX_ID_CHARS} characters")
        # Held from the look to the note: of two deliveries of one message only one may write.
        with self.log.lock_for_writing() as writer:
            if earlier_entry := writer.history.messages.get(message.id):
                return Receipt(earlier_entry, is_new=False)
            if most_an_hour is not None:
                self.require_below_limit(writer.history, message.sender, most_an_hour)
            name, is_new = self._write_entry(message, self.build_payload(message))
            writer.append("received", self.now(), message=message.id, entry=name.identity, **{"from": message.sender})
            return Receipt(name.identity, is_new)

    def require_below_limit(self, traffic: ChannelHistory, sender: str, limit: int) -> None:
        """Raise `RateLimited` if a sender has written `limit` messages in the last hour."""
        window_start = self.now() - _HOUR
        times = [at for at, message_sender in traffic.senders if message_sender == sender and at >= window_start]
        if len(times) >= limit:
            wait_s = (times[0] - window_start).total_seconds() + 1
            raise RateLimited(f"{sender} sent more than {limit} messages in an hour", retry_after_s=wait_s)

    def _write_entry(self, message: InboundMessage, payload: dict[str, Any]) -> tuple[EntryName, bool]:
        """Write an entry under the id derived from the message. Return the name, and True for a new entry."""
        folder = f"{self.org}/{paths.outbox_folder(self.agent.name)}"
        tick = self.tick()
        for number in range(_MAX_ID_VARIANTS):
            ident = make_entry_id(self.agent.name, message.id, number)
            existing_files = [file for file in fs.list_names(folder) if file.endswith(f"_{ident}.json")]
            for name in parse_file_names(self.agent.name, existing_files):
                if read_entry(self.org.base, name).payload.get("message_id") == payload["message_id"]:
                    return name, False
            if existing_files:  # another message's: two ids of 48 bits may be the same
                continue
            at = timestamp(self.now())
            entry = OutboxEntry(ident, tick, self.agent.name, message.kind, payload, [], at)
            if create_entry(self.org.base, entry, sync=self.syncs):
                return parse_file_names(self.agent.name, [f"{tick:08}_{ident}.json"])[0], True
        raise RequestRejected("no free id is left for the message")

    @accept_old_keywords
    def remaining_entries(self, limit: int) -> int:
        """Return the number of entries the agent may still write in this tick, out of `limit`."""
        tick = self.tick()
        return limit - sum(name.tick == tick for name in self.list_entries())

    def list_entries(self) -> list[EntryName]:
        """Return the entries of the channel's agent, in order. Not thread-safe."""
        return self.org.get_cache(EntryIndex).list_outbox(self.agent.name).all

    def write_next(self, message: InboundMessage) -> OutboxEntry:
        """Write a message's entry under the next free id of the tick. The caller detects repeated messages.

        Raises: RequestRejected for a payload over the size limit.
        """
        return write_person_entry(
            self.org.base,
            self.agent.name,
            tick=self.tick(),
            kind=message.kind,
            payload=self.build_payload(message),
            tags=[],
            created_at=timestamp(self.now()),
            sync=self.syncs,
        )

    @accept_old_keywords
    def record_refusal(self, message: str, reason: str, *, file: str = "") -> None:
        """Log a rejected message with the reason and the file of its copy."""
        fields = {"message": message[:MAX_ID_CHARS], "file": file}
        facts = {key: to_utf8_safe(value) for key, value in fields.items() if value}
        self.log.append("refused", self.now(), why=reason, **facts)


def make_entry_id(agent: str, message_id: str, number: int = 0) -> str:
    """Return the entry id of a message: 12 hex digits of BLAKE2b over agent and message id.

    `number`: from 0, increased if another message has the same id.

    >>> make_entry_id("mailbox", "<1@example.org>")
    '17e10cf2396c'
    """
    return blake2b(f"{agent}/{number}/{message_id}".encode("utf-8", "replace"), digest_size=6).hexdigest()


def to_utf8_safe(value: Any) -> Any:
    """Return a JSON value with all texts encodable as UTF-8.

    >>> to_utf8_safe({"text": "half a pair: " + chr(0xD83D)})
    {'text': 'half a pair: ?'}
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {to_utf8_safe(str(key)): to_utf8_safe(item) for key, item in value.items()}
    return [to_utf8_safe(item) for item in value] if isinstance(value, (list, tuple)) else value


@contextlib.contextmanager
def wrap_provider_errors() -> Iterator[None]:
    """Convert errors of the block to a `ProviderError`, except for disk errors beyond a single file."""
    try:
        yield
    except ProviderError:
        raise
    except Exception as error:
        if isinstance(error, DiskError) and not error.concerns_one_file:
            raise
        raise Unavailable(redacted_excerpt(f"{type(error).__name__}: {error}", 400)) from error


if not TYPE_CHECKING:
    __getattr__ = old_names_of(__name__)
