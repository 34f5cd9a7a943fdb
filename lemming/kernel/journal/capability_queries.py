"""Descriptions of the state capabilities store: in ledgers, with calls, and until a request ends. Read only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from lemming.kernel.base.errors import ConfigError, LemmingError
from lemming.kernel.files.field_types import Json
from lemming.kernel.plugins.capability_loader import find_capability
from lemming.kernel.plugins.capability_table import LISTED
from lemming.kernel.plugins.provider_errors import describe_exception, locate_error


class CallNote(NamedTuple):
    """A note about a tool call: the text, and the author and entry of its decision."""

    text: str
    by: str
    entry: str


D = TypeVar("D")


@dataclass(frozen=True)
class Query(Generic[D]):
    """A query for descriptions of one kind, a class. Subclasses hold the subject."""

    kind: type[D]

    def ask(self, capability: Any) -> Iterator[D]:
        """Return the capability's descriptions of this kind. A capability that declares other kinds is not called.

        Raises:
            ConfigError: The capability of a plugin fails.
        """
        if self.kind not in capability.describes:
            return iter(())
        if capability.name in LISTED:
            return (answer for answer in capability.describe(self) if isinstance(answer, self.kind))
        try:
            return iter(self.list_answers(capability))
        except LemmingError:
            raise
        except Exception as error:
            message = f'capability "{capability.name}" failed: {describe_exception(error)}, at {locate_error(error)}'
            raise ConfigError(message, hint="fix the capability, or remove its block") from error

    def list_answers(self, capability: Any) -> list[D]:
        """Return the answers of `ask`. Raises what a capability's `describe` raises."""
        answers = [*capability.describe(self)] if self.kind in capability.describes else []
        if wrong := [item for item in answers if not isinstance(item, (*capability.describes, type(None)))]:
            raise TypeError(f"describe must yield {self.kind.__name__}, got {type(wrong[0]).__name__}")
        return [answer for answer in answers if isinstance(answer, self.kind)]


@dataclass(frozen=True)
class StateQuery(Query[D]):
    """A query about JSON that the capability recorded: a snapshot, or the state stored with a call."""

    state: Json


def find_call_notes(state: Mapping[str, Json]) -> Iterator[CallNote]:
    """Yield the notes about a call, from each capability with state stored for it."""
    for name, value in state.items():
        if (capability := find_capability(name)) is not None:
            yield from StateQuery(CallNote, value).ask(capability)
