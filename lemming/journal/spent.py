"""What turns have spent, as journals tell it: each answer of a model, whose it was and what it was for.

A journal's lines are not checked against each other here: `lemming verify` does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

from lemming.base import paths
from lemming.base.errors import CorruptState
from lemming.base.jsontext import JsonProblem, parse
from lemming.files.descriptors import LONGEST_LINE_BYTES
from lemming.files.fields import Json
from lemming.journal.file import raw_journal
from lemming.journal.lost import NONE_LOST, Lost
from lemming.org.organisation import OrgPath

_KINDS = (b"tick_started", b"turn_started", b"model_reserved", b"model_replied", b"model_failed")
_READ = tuple(b'{"type":"%b"' % kind for kind in _KINDS)


class CallSpent(NamedTuple):
    """What one answer of a model cost. `model`: the key of `config/models.json` that it was asked by."""

    model: str
    credits: float
    cost_usd: float | None
    input_tokens: int
    output_tokens: int


@dataclass
class TurnSpent:
    """What one turn has spent so far, in the order of its calls.

    `before`: what the agent's ledger said when the turn began. `request`: the entry that the turn was for,
    as author/tick_id; empty for none, and where that is not known yet. `told`: what answers say is lost;
    `reserved`: what is reserved for calls that have none, by their numbers.
    """

    agent: str
    before: Json
    request: str = ""
    calls: list[CallSpent] = field(default_factory=list)
    told: Lost = NONE_LOST
    reserved: dict[int, list[Lost]] = field(default_factory=dict)

    @property
    def lost(self) -> Lost:
        """What counts as spent though no answer came: of a turn that is over for good."""
        open_ = (lost for reserved in self.reserved.values() for lost in reserved)
        return reduce(Lost.plus, open_, self.told)

    def settle(self, plain: Json) -> None:
        """Take what an answer, or what stood in its place, says of what was reserved for its call."""
        self.reserved.pop(plain["call"], None)
        self.told = self.told.plus(Lost.of(plain.get("lost")))


@dataclass
class TickSpent:
    """What the turns of one tick have spent so far; `at` is the tick's reading of the clock.

    `after`: the tick before it that had a journal.
    """

    tick: int
    at: str = ""
    after: int | None = None
    turns: dict[str, TurnSpent] = field(default_factory=dict)


class SpentReader:
    """Reads journals one after another, oldest first: what a turn began with may stand in an earlier one."""

    def __init__(self, base: OrgPath) -> None:
        self._base = base
        self._keys: dict[str, str] = {}

    def read(self, tick: int) -> TickSpent:
        """Return what the turns of a tick have spent; raise `CorruptState` for lines that cannot be read."""
        found = TickSpent(tick)
        for plain in self._lines(tick):
            try:
                self._take(found, plain)
            except (KeyError, TypeError, AttributeError) as error:
                raise _damaged(tick, f"{type(error).__name__} in a {plain.get('type')}") from error
        return found

    def _lines(self, tick: int) -> Iterator[dict[str, Any]]:
        *whole, _ = raw_journal(self._base, tick).split(b"\n")
        for line in whole:
            if line.startswith(_READ):
                try:
                    yield parse(line, limit_bytes=LONGEST_LINE_BYTES)
                except JsonProblem as error:
                    raise _damaged(tick, error.message) from error

    def _take(self, found: TickSpent, plain: dict[str, Any]) -> None:
        match plain["type"]:
            case "tick_started":
                found.at, found.after = plain["at"], plain.get("after")
            case "turn_started":
                name, opening = plain["agent"], plain.get("opening", plain)
                if isinstance(opening, dict):
                    self._keys[name] = opening["resume"]["model"]["key"]
                request = (plain.get("task") or {}).get("request", "")
                found.turns.setdefault(name, TurnSpent(name, plain["state"], request))
            case "model_reserved":
                reserved = found.turns[plain["agent"]].reserved
                reserved.setdefault(plain["call"], []).append(Lost.of(plain))
            case "model_failed":
                found.turns[plain["agent"]].settle(plain)
            case "model_replied":
                found.turns[plain["agent"]].settle(plain)
                key = plain.get("key") or self._keys.get(plain["agent"]) or plain.get("model", "")
                tokens = plain["input_tokens"], plain["output_tokens"]
                spent = CallSpent(key, plain["credits"], plain.get("cost_usd"), *tokens)
                found.turns[plain["agent"]].calls.append(spent)


def _damaged(tick: int, why: str) -> CorruptState:
    hint = "`lemming verify` says what is wrong with it"
    return CorruptState(f"what was spent cannot be read: {why}", where=paths.journal_file(tick), hint=hint)
