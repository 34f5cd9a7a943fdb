"""Differences between the entries of two records of the same ticks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from difflib import unified_diff
from itertools import zip_longest

from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files.field_types import Json
from lemming.kernel.messages import OutboxEntry


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


def diff_entries(old_entries: Iterable[OutboxEntry], new_entries: Iterable[OutboxEntry]) -> Iterator[EntryDifference]:
    """Yield the changed entries by tick, author and kind. Equal entries are paired first."""
    sides = [_group_by_position(old_entries), _group_by_position(new_entries)]
    for position in sorted({*sides[0], *sides[1]}):
        old, new = (side.get(position, []) for side in sides)
        shared = [content for content in old if content in new]
        remaining = [_subtract(entries, shared) for entries in (old, new)]
        for old_content, new_content in zip_longest(*remaining):
            old_lines, new_lines = (_entry_text(content).splitlines() for content in (old_content, new_content))
            lines = list(unified_diff(old_lines, new_lines, lineterm="", n=0))[2:]
            diff = "\n".join(line for line in lines if not line.startswith("@@"))
            yield EntryDifference(*position, old_content, new_content, diff)


def _group_by_position(entries: Iterable[OutboxEntry]) -> dict[tuple[int, str, str], list[Json]]:
    groups: dict[tuple[int, str, str], list[Json]] = {}
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
