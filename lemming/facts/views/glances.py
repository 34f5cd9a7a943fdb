"""What journals tell at a glance: their first and last line, and how the lines between begin.

A strip of ticks and a map look at many journals, and taking one apart costs twenty times as much as looking
through its bytes. The journal of a tick that is over does not change, so its glance is kept in memory.
Nothing is checked against the checksums here: `lemming verify` does that.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lemming.base.clock import parse_timestamp
from lemming.base.errors import CorruptState
from lemming.base.jsontext import JsonProblem, parse
from lemming.files.descriptors import LONGEST_LINE_BYTES
from lemming.journal.file import raw_journal
from lemming.org.organisation import Organisation

KEPT = 2000
NAMELESS = "(a model without a name)"
_STRING = rb'"((?:[^"\\]|\\.)*)"'
_TURN = re.compile(rb'\{"type":"turn_started","epoch":\d+,"agent":"([^"]*)","entries":\[([^\]]*)\]')
_END = re.compile(
    rb'\{"type":"turn_(?:committed|skipped)","epoch":\d+,"agent":"([^"]*)","status":"([a-z]*)","end":"([a-z_]*)"'
)
_REPLY = re.compile(rb'\{"type":"model_replied","epoch":\d+,"agent":"[^"]*","call":\d+,"at":"([^"]*)"')
_EPOCH = re.compile(rb'\{"type":"[a-z_]*","epoch":(\d+)')
_SPENT = re.compile(
    rb'"calls":(\d+),"credits":([0-9.eE+-]+),"cost_usd":(null|[0-9.eE+-]+),"input_tokens":(\d+),"output_tokens":(\d+)'
)
_MODEL = re.compile(rb'"model":' + _STRING)
_ENTRY = re.compile(rb'"kind":"([a-z]+)","file":"agents/([^/"]*)/outbox/\d+_([A-Za-z0-9]+)\.json"')
_ID = re.compile(_STRING)


class Wrote(NamedTuple):
    """An entry that a turn wrote: whose it is, and of what kind."""

    author: str
    kind: str


class Spent(NamedTuple):
    """What one turn has spent, and the name of the model that answered it last."""

    model: str
    calls: int
    credits: float
    cost_usd: float | None
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, kw_only=True)
class Glance:
    """One tick. `totals` are empty until it is over, `problem` says why nothing more is known of it.

    `after`: the tick before it that had a journal. `ended`: how many turns ended how, by `status:end`;
    `statuses`: how each agent's did;
    `shown`: the ids of the entries that were new to each agent that was asked; `wrote`: the entries that its
    turns wrote, by id; `spent`: what its turns cost that are over, by agent. `last_at`: when
    the last answer came, `starts`: how many engines worked on it.
    """

    tick: int
    at: str = ""
    after: int | None = None
    planned: int = 0
    totals: dict[str, Any] = field(default_factory=dict)
    begun: frozenset[str] = frozenset()
    ended: Counter[str] = field(default_factory=Counter)
    statuses: dict[str, str] = field(default_factory=dict)
    shown: dict[str, tuple[str, ...]] = field(default_factory=dict)
    wrote: dict[str, Wrote] = field(default_factory=dict)
    spent: dict[str, Spent] = field(default_factory=dict)
    last_at: str = ""
    starts: int = 1
    problem: str = ""

    @property
    def is_over(self) -> bool:
        """Whether the tick was committed."""
        return bool(self.totals)

    @property
    def duration_ms(self) -> int | None:
        """From its beginning to the last answer; None where the times are those of an earlier recording."""
        if not (self.at and self.last_at):
            return None
        passed = (parse_timestamp(self.last_at) - parse_timestamp(self.at)).total_seconds()
        return round(passed * 1000) if passed >= 0 else None


class _Kept:
    """The glances at ticks that are over, the newest looks last."""

    def __init__(self, _: Organisation) -> None:
        self.glances: OrderedDict[int, Glance] = OrderedDict()


def glances_at(org: Organisation, ticks: Iterable[int]) -> list[Glance]:
    """Return a glance at each of these ticks' journals, in their order."""
    kept = org.own(_Kept).glances
    found = []
    for tick in ticks:
        glance = kept.get(tick) or _glance(org, tick)
        if glance.is_over:
            kept[tick] = glance
            kept.move_to_end(tick)
        found.append(glance)
    while len(kept) > KEPT:
        kept.popitem(last=False)
    return found


def _glance(org: Organisation, tick: int) -> Glance:
    try:
        return glance_in(tick, raw_journal(org, tick))
    except CorruptState as error:
        return Glance(tick=tick, problem=str(error))


def glance_in(tick: int, raw: bytes) -> Glance:
    """Return what the bytes of a journal tell; a torn last line is passed over."""
    *lines, _ = raw.split(b"\n")
    if not lines:
        return Glance(tick=tick, problem="" if not raw else "it has no whole line")
    try:
        first, last = _json(lines[0]), _json(lines[-1]) if lines[-1].startswith(_COMMITTED) else {}
        facts: dict[str, Any] = {
            "at": str(first["at"]),
            "after": first.get("after"),
            "planned": len(first["order"]),
        }
        totals = {key: last["totals"][key] for key in _TOTALS} if last else {}
    except (JsonProblem, KeyError, TypeError, ValueError) as error:
        return Glance(tick=tick, problem=f"its first or last line is no record: {error}")
    return Glance(tick=tick, **facts, totals=totals, **_between(lines))


_COMMITTED = b'{"type":"tick_committed"'
_TOTALS = ("done", "waiting", "skipped", "failed", "entries", "calls", "credits", "cost_usd", "input_tokens",
           "output_tokens")  # fmt: skip


def _between(lines: list[bytes]) -> dict[str, Any]:
    begun, ended, shown, wrote = set[str](), Counter[str](), dict[str, tuple[str, ...]](), dict[str, Wrote]()
    last_at, epochs, spent, statuses = "", set[bytes](), dict[str, Spent](), dict[str, str]()
    for line in lines:
        if epoch := _EPOCH.match(line):
            epochs.add(epoch[1])
        if turn := _TURN.match(line):
            name = turn[1].decode()
            begun.add(name)
            shown[name] = tuple(each.decode() for each in _ID.findall(turn[2]))
        elif reply := _REPLY.match(line):
            last_at = max(last_at, reply[1].decode())
        elif end := _END.match(line):
            ended[f"{end[2].decode()}:{end[3].decode()}"] += 1
            statuses[end[1].decode()] = end[2].decode()
            for kind, author, entry in _ENTRY.findall(line):
                wrote[entry.decode()] = Wrote(author.decode(), kind.decode())
            if cost := _spent_in(line):
                spent[end[1].decode()] = cost
    return {
        "begun": frozenset(begun),
        "ended": ended,
        "statuses": statuses,
        "shown": shown,
        "wrote": wrote,
        "spent": spent,
        "last_at": last_at,
        "starts": max(len(epochs), 1),
    }


def _spent_in(line: bytes) -> Spent | None:
    """Return what a turn's last record says that it cost; None where no model was asked."""
    model, found = _MODEL.search(line), _SPENT.search(line)
    if not (found and int(found[1])):
        return None
    dollars = None if found[3] == b"null" else float(found[3])
    name: str = parse(b'"%b"' % model[1]) if model else NAMELESS
    return Spent(name, int(found[1]), float(found[2]), dollars, int(found[4]), int(found[5]))


def _json(line: bytes) -> dict[str, Any]:
    plain = parse(line, limit_bytes=LONGEST_LINE_BYTES)
    if not isinstance(plain, dict):
        raise TypeError("it is no object")
    return plain
