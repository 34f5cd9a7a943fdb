"""Spending of turns from journals: each model answer with its agent, model and request.

Journal lines are not cross-checked here: `lemming verify` does this. Costs of journals in a sealed segment
are cached in `.lemming/spent.jsonl`, by the digest of the segment, because unpacking takes longest. The file
may be deleted at any time and is rebuilt.
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
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, parse
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN, list_turn_keys, split_key, turn_key
from lemming.kernel.files import fs
from lemming.kernel.files.descriptors import MAX_LINE_BYTES, open_regular
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.journal_file import journal_ticks, raw_journal
from lemming.kernel.journal.journal_packing import SEALED_FOLDER, plain_ticks, segments
from lemming.kernel.journal.write_offs import NO_WRITE_OFF, WriteOff
from lemming.kernel.org.organisation import OrgPath

_KINDS = (b"tick_started", b"turn_started", b"model_reserved", b"model_replied", b"model_failed")
_LINE_PREFIXES = tuple(b'{"type":"%b"' % kind for kind in _KINDS)

CACHE_FORMAT = b"1"
"""Version of the cached form. A cache of another version is rebuilt."""

Progress = Callable[[str], object]
"""Receives the progress of reading, for a waiting person."""


def no_progress(_: str) -> None:
    """Report no progress."""


class CallCost(NamedTuple):
    """Cost of one model answer. `model`: the model key of the call in `config/models.json`.

    `cached_tokens`: input tokens from the provider's cache.
    """

    model: str
    credits: float
    cost_usd: float | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0


class LedgerCosts(NamedTuple):
    """Spending in an agent's ledger at the start of a turn."""

    credits: float
    cost_usd: float | None
    unpriced_calls: int
    input_tokens: int
    output_tokens: int

    @classmethod
    def from_json(cls, state: Json) -> LedgerCosts:
        """Return the spending in a line of a ledger. Raises: ValueError or TypeError for an invalid amount."""
        dollars = state.get("cost_usd")
        counts = (int(state.get(key, 0)) for key in cls._fields[2:])
        return cls(float(state.get("credits", 0.0)), None if dollars is None else float(dollars), *counts)


@dataclass
class TurnCosts:
    """Costs of one turn so far, in the order of its calls.

    `key`: the model key of the agent's resume, or empty if no journal has one. `request`: the entry served by
    the turn, as author/tick_id, or empty. `settled_write_off`: the write-off in answers. `reserved`:
    reservations of unanswered calls, by number.
    """

    agent: str
    initial_ledger: LedgerCosts
    key: str = ""
    request: str = ""
    calls: list[CallCost] = field(default_factory=list)
    settled_write_off: WriteOff = NO_WRITE_OFF
    reserved: dict[int, list[WriteOff]] = field(default_factory=dict)

    @property
    def final_ledger(self) -> LedgerCosts:
        """Spending in the ledger after the turn."""
        costs = [call.cost_usd for call in self.calls if call.cost_usd is not None]
        dollars = (self.initial_ledger.cost_usd or 0.0) + sum(costs) if costs else self.initial_ledger.cost_usd
        return LedgerCosts(
            round(self.initial_ledger.credits + sum(call.credits for call in self.calls), 6),
            dollars,
            self.initial_ledger.unpriced_calls + len(self.calls) - len(costs),
            self.initial_ledger.input_tokens + sum(call.input_tokens for call in self.calls),
            self.initial_ledger.output_tokens + sum(call.output_tokens for call in self.calls),
        )

    @property
    def write_off(self) -> WriteOff:
        """Write-off of the turn, counted as spent after the turn has ended."""
        open_ = (reservation for reserved in self.reserved.values() for reservation in reserved)
        return reduce(WriteOff.add, open_, self.settled_write_off)

    def settle(self, plain: Json) -> None:
        """Settle the reservation of a call by its answer or failure."""
        self.reserved.pop(plain["call"], None)
        self.settled_write_off = self.settled_write_off.add(WriteOff.from_json(plain.get("lost")))


@dataclass
class TickCosts:
    """Costs of the turns of a tick so far. `at`: its clock time. `previous_tick`: the previous tick with a journal."""

    tick: int
    at: str = ""
    previous_tick: int | None = None
    turns: dict[str, TurnCosts] = field(default_factory=dict)


def iter_tick_costs(base: OrgPath, progress: Progress = no_progress) -> Iterator[TickCosts | int]:
    """Yield the costs of each tick with a journal, in order, or the number of an unreadable tick.

    Cached ticks have no write-offs. `progress` is called for each sealed tick missing in the cache.
    """
    ticks, unsealed = journal_ticks(base), frozenset(plain_ticks(base))
    reader, cache = CostReader(base), _SegmentCache(base)
    for tick in ticks:
        tick_costs = None if tick in unsealed else cache.get(tick)
        if tick_costs is None and tick not in unsealed:
            progress(f"the journal of tick {tick}")
        try:
            tick_costs = tick_costs or reader.load_tick(tick)
        except CorruptState:
            yield tick
            continue
        reader.remember_keys(tick_costs)
        cache.add(tick_costs)
        yield tick_costs
    cache.save()


def cached_idle_ticks(base: OrgPath) -> frozenset[int]:
    """Return the sealed ticks known to have no turn for a request."""
    cached = _SegmentCache(base).cached.values()
    idle = {
        tick for ticks in cached for tick, costs in ticks.items() if not any(t.request for t in costs.turns.values())
    }
    return frozenset(idle.difference(plain_ticks(base)))


class _SegmentCache:
    """Cache of the costs of current segments."""

    def __init__(self, base: OrgPath) -> None:
        self._base = Path(base)
        self._spans = {
            _segment_digest(self._base, segment.name): range(segment.first, segment.last + 1)
            for segment in segments(base)
        }
        self.cached: dict[str, dict[int, TickCosts]] = {}
        with contextlib.suppress(OSError, ValueError, TypeError, DiskError):
            raw = fs.read_bytes(self._base / paths.SPENT_FILE, MAX_LINE_BYTES)
            checksum, _, body = raw.partition(b"\n")
            for line in body.splitlines() if checksum == _cache_checksum(body) else ():
                digest, *tick = parse(line, limit_bytes=MAX_LINE_BYTES)
                if digest in self._spans:
                    self.cached.setdefault(digest, {})[tick[0]] = _from_json(tick)
        self._digests = {tick: digest for digest, ticks in self._spans.items() for tick in ticks}
        self._is_new = False

    def get(self, tick: int) -> TickCosts | None:
        """Return the cached costs of a sealed tick, or None."""
        return self.cached.get(self._digests.get(tick, ""), {}).get(tick)

    def add(self, tick_costs: TickCosts) -> None:
        """Add the costs of a tick. Ticks outside segments are not cached."""
        digest = self._digests.get(tick_costs.tick)
        if digest and tick_costs.tick not in (ticks := self.cached.setdefault(digest, {})):
            ticks[tick_costs.tick] = tick_costs
            self._is_new = True

    def save(self) -> None:
        """Save new costs. Disk errors are ignored."""
        if self._is_new:
            cached = self.cached.items()
            body = b"\n".join(
                dump_compact([digest, *_as_json(tick)]) for digest, ticks in cached for tick in ticks.values()
            )
            with contextlib.suppress(OSError, DiskError):
                fs.write_atomic(self._base, paths.SPENT_FILE, b"%b\n%b" % (_cache_checksum(body), body))


def _cache_checksum(lines: bytes) -> bytes:
    """Return the checksum of the cache. The checksum depends on the fields known to this version."""
    field_names = repr((LedgerCosts._fields, CallCost._fields)).encode()
    return sha256(CACHE_FORMAT + field_names + lines).hexdigest().encode()


def _segment_digest(base: Path, segment: str) -> str:
    try:
        with open_regular(base / SEALED_FOLDER / segment) as file:
            return file_digest(file, "sha256").hexdigest()[:32]
    except OSError:
        return ""


def _as_json(tick_costs: TickCosts) -> list[Any]:
    turns = [
        [turn.agent, turn.initial_ledger, turn.key, turn.request, turn.calls] for turn in tick_costs.turns.values()
    ]
    return [tick_costs.tick, tick_costs.at, tick_costs.previous_tick, turns]


def _from_json(plain: list[Any]) -> TickCosts:
    tick, at, previous_tick, turns = plain
    tick_costs = TickCosts(tick, at, previous_tick)
    for agent, ledger, key, request, calls in turns:
        call_costs = [CallCost(*call) for call in calls]
        turn = TurnCosts(agent, LedgerCosts(*ledger), key, request, call_costs)
        if not all(map(_is_amount, (*turn.initial_ledger, *(amount for call in call_costs for amount in call[1:])))):
            raise ValueError("no amounts")
        tick_costs.turns[turn_key(agent, len(list_turn_keys(agent, tick_costs.turns)))] = turn
    return tick_costs


def _is_amount(value: object) -> bool:
    return value is None or isinstance(value, int | float)


class CostReader:
    """Reader of journals in order, oldest first: the model key of a turn may be in an earlier journal."""

    def __init__(self, base: OrgPath) -> None:
        self._base = base
        self._keys: dict[str, str] = {}

    def load_tick(self, tick: int) -> TickCosts:
        """Return the costs of a tick's turns. Raises: CorruptState for unreadable lines."""
        tick_costs = TickCosts(tick)
        for plain in self._iter_lines(tick):
            try:
                self._apply_line(tick_costs, plain)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise _make_corrupt_state(tick, f"{type(error).__name__} in a {plain.get('type')}") from error
        _chain_turns(tick_costs)
        return tick_costs

    def remember_keys(self, tick_costs: TickCosts) -> None:
        """Remember the model keys of a cached tick for later ticks."""
        self._keys.update((turn.agent, turn.key) for turn in tick_costs.turns.values() if turn.key)

    def _iter_lines(self, tick: int) -> Iterator[dict[str, Any]]:
        *complete_lines, _ = raw_journal(self._base, tick).split(b"\n")
        for line in complete_lines:
            if line.startswith(_LINE_PREFIXES):
                try:
                    yield parse(line, limit_bytes=MAX_LINE_BYTES)
                except JsonProblem as error:
                    raise _make_corrupt_state(tick, error.message) from error

    def _apply_line(self, tick_costs: TickCosts, plain: dict[str, Any]) -> None:
        match plain["type"]:
            case "tick_started":
                tick_costs.at, tick_costs.previous_tick = plain["at"], plain.get("after")
            case "turn_started":
                name, prefix = plain["agent"], plain.get("opening", plain)
                if isinstance(prefix, dict):
                    self._keys[name] = prefix["resume"]["model"]["key"]
                request = (plain.get("task") or {}).get("request", "")
                turn = TurnCosts(name, LedgerCosts.from_json(plain["state"]), self._keys.get(name, ""), request)
                tick_costs.turns.setdefault(_get_turn_key(plain), turn)
            case "model_reserved":
                reserved = tick_costs.turns[_get_turn_key(plain)].reserved
                reserved.setdefault(plain["call"], []).append(WriteOff.from_json(plain))
            case "model_failed":
                tick_costs.turns[_get_turn_key(plain)].settle(plain)
            case "model_replied":
                tick_costs.turns[_get_turn_key(plain)].settle(plain)
                key = plain.get("key") or self._keys.get(plain["agent"]) or plain.get("model", "")
                tokens = plain["input_tokens"], plain["output_tokens"], plain.get("cached_tokens", 0)
                call_cost = CallCost(key, plain["credits"], plain.get("cost_usd"), *tokens)
                tick_costs.turns[_get_turn_key(plain)].calls.append(call_cost)


def _chain_turns(tick_costs: TickCosts) -> None:
    """Start each later turn of an agent with the ledger after its previous turn. Concurrent turns may start alike."""
    for key, turn in tick_costs.turns.items():
        agent, number = split_key(key)
        previous = tick_costs.turns.get(turn_key(agent, number - 1)) if number else None
        if previous is not None and previous.calls and turn.initial_ledger == tick_costs.turns[agent].initial_ledger:
            turn.initial_ledger = previous.final_ledger


def _get_turn_key(plain: dict[str, Any]) -> str:
    """Return the turn key of a line."""
    turn = plain["turn"] if "turn" in plain else plain.get("call", 0) // NUMBERS_PER_TURN
    return turn_key(plain["agent"], turn)


def _make_corrupt_state(tick: int, reason: str) -> CorruptState:
    hint = "run `lemming verify`"
    return CorruptState(f"what was spent cannot be read: {reason}", where=paths.journal_file(tick), hint=hint)
