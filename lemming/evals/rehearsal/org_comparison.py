"""Differences between two organisations, or between two records of the same ticks. Read-only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from difflib import unified_diff
from itertools import zip_longest
from typing import Any

from lemming.git_history.history_reader import FileChange
from lemming.journal_tools.file_history import iter_tracked_files, load_current_file
from lemming.journal_tools.journal_history import diff_file
from lemming.journal_tools.tick_ranges import TickRange
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, CorruptState
from lemming.kernel.base.jsontext import JsonProblem, dump_pretty, parse
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.messages import OutboxEntry, list_outbox, read_entry
from lemming.kernel.org.organisation import OrgPath


@dataclass(frozen=True)
class EntryDifference:
    """An entry with different content on both sides, or None on a side without the entry.

    Entries correspond by tick, author, kind and rank within the kind. `diff` holds the changed lines of the
    text with `-` and `+`.
    """

    tick: int
    agent: str
    kind: str
    before: Json | None
    after: Json | None
    diff: str

    @property
    def change(self) -> str:
        """Kind of the difference: "changed", "new" or "gone"."""
        return "new" if self.before is None else "gone" if self.after is None else "changed"

    def as_json(self) -> Json:
        """Return the difference as JSON values."""
        return {**asdict(self), "change": self.change}


@dataclass(frozen=True)
class ValueDifference:
    """A changed value of a JSON file by JSON pointer, or None on a side without the value."""

    file: str
    pointer: str
    before: Any
    after: Any


@dataclass(frozen=True)
class SpendingDifference:
    """Spending of an agent on both sides: turns, credits, cost_usd, input_tokens, output_tokens."""

    agent: str
    before: Json
    after: Json


@dataclass(frozen=True)
class Comparison:
    """All differences between two organisations. `agents`: agents of a single side, with "before" or "after"."""

    agents: Mapping[str, str]
    values: list[ValueDifference]
    entries: list[EntryDifference]
    files: list[FileChange]
    spent: list[SpendingDifference]

    @property
    def is_same(self) -> bool:
        """True if there is no difference."""
        return not (self.agents or self.values or self.entries or self.files or self.spent)


def compare_orgs(old_base: OrgPath, new_base: OrgPath, span: range | TickRange | None = None) -> Comparison:
    """Compare two organisations now, and their entries of some ticks. Left out: ledgers, logs and the tick counter."""
    sides = old_base, new_base
    names = [{name for name in list_agent_folders(base) if paths.AGENT_NAME.match(name)} for base in sides]
    one_sided = dict.fromkeys(names[0] - names[1], "before") | dict.fromkeys(names[1] - names[0], "after")
    common = sorted(names[0] & names[1])
    all_files = {file for base in sides for file in iter_tracked_files(base)}
    settings = sorted(file for file in all_files if file.startswith("config/") and file.endswith(".json"))
    json_files = [paths.resume_file(name) for name in common] + settings
    entries = [list(_iter_entries(base, span)) for base in sides]
    return Comparison(
        agents=dict(sorted(one_sided.items())),
        values=[
            difference
            for file in json_files
            for difference in _diff_json_file(file, *(load_current_file(base, file) for base in sides))
        ],
        entries=list(diff_entries(*entries)),
        files=list(_diff_other_files(old_base, new_base, all_files - {*json_files})),
        spent=[difference for name in common if (difference := _diff_spending(name, old_base, new_base))],
    )


def diff_entries(old_entries: Iterable[OutboxEntry], new_entries: Iterable[OutboxEntry]) -> Iterator[EntryDifference]:
    """Yield the changed entries by tick, author and kind. Equal entries are paired first."""
    sides = [_group_by_position(old_entries), _group_by_position(new_entries)]
    for position in sorted({*sides[0], *sides[1]}):
        old, new = (side.get(position, []) for side in sides)
        shared = [content for content in old if content in new]
        remaining = [_subtract(entries, shared) for entries in (old, new)]
        for old_content, new_content in zip_longest(*remaining):
            yield EntryDifference(
                *position,
                old_content,
                new_content,
                "\n".join(_diff_lines(_entry_text(old_content), _entry_text(new_content))),
            )


Place = tuple[int, str, str]


def _group_by_position(entries: Iterable[OutboxEntry]) -> dict[Place, list[Json]]:
    groups: dict[Place, list[Json]] = {}
    for entry in entries:
        content: Json = {"payload": entry.payload, "tags": entry.tags}
        groups.setdefault((entry.tick, entry.agent, entry.kind), []).append(content)
    return groups


def _subtract(entries: list[Json], shared: list[Json]) -> list[Json]:
    remaining, unmatched = [], [*shared]
    for content in entries:
        if content in unmatched:
            unmatched.remove(content)
        else:
            remaining.append(content)
    return remaining


def _entry_text(content: Json | None) -> str:
    """Return the text of an entry for a diff, or the whole entry if there is more than the text."""
    if content is None:
        return ""
    text = content["payload"].get("text")
    is_all = isinstance(text, str) and len(content["payload"]) == 1 and not content["tags"]
    return str(text) if is_all else dump_pretty(content).decode()


def _diff_lines(old_text: str, new_text: str) -> list[str]:
    lines = list(unified_diff(old_text.splitlines(), new_text.splitlines(), lineterm="", n=0))[2:]
    return [line for line in lines if not line.startswith("@@")]


def _iter_entries(base: OrgPath, span: range | TickRange | None) -> Iterator[OutboxEntry]:
    for author in filter(paths.AGENT_NAME.match, list_agent_folders(base)):
        for name in list_outbox(base, author):
            if span is None or name.tick in span:
                with suppress(ConfigError, FileNotFoundError):
                    yield read_entry(base, name)


def _diff_json_file(file: str, old_raw: bytes | None, new_raw: bytes | None) -> Iterator[ValueDifference]:
    """Yield the differences of a JSON file value by value, or a single difference if a side is not JSON."""
    if old_raw == new_raw:
        return
    try:
        documents = [None if raw is None else parse(raw, allow_bom=True) for raw in (old_raw, new_raw)]
    except JsonProblem:
        yield ValueDifference(file, "", "(not JSON)", "(not JSON)")
        return
    for pointer, old_value, new_value in _diff_values(documents[0], documents[1], ""):
        yield ValueDifference(file, pointer, old_value, new_value)


def _diff_values(old_value: Any, new_value: Any, pointer: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old_value, dict) and isinstance(new_value, dict):
        for key in sorted({*old_value, *new_value}):
            child_pointer = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
            yield from _diff_values(old_value.get(key), new_value.get(key), child_pointer)
    elif old_value != new_value:
        yield pointer, old_value, new_value


def _diff_other_files(old_base: OrgPath, new_base: OrgPath, all_files: set[str]) -> Iterator[FileChange]:
    """Yield the changes of the other files: memories, workspaces, shared files."""
    for file in sorted(all_files):
        parts = file.split("/")
        if parts[0] == "agents" and len(parts) > 2 and parts[2] in ("outbox", "turns.jsonl", "channel.jsonl"):
            continue
        change, _ = diff_file(file, load_current_file(old_base, file), load_current_file(new_base, file))
        if change:
            yield change


_COST_FIELDS = ("turns", "credits", "cost_usd", "input_tokens", "output_tokens")


def _diff_spending(name: str, old_base: OrgPath, new_base: OrgPath) -> SpendingDifference | None:
    sides = []
    for base in (old_base, new_base):
        try:
            state = read_state(base, name)
        except CorruptState:
            return None
        sides.append({key: getattr(state, key) for key in _COST_FIELDS})
    return SpendingDifference(name, *sides) if sides[0] != sides[1] else None
