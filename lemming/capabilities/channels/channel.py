"""What a channel is: a provider that is never called like a model, with something outside at its other end.

Its options stand in the entry of `config/models.json`; every agent with that key is such a channel. A channel
of the engine is seen to between ticks, one of `lemming serve` by that.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, RequestRejected
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.providers import LLMProvider

if TYPE_CHECKING:
    from lemming.capabilities.channels.context import ChannelContext

KINDS = ("request", "message", "report", "status")
LONGEST_ID = 400


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
        return identity_of(self.entry)

    @property
    def asked(self) -> str:
        """The identity of what it answers; empty when it answers nothing."""
        return identity_of(self.answers) if self.answers else ""

    @property
    def text(self) -> str:
        """What the entry says, for people."""
        return text_of(self.entry.payload)


def identity_of(entry: OutboxEntry) -> str:
    """Return what tells an entry from all others, as `EntryName.identity`."""
    return f"{entry.agent}/{entry.tick:08}_{entry.id}"


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
    from lemming.kernel.base.jsontext import compact

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
