"""Renames of agents between two turns, inferred from a reader's read marks, because no journal records a rename.

A rename gives the author's tick to the new name, and lists the author's shown entries under the new name, too
(`ReadMark.rename_author`). Nothing else changes a mark between two turns.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.messages import parse_identities


def rename_authors(read: Json, later: Json, names: Collection[str], later_names: Collection[str]) -> dict[str, Any]:
    """Return a read mark after the renames that explain a later one. Any other difference stays.

    `names` and `later_names`: the agents in the plans of the two ticks.
    """
    mark, later_mark = ReadMark.from_json(read), ReadMark.from_json(later)
    old_names = _match_ticks(mark, later_mark, names, later_names)
    marks = {author: tick for author, tick in mark.through.items() if author not in {*old_names, *old_names.values()}}
    through = {**marks, **{new: mark.through[old] for new, old in old_names.items()}}
    authors = {*names, *old_names.values()}
    shown = {identity for identity in later_mark.also - mark.also if _was_shown(mark, identity, authors)}
    return ReadMark(through, mark.also | shown, mark.unusable).as_json()


def _match_ticks(
    mark: ReadMark, later: ReadMark, names: Collection[str], later_names: Collection[str]
) -> dict[str, str]:
    """Return the old names of renamed authors by their new names. The tick of both is the same.

    The old name has left the plan, or the new name has come. A name of a former agent may be used again.
    """
    authors = sorted(
        {*later.through} - {"*"}, key=lambda author: (later.through[author] == mark.through.get(author), author)
    )
    old_ticks = {author: tick for author, tick in sorted(mark.through.items()) if later.through.get(author) != tick}
    old_ticks.pop("*", None)
    is_only_fewer = {*names}.issuperset(later_names)
    old_names: dict[str, str] = {}
    for new in authors:
        tick = later.through[new]
        if mark.through.get(new) == tick and new in names and not is_only_fewer:
            continue
        matches = [old for old in old_ticks if old_ticks[old] == tick and (new not in names or old not in later_names)]
        if matches and (new not in names or new in mark.through):
            old_names[new] = matches[0]
            del old_ticks[matches[0]]
    return old_names


def _was_shown(mark: ReadMark, identity: str, authors: Collection[str]) -> bool:
    """Return True if an entry was shown under the name of one of these authors.

    An engine's id follows from the author's name, so the entry of another author with this id is no accident.
    """
    stem = identity.partition("/")[2]
    return any(map(mark.has_seen, parse_identities([f"{author}/{stem}" for author in authors])))
