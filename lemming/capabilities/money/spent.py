"""What turns have spent, as journals tell it: each answer of a model, whose it was and what it was for.

A journal's lines are not checked against each other here: `lemming verify` does that. What the journals in a
sealed segment say is kept in `.lemming/spent.jsonl`, by the digest of the segment: unpacking them takes
longer than all else. That file may be deleted at any moment, and is made again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState, DiskError
from lemming.kernel.base.jsontext import JsonProblem, compact, parse
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN, keys_of, split_key, turn_key
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import LONGEST_LINE_BYTES, open_regular
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.file import journal_ticks, raw_journal
from lemming.kernel.journal.lost_calls import NONE_LOST, Lost
from lemming.kernel.journal.sealing import SEALED, plain_ticks, segments
from lemming.kernel.org.organisation import OrgPath

_KINDS = (b"tick_started", b"turn_started", b"model_reserved", b"model_replied", b"model_failed")
_READ = tuple(b'{"type":"%b"' % kind for kind in _KINDS)

FORM = b"1"
"""What is kept in another form, by another version, is not believed: count it up."""

Progress = Callable[[str], object]
"""Takes what is being read, for somebody who waits."""


def quiet(_: str) -> None:
    """Tell nobody."""


class CallSpent(NamedTuple):
    """What one answer of a model cost. `model`: the key of `config/models.json` that it was asked by.

    `cached_tokens`: of the input, what the provider had in its cache.
    """

    model: str
    credits: float
    cost_usd: float | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0


class LedgerSpent(NamedTuple):
    """What an agent's ledger said was spent when a turn began."""

    credits: float
    cost_usd: float | None
    unpriced_calls: int
    input_tokens: int
    output_tokens: int

    @classmethod
    def of(cls, state: Json) -> LedgerSpent:
        """Return what the line of a ledger says; raise `ValueError` or `TypeError` for what is no amount."""
        dollars = state.get("cost_usd")
        counts = (int(state.get(key, 0)) for key in cls._fields[2:])
        return cls(float(state.get("credits", 0.0)), None if dollars is None else float(dollars), *counts)


@dataclass
class TurnSpent:
    """What one turn has spent so far, in the order of its calls.

    `key`: the model key of the agent's resume, empty where no journal has said it. `request`: the entry that
    the turn was for, as author/tick_id; empty for none, and where that is not known yet. `told`: what answers
    say is lost; `reserved`: what is reserved for calls that have none, by their numbers.
    """

    agent: str
    before: LedgerSpent
    key: str = ""
    request: str = ""
    calls: list[CallSpent] = field(default_factory=list)
    told: Lost = NONE_LOST
    reserved: dict[int, list[Lost]] = field(default_factory=dict)

    @property
    def after(self) -> LedgerSpent:
        """What the ledger says once the turn is over."""
        costs = [call.cost_usd for call in self.calls if call.cost_usd is not None]
        dollars = (self.before.cost_usd or 0.0) + sum(costs) if costs else self.before.cost_usd
        return LedgerSpent(
            round(self.before.credits + sum(call.credits for call in self.calls), 6),
            dollars,
            self.before.unpriced_calls + len(self.calls) - len(costs),
            self.before.input_tokens + sum(call.input_tokens for call in self.calls),
            self.before.output_tokens + sum(call.output_tokens for call in self.calls),
        )

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


def spent_in_all(base: OrgPath, progress: Progress = quiet) -> Iterator[TickSpent | int]:
    """Yield what each tick that has a journal spent, ascending; of one that cannot be read its number.

    What is lost is not told of those that are kept; `progress` is told of those in segments that are not.
    """
    ticks, plain = journal_ticks(base), frozenset(plain_ticks(base))
    reader, kept = SpentReader(base), _Kept(base)
    for tick in ticks:
        found = None if tick in plain else kept.of(tick)
        if found is None and tick not in plain:
            progress(f"the journal of tick {tick}")
        try:
            found = found or reader.read(tick)
        except CorruptState:
            yield tick
            continue
        reader.pass_over(found)
        kept.take(found)
        yield found
    kept.save()


def ticks_of_no_request(base: OrgPath) -> frozenset[int]:
    """Return the ticks in segments of which it is known that no turn was for a request."""
    known = _Kept(base).known.values()
    idle = {
        tick for ticks in known for tick, it in ticks.items() if not any(t.request for t in it.turns.values())
    }
    return frozenset(idle.difference(plain_ticks(base)))


class _Kept:
    """What the segments that stand there now have spent, as far as it is known."""

    def __init__(self, base: OrgPath) -> None:
        self._base = Path(base)
        self._spans = {_digest(self._base, it.name): range(it.first, it.last + 1) for it in segments(base)}
        self.known: dict[str, dict[int, TickSpent]] = {}
        with contextlib.suppress(OSError, ValueError, TypeError, DiskError):
            raw = fs.read_bytes(self._base / paths.SPENT_FILE, LONGEST_LINE_BYTES)
            check, _, whole = raw.partition(b"\n")
            for line in whole.splitlines() if check == _check(whole) else ():
                digest, *tick = parse(line, limit_bytes=LONGEST_LINE_BYTES)
                if digest in self._spans:
                    self.known.setdefault(digest, {})[tick[0]] = _from_json(tick)
        self._digests = {tick: digest for digest, ticks in self._spans.items() for tick in ticks}
        self._is_new = False

    def of(self, tick: int) -> TickSpent | None:
        """Return what is known of a tick in a segment."""
        return self.known.get(self._digests.get(tick, ""), {}).get(tick)

    def take(self, found: TickSpent) -> None:
        """Take note of a tick; of one that is in no segment nothing is kept."""
        digest = self._digests.get(found.tick)
        if digest and found.tick not in (ticks := self.known.setdefault(digest, {})):
            ticks[found.tick] = found
            self._is_new = True

    def save(self) -> None:
        """Keep what is new; where nothing can be written, nothing is."""
        if self._is_new:
            known = self.known.items()
            whole = b"\n".join(
                compact([it, *_as_json(tick)]) for it, ticks in known for tick in ticks.values()
            )
            with contextlib.suppress(OSError, DiskError):
                fs.publish(self._base, paths.SPENT_FILE, b"%b\n%b" % (_check(whole), whole))


def _check(lines: bytes) -> bytes:
    """Return the digest of what is kept; another one where a version knows more of a call."""
    known = repr((LedgerSpent._fields, CallSpent._fields)).encode()
    return sha256(FORM + known + lines).hexdigest().encode()


def _digest(base: Path, segment: str) -> str:
    try:
        with open_regular(base / SEALED / segment) as file:
            return file_digest(file, "sha256").hexdigest()[:32]
    except OSError:
        return ""


def _as_json(found: TickSpent) -> list[Any]:
    turns = [[it.agent, it.before, it.key, it.request, it.calls] for it in found.turns.values()]
    return [found.tick, found.at, found.after, turns]


def _from_json(plain: list[Any]) -> TickSpent:
    tick, at, after, turns = plain
    found = TickSpent(tick, at, after)
    for agent, before, key, request, calls in turns:
        spent = [CallSpent(*call) for call in calls]
        turn = TurnSpent(agent, LedgerSpent(*before), key, request, spent)
        if not all(map(_is_amount, (*turn.before, *(it for call in spent for it in call[1:])))):
            raise ValueError("no amounts")
        found.turns[turn_key(agent, len(keys_of(agent, found.turns)))] = turn
    return found


def _is_amount(value: object) -> bool:
    return value is None or isinstance(value, int | float)


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
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise _damaged(tick, f"{type(error).__name__} in a {plain.get('type')}") from error
        _put_in_a_row(found)
        return found

    def pass_over(self, found: TickSpent) -> None:
        """Take note of what a tick that is known already says for later ones."""
        self._keys.update((turn.agent, turn.key) for turn in found.turns.values() if turn.key)

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
                turn = TurnSpent(name, LedgerSpent.of(plain["state"]), self._keys.get(name, ""), request)
                found.turns.setdefault(_key_of(plain), turn)
            case "model_reserved":
                reserved = found.turns[_key_of(plain)].reserved
                reserved.setdefault(plain["call"], []).append(Lost.of(plain))
            case "model_failed":
                found.turns[_key_of(plain)].settle(plain)
            case "model_replied":
                found.turns[_key_of(plain)].settle(plain)
                key = plain.get("key") or self._keys.get(plain["agent"]) or plain.get("model", "")
                tokens = plain["input_tokens"], plain["output_tokens"], plain.get("cached_tokens", 0)
                spent = CallSpent(key, plain["credits"], plain.get("cost_usd"), *tokens)
                found.turns[_key_of(plain)].calls.append(spent)


def _put_in_a_row(found: TickSpent) -> None:
    """Let each further turn of an agent begin with what the one before it left: several may begin alike."""
    for key, turn in found.turns.items():
        agent, number = split_key(key)
        before = found.turns.get(turn_key(agent, number - 1)) if number else None
        if before is not None and before.calls and turn.before == found.turns[agent].before:
            turn.before = before.after


def _key_of(plain: dict[str, Any]) -> str:
    """Return the key of the turn that a line is about."""
    turn = plain["turn"] if "turn" in plain else plain.get("call", 0) // NUMBERS_PER_TURN
    return turn_key(plain["agent"], turn)


def _damaged(tick: int, why: str) -> CorruptState:
    hint = "`lemming verify` says what is wrong with it"
    return CorruptState(f"what was spent cannot be read: {why}", where=paths.journal_file(tick), hint=hint)
