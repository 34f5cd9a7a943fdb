"""What journals tell at a glance: their first and last line, and how the lines between begin.

A strip of ticks and a map look at many journals, and taking one apart costs twenty times as much as looking
through its bytes. The glance at a tick that is over is kept in memory while its journal is the same file:
after a rewind its number is taken again. Of a tick that is not over only the first bytes of its lines are
looked at, as they come, so that a screen may ask again every second. Nothing is checked against the
checksums here: `lemming verify` does that.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from typing import Any, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.base.wording import counted
from lemming.kernel.files.descriptors import LONGEST_LINE_BYTES
from lemming.kernel.files.stamps import Identity, identity_of
from lemming.kernel.journal.file import journal_ticks, raw_journal
from lemming.kernel.org.organisation import Organisation, OrgPath

KEPT = 2000
NAMELESS = "(a model without a name)"
_STRING = rb'"((?:[^"\\]|\\.)*)"'
# Fields of records stand in one order, and quotes within texts are escaped: no word of an agent's fits these.
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
        self.glances: OrderedDict[tuple[int, Identity | None], Glance] = OrderedDict()


def journal_file_now(org: Organisation, tick: int) -> Identity | None:
    """Return which file a tick's journal is now; None where it is none of its own."""
    try:
        return identity_of(f"{org.base}/{paths.journal_file(tick)}")
    except OSError:
        return None


def glances_at(org: Organisation, ticks: Iterable[int]) -> list[Glance]:
    """Return a glance at each of these ticks' journals, in their order."""
    kept = org.own(_Kept).glances
    found = []
    for tick in ticks:
        key = tick, journal_file_now(org, tick)
        glance = kept.get(key) or _glance(org, tick)
        if glance.is_over:
            kept[key] = glance
            kept.move_to_end(key)
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


MOST_TICKS, MOST_KEPT = 50, 2000
_FAILED = re.compile(
    rb'^\{"type":"turn_(?:committed|skipped)","epoch":\d+,"agent":"([a-z0-9_-]+)","status":"(\w+)"',
    re.MULTILINE,
)


def failures_in_a_row(org: Organisation, agent: str, before: int) -> int:
    """Return how many turns of an agent failed in a row before a tick, as far as is looked back."""
    ticks = [tick for tick in journal_ticks(org, with_sealed=False) if tick < before][-MOST_TICKS:]
    ends = (glance.statuses.get(agent) for glance in reversed(glances_at(org, ticks)))
    return sum(1 for _ in takewhile(lambda end: end == "failed", filter(None, ends)))


class EndsInWords:
    """Why turns ended as they did and what they did, by their last records: `org.own(EndsInWords)`."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._known = lru_cache(MOST_KEPT)(self._read)

    def of(self, tick: int, agent: str) -> Mapping[str, Any]:
        """Return `reason` and `did`, both in words."""
        return self._known(tick, agent, journal_file_now(self._org, tick))

    def _read(self, tick: int, agent: str, _: Identity | None) -> dict[str, Any]:
        """Return the `reason` of how a turn ended, and what it `did` in words; both empty where unknown."""
        try:
            raw = raw_journal(self._org, tick)
            found = next((it for it in _FAILED.finditer(raw) if it[1] == agent.encode()), None)
            end = raw.find(b"\n", found.start()) if found else 0
            line = parse(raw[found.start() : end], limit_bytes=LONGEST_LINE_BYTES) if found else None
        except (CorruptState, JsonProblem):
            line = None
        if not isinstance(line, dict):
            return {"reason": "", "did": ""}
        return {"reason": str(line.get("reason") or ""), "did": _did(line) or "wrote nothing"}


def _did(line: dict[str, Any]) -> str:
    files = [str(it["path"] if isinstance(it, dict) else it) for it in line.get("files") or ()]
    written = [path for path in files if "/outbox/" not in path and "/memory/" not in path]
    entries, memories = len(line.get("entries") or ()), [*(line.get("memory") or ())]
    parts = [f"said {counted(entries, 'thing')}"] if entries else []
    parts += [f"wrote {path.rpartition('/')[2]}" for path in written[:2]]
    parts += [f"and {len(written) - 2} more files"] if len(written) > 2 else []
    parts += [f"remembered {key}" for key in memories[:2]]
    return ", ".join(parts)


_LINE = re.compile(
    rb'^\{"type":"(?P<type>[a-z_]+)","epoch":\d+,'
    rb'(?:"at":"(?P<began>[0-9TZ:.-]+)"|"agent":"(?P<agent>[a-z0-9_-]+)")'
    rb'(?:,"call":\d+,"at":"(?P<at>[0-9TZ:.-]+)")?(?:,"index":\d+,"tool":"(?P<tool>[^"]{1,100})")?',
    re.MULTILINE,
)
_ENDS = ("turn_committed", "turn_skipped")


@dataclass(frozen=True)
class DoingNow:
    """What an agent's turn does now: `since` a moment, which is a lower bound; `tool` that runs, if one does.

    `is_over`: it has ended, while others of the tick go on.
    """

    since: str
    tool: str = ""
    is_over: bool = False


def doing_in(org: OrgPath, tick: int) -> dict[str, DoingNow]:
    """Return what the turns of a tick do, by agent; nothing of one that has no journal."""
    found: dict[str, DoingNow] = {}
    now = ""
    for line in _LINE.finditer(raw_journal(org, tick)):
        now = ((line["began"] or line["at"]) or b"").decode() or now
        if line["agent"]:
            kind, tool = line["type"].decode(), (line["tool"] or b"").decode()
            found[line["agent"].decode()] = DoingNow(
                now, tool if kind == "tool_started" else "", kind in _ENDS
            )
    return found
