"""Summaries of journals from their first line, their last line, and the beginnings of the lines in between.

A strip of ticks and a map read many journals, and parsing a journal costs twenty times as much as scanning
its bytes. The summary of a committed tick is cached while its journal remains the same file, because a rewind
reuses tick numbers. For an uncommitted tick only the first bytes of each line are scanned, so a screen may
ask every second. Checksums are not verified here: `lemming verify` does this.
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
from lemming.kernel.base.wording import format_count
from lemming.kernel.files.descriptors import MAX_LINE_BYTES
from lemming.kernel.files.stat_cache import Identity, file_identity
from lemming.kernel.journal.journal_file import journal_ticks, raw_journal
from lemming.kernel.org.organisation import Organisation, OrgPath

MAX_SUMMARIES_CACHED = 2000
UNNAMED_MODEL = "(a model without a name)"
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


class WrittenEntry(NamedTuple):
    """The author and kind of an entry written in a turn."""

    author: str
    kind: str


class TurnSpending(NamedTuple):
    """The spending of a turn, and the name of the last model that answered."""

    model: str
    calls: int
    credits: float
    cost_usd: float | None
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, kw_only=True)
class TickSummary:
    """A summary of a tick.

    `totals` is empty until the tick is committed; `problem` tells of an unreadable journal.

    `after`: the previous tick with a journal. `ended`: number of turns per outcome, as `status:end`.
    `statuses`: status of each agent's turn. `shown`: ids of the new entries in each agent's prompt. `wrote`:
    entries written in the tick, by id. `spent`: spending of finished turns, by agent. `last_at`: time of the
    last answer. `starts`: number of engines that worked on the tick.
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
    wrote: dict[str, WrittenEntry] = field(default_factory=dict)
    spent: dict[str, TurnSpending] = field(default_factory=dict)
    last_at: str = ""
    starts: int = 1
    problem: str = ""

    @property
    def is_committed(self) -> bool:
        """True if the tick was committed."""
        return bool(self.totals)

    @property
    def duration_ms(self) -> int | None:
        """Milliseconds from the start to the last answer, or None if the times come from an earlier recording."""
        if not (self.at and self.last_at):
            return None
        elapsed_s = (parse_timestamp(self.last_at) - parse_timestamp(self.at)).total_seconds()
        return round(elapsed_s * 1000) if elapsed_s >= 0 else None


class _SummaryCache:
    """Cache of the summaries of committed ticks, in order of use."""

    def __init__(self, _: Organisation) -> None:
        self.summaries: OrderedDict[tuple[int, Identity | None], TickSummary] = OrderedDict()


def load_journal_identity(org: Organisation, tick: int) -> Identity | None:
    """Return the identity of a tick's journal file, or None if the tick has no file of its own."""
    try:
        return file_identity(f"{org.base}/{paths.journal_file(tick)}")
    except OSError:
        return None


def summarize_ticks(org: Organisation, ticks: Iterable[int]) -> list[TickSummary]:
    """Return the summaries of ticks, in the order of `ticks`."""
    cache = org.get_cache(_SummaryCache).summaries
    summaries = []
    for tick in ticks:
        key = tick, load_journal_identity(org, tick)
        summary = cache.get(key) or _summarize_tick(org, tick)
        if summary.is_committed:
            cache[key] = summary
            cache.move_to_end(key)
        summaries.append(summary)
    while len(cache) > MAX_SUMMARIES_CACHED:
        cache.popitem(last=False)
    return summaries


def _summarize_tick(org: Organisation, tick: int) -> TickSummary:
    try:
        return parse_tick_summary(tick, raw_journal(org, tick))
    except CorruptState as error:
        return TickSummary(tick=tick, problem=str(error))


def parse_tick_summary(tick: int, raw: bytes) -> TickSummary:
    """Return the summary of a journal's bytes; an incomplete last line is ignored."""
    *lines, _ = raw.split(b"\n")
    if not lines:
        return TickSummary(tick=tick, problem="" if not raw else "the journal has no whole line")
    try:
        first, last = (
            _parse_json_line(lines[0]),
            _parse_json_line(lines[-1]) if lines[-1].startswith(_COMMITTED) else {},
        )
        first_line_fields: dict[str, Any] = {
            "at": str(first["at"]),
            "after": first.get("after"),
            "planned": len(first["order"]),
        }
        totals = {key: last["totals"][key] for key in _TOTALS} if last else {}
    except (JsonProblem, KeyError, TypeError, ValueError) as error:
        return TickSummary(tick=tick, problem=f"the first or last line must be a record: {error}")
    return TickSummary(tick=tick, **first_line_fields, totals=totals, **_parse_turn_lines(lines))


_COMMITTED = b'{"type":"tick_committed"'
_TOTALS = ("done", "waiting", "skipped", "failed", "entries", "calls", "credits", "cost_usd", "input_tokens",
           "output_tokens")  # fmt: skip


def _parse_turn_lines(lines: list[bytes]) -> dict[str, Any]:
    started, outcomes, new_entries, written_entries = (
        set[str](),
        Counter[str](),
        dict[str, tuple[str, ...]](),
        dict[str, WrittenEntry](),
    )
    last_at, epochs, spending, statuses = "", set[bytes](), dict[str, TurnSpending](), dict[str, str]()
    for line in lines:
        if epoch := _EPOCH.match(line):
            epochs.add(epoch[1])
        if turn := _TURN.match(line):
            name = turn[1].decode()
            started.add(name)
            new_entries[name] = tuple(entry_id.decode() for entry_id in _ID.findall(turn[2]))
        elif reply := _REPLY.match(line):
            last_at = max(last_at, reply[1].decode())
        elif end := _END.match(line):
            outcomes[f"{end[2].decode()}:{end[3].decode()}"] += 1
            statuses[end[1].decode()] = end[2].decode()
            for kind, author, entry in _ENTRY.findall(line):
                written_entries[entry.decode()] = WrittenEntry(author.decode(), kind.decode())
            if cost := _parse_spending(line):
                spending[end[1].decode()] = cost
    return {
        "begun": frozenset(started),
        "ended": outcomes,
        "statuses": statuses,
        "shown": new_entries,
        "wrote": written_entries,
        "spent": spending,
        "last_at": last_at,
        "starts": max(len(epochs), 1),
    }


def _parse_spending(line: bytes) -> TurnSpending | None:
    """Return the spending in a turn's last record, or None if no model was called."""
    model, match = _MODEL.search(line), _SPENT.search(line)
    if not (match and int(match[1])):
        return None
    dollars = None if match[3] == b"null" else float(match[3])
    name: str = parse(b'"%b"' % model[1]) if model else UNNAMED_MODEL
    return TurnSpending(name, int(match[1]), float(match[2]), dollars, int(match[4]), int(match[5]))


def _parse_json_line(line: bytes) -> dict[str, Any]:
    record = parse(line, limit_bytes=MAX_LINE_BYTES)
    if not isinstance(record, dict):
        raise TypeError("expected an object")
    return record


MAX_TICKS_SCANNED, MAX_OUTCOMES_CACHED = 50, 2000
_FAILED = re.compile(
    rb'^\{"type":"turn_(?:committed|skipped)","epoch":\d+,"agent":"([a-z0-9_-]+)","status":"(\w+)"', re.MULTILINE
)


def count_consecutive_failures(org: Organisation, agent: str, tick: int) -> int:
    """Return the number of consecutive failed turns of an agent before a tick, within the newest ticks."""
    ticks = [journal_tick for journal_tick in journal_ticks(org, with_sealed=False) if journal_tick < tick][
        -MAX_TICKS_SCANNED:
    ]
    statuses = (summary.statuses.get(agent) for summary in reversed(summarize_ticks(org, ticks)))
    return sum(1 for _ in takewhile(lambda end: end == "failed", filter(None, statuses)))


class TurnOutcomeCache:
    """Cache of the reasons and effects of turns, from their last records: `org.own(TurnOutcomeCache)`."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._load_cached = lru_cache(MAX_OUTCOMES_CACHED)(self._load_outcome)

    def describe(self, tick: int, agent: str) -> Mapping[str, Any]:
        """Return the descriptions `reason` and `did` of a turn."""
        return self._load_cached(tick, agent, load_journal_identity(self._org, tick))

    def _load_outcome(self, tick: int, agent: str, _: Identity | None) -> dict[str, Any]:
        """Return the `reason` of a turn's outcome and a description `did` of its effects; both are empty if unknown."""
        try:
            raw = raw_journal(self._org, tick)
            match = next((turn_match for turn_match in _FAILED.finditer(raw) if turn_match[1] == agent.encode()), None)
            end = raw.find(b"\n", match.start()) if match else 0
            line = parse(raw[match.start() : end], limit_bytes=MAX_LINE_BYTES) if match else None
        except (CorruptState, JsonProblem):
            line = None
        if not isinstance(line, dict):
            return {"reason": "", "did": ""}
        return {"reason": str(line.get("reason") or ""), "did": _describe_effects(line) or "wrote nothing"}


def _describe_effects(line: dict[str, Any]) -> str:
    files = [str(file["path"] if isinstance(file, dict) else file) for file in line.get("files") or ()]
    written = [path for path in files if "/outbox/" not in path and "/memory/" not in path]
    entries, memories = len(line.get("entries") or ()), [*(line.get("memory") or ())]
    effects = [f"wrote {format_count(entries, 'entry', 'entries')}"] if entries else []
    effects += [f"wrote {path.rpartition('/')[2]}" for path in written[:2]]
    effects += [f"and {len(written) - 2} more files"] if len(written) > 2 else []
    effects += [f"remembered {key}" for key in memories[:2]]
    return ", ".join(effects)


_LINE = re.compile(
    rb'^\{"type":"(?P<type>[a-z_]+)","epoch":\d+,'
    rb'(?:"at":"(?P<began>[0-9TZ:.-]+)"|"agent":"(?P<agent>[a-z0-9_-]+)")'
    rb'(?:,"call":\d+,"at":"(?P<at>[0-9TZ:.-]+)")?(?:,"index":\d+,"tool":"(?P<tool>[^"]{1,100})")?',
    re.MULTILINE,
)
_ENDS = ("turn_committed", "turn_skipped")


@dataclass(frozen=True)
class CurrentActivity:
    """The current activity of a turn:

    `since` is a lower bound of its start; `tool` is the running tool, or empty. `is_over`: the turn has ended, while
    other turns of the tick continue.
    """

    since: str
    tool: str = ""
    is_over: bool = False


def find_current_activities(org: OrgPath, tick: int) -> dict[str, CurrentActivity]:
    """Return the current activities in a tick, by agent; the result is empty for a tick without a journal."""
    activities: dict[str, CurrentActivity] = {}
    latest_time = ""
    for line in _LINE.finditer(raw_journal(org, tick)):
        latest_time = ((line["began"] or line["at"]) or b"").decode() or latest_time
        if line["agent"]:
            kind, tool = line["type"].decode(), (line["tool"] or b"").decode()
            activities[line["agent"].decode()] = CurrentActivity(
                latest_time, tool if kind == "tool_started" else "", kind in _ENDS
            )
    return activities
