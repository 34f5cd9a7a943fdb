"""Two organisations, or two accounts of the same ticks, side by side: what differs. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from difflib import unified_diff
from itertools import zip_longest
from typing import Any

from lemming.history.read import FileChange
from lemming.kernel.agents import agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState
from lemming.kernel.base.jsontext import JsonProblem, parse, pretty
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.messages import OutboxEntry, list_outbox, read_entry
from lemming.kernel.org.organisation import OrgPath
from lemming.timeline.past import files_of, read_now
from lemming.timeline.tick_spans import TickSpan
from lemming.timeline.unkept import change_of


@dataclass(frozen=True)
class EntryDifference:
    """An entry that is not the same on both sides; None: that side has none at its place.

    Its place is the tick, the author, the kind, and how many of that kind came before it. `diff` has the
    lines of the text that differ, with `-` and `+`.
    """

    tick: int
    agent: str
    kind: str
    before: Json | None
    after: Json | None
    diff: str

    @property
    def change(self) -> str:
        """What has become of it: changed, new or gone."""
        return "new" if self.before is None else "gone" if self.after is None else "changed"

    def as_json(self) -> Json:
        """Return the difference as JSON values."""
        return {**asdict(self), "change": self.change}


@dataclass(frozen=True)
class ValueDifference:
    """A value of a JSON file that differs, by its pointer; None where it is not there."""

    file: str
    pointer: str
    before: Any
    after: Any


@dataclass(frozen=True)
class SpentDifference:
    """What an agent has spent on both sides: turns, credits, cost_usd, input_tokens, output_tokens."""

    agent: str
    before: Json
    after: Json


@dataclass(frozen=True)
class Comparison:
    """What differs between two organisations. `agents`: those of one side only, with "before" or "after"."""

    agents: Mapping[str, str]
    values: list[ValueDifference]
    entries: list[EntryDifference]
    files: list[FileChange]
    spent: list[SpentDifference]

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return not (self.agents or self.values or self.entries or self.files or self.spent)


def compare(before: OrgPath, after: OrgPath, span: range | TickSpan | None = None) -> Comparison:
    """Return what differs between two organisations as they are now; of entries, those of some ticks.

    Left out: ledgers (`spent` tells them), logs, the counter.
    """
    sides = before, after
    names = [{name for name in agent_folders(base) if paths.AGENT_NAME.match(name)} for base in sides]
    only = dict.fromkeys(names[0] - names[1], "before") | dict.fromkeys(names[1] - names[0], "after")
    both = sorted(names[0] & names[1])
    listed = {file for base in sides for file in files_of(base)}
    settings = sorted(file for file in listed if file.startswith("config/") and file.endswith(".json"))
    told = [paths.resume_file(name) for name in both] + settings
    entries = [list(_entries_in(base, span)) for base in sides]
    return Comparison(
        agents=dict(sorted(only.items())),
        values=[it for file in told for it in _values(file, *(read_now(base, file) for base in sides))],
        entries=list(differing_entries(*entries)),
        files=list(_files(before, after, listed - {*told})),
        spent=[it for name in both if (it := _spent(name, before, after))],
    )


def differing_entries(
    before: Iterable[OutboxEntry], after: Iterable[OutboxEntry]
) -> Iterator[EntryDifference]:
    """Yield the entries that differ, by tick, author and kind; those that are the same are paired first."""
    sides = [_by_place(before), _by_place(after)]
    for place in sorted({*sides[0], *sides[1]}):
        old, new = (side.get(place, []) for side in sides)
        shared = [said for said in old if said in new]
        left = [_without(entries, shared) for entries in (old, new)]
        for was, now in zip_longest(*left):
            yield EntryDifference(*place, was, now, "\n".join(_changed_lines(_text(was), _text(now))))


Place = tuple[int, str, str]


def _by_place(entries: Iterable[OutboxEntry]) -> dict[Place, list[Json]]:
    found: dict[Place, list[Json]] = {}
    for entry in entries:
        said: Json = {"payload": entry.payload, "tags": entry.tags}
        found.setdefault((entry.tick, entry.agent, entry.kind), []).append(said)
    return found


def _without(entries: list[Json], shared: list[Json]) -> list[Json]:
    left, taken = [], [*shared]
    for said in entries:
        if said in taken:
            taken.remove(said)
        else:
            left.append(said)
    return left


def _text(said: Json | None) -> str:
    """Return what an entry says, for a diff: its text where it says nothing else."""
    if said is None:
        return ""
    text = said["payload"].get("text")
    is_all = isinstance(text, str) and len(said["payload"]) == 1 and not said["tags"]
    return str(text) if is_all else pretty(said).decode()


def _changed_lines(before: str, after: str) -> list[str]:
    lines = list(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]
    return [line for line in lines if not line.startswith("@@")]


def _entries_in(base: OrgPath, span: range | TickSpan | None) -> Iterator[OutboxEntry]:
    for author in filter(paths.AGENT_NAME.match, agent_folders(base)):
        for name in list_outbox(base, author):
            if span is None or name.tick in span:
                with suppress(ConfigError, FileNotFoundError):
                    yield read_entry(base, name)


def _values(file: str, before: bytes | None, after: bytes | None) -> Iterator[ValueDifference]:
    """Yield how a JSON file differs, value by value; as a whole where one side is no JSON."""
    if before == after:
        return
    try:
        plain = [None if raw is None else parse(raw, allow_bom=True) for raw in (before, after)]
    except JsonProblem:
        yield ValueDifference(file, "", "(not JSON)", "(not JSON)")
        return
    for pointer, was, now in _differing(plain[0], plain[1], ""):
        yield ValueDifference(file, pointer, was, now)


def _differing(before: Any, after: Any, pointer: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            below = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
            yield from _differing(before.get(key), after.get(key), below)
    elif before != after:
        yield pointer, before, after


def _files(before: OrgPath, after: OrgPath, listed: set[str]) -> Iterator[FileChange]:
    """Yield which of the other files differ: memories, workspaces, shared files."""
    for file in sorted(listed):
        parts = file.split("/")
        if parts[0] == "agents" and len(parts) > 2 and parts[2] in ("outbox", "turns.jsonl", "channel.jsonl"):
            continue
        change, _ = change_of(file, read_now(before, file), read_now(after, file))
        if change:
            yield change


_SPENT = ("turns", "credits", "cost_usd", "input_tokens", "output_tokens")


def _spent(name: str, before: OrgPath, after: OrgPath) -> SpentDifference | None:
    sides = []
    for base in (before, after):
        try:
            state = read_state(base, name)
        except CorruptState:
            return None
        sides.append({key: getattr(state, key) for key in _SPENT})
    return SpentDifference(name, *sides) if sides[0] != sides[1] else None
