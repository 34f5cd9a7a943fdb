"""`lemming why`: where an entry, a memory or a file came from."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated

import typer

from lemming.commands.options import AsJson
from lemming.commands.org import find_org
from lemming.commands.screen import one_line, painted, show, show_json, tell
from lemming.timeline.things import Thing
from lemming.timeline.why import explain, sources
from lemming.timeline.writings import Writings

LINES_ON_A_SCREEN = 40
UNFOLDED = 5
_CUTS = {
    "depth": "--depth goes further back",
    "told": "told elsewhere",
    "full": "the tree is full; ask for this by its name",
}


def why(
    ctx: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="An entry's id, a file, or AGENT/memory/KEY.")
    ],
    depth: Annotated[
        int, typer.Option("--depth", min=1, max=100, metavar="N", help="How many turns to go back.")
    ] = 3,
    as_json: AsJson = False,
) -> None:
    """Show which turn wrote something, what that turn could see, and back through those to where they
    came from.

    What people wrote, or changed by hand, ends a branch. This tells what a turn could see and what it wrote;
    it does not claim that the one caused the other.

    \b
    Examples:
      lemming why 3fa9c1d2e0b7
      lemming why editor/memory/goal --depth 1
      lemming why agents/editor/workspace/notes.txt --json | jq .target.turn.saw
    """
    base = find_org(ctx)
    writings = Writings(base)
    found = explain(writings, target, depth=depth)
    damaged = sorted(writings.damaged)
    if as_json:
        ends = [
            {**thing.as_json(), "seen_in": turn.tick, "seen_by": turn.agent} for thing, turn in sources(found)
        ]
        show_json("why", {"target": found.as_json(), "sources": ends, "unreadable_ticks": damaged})
        return
    lines = list(_lines(found, ""))
    for line in lines:
        show(line)
    if len(lines) > LINES_ON_A_SCREEN:
        _show_sources(found)
    if damaged:
        ticks = ", ".join(map(str, damaged))
        tell(f"the journals of tick {ticks} cannot be read; `lemming repair` says more", style="yellow")


def _show_sources(root: Thing) -> None:
    """Repeat what ends the branches of a long tree: what people wrote, or may have written."""
    ends = sources(root)
    if ends:
        show(f"\n{painted('not written by a turn', 'bold')}")
    for thing, turn in ends:
        seen = painted(f"(seen by {turn.agent} in tick {turn.tick})", "dim")
        show(f"   {_head(thing)}  {one_line(thing.text, 160)}  {seen}")


def _lines(thing: Thing, margin: str) -> Iterator[str]:
    line = f"{_head(thing)}  {one_line(thing.text, 160)}".rstrip()
    if thing.turn is None:
        yield f"{line}  {painted(_cut(thing), 'dim')}".rstrip()
        return
    yield line
    seen = thing.turn.saw
    more = ", which could see:" if seen else ", which could see nothing but its instructions"
    yield f"{margin}   {painted(_written(thing) + more, 'dim')}"
    folded = _folded(seen)
    shown = [one for one in seen if id(one) not in folded]
    for number, one in enumerate(shown, 1):
        is_last = number == len(shown) and not folded
        inner = margin + ("      " if is_last else "   │  ")
        first, *rest = _lines(one, inner)
        yield f"{margin}   {'└─' if is_last else '├─'} {first}"
        yield from rest
    if folded:
        yield f"{margin}   └─ {painted(_told_of(folded.values()), 'dim')}"


def _folded(seen: list[Thing]) -> dict[int, Thing]:
    """Return the entries of turns that are not told here, when they are many: a turn sees old ones again."""
    entries = {id(one): one for one in seen if one.what == "entry" and one.cut and not one.remark}
    return entries if len(entries) > UNFOLDED else {}


def _told_of(folded: Collection[Thing]) -> str:
    authors = ", ".join(sorted({one.author for one in folded}))
    ticks = [one.moment[0] for one in folded if one.moment]
    further = "; --depth goes further back" if any(one.cut == "depth" for one in folded) else ""
    span = f"ticks {min(ticks)} to {max(ticks)}"
    return f"{len(folded)} more entries of {authors}, {span}: told elsewhere, or not at all{further}"


def _head(thing: Thing) -> str:
    author = f" of {thing.author}" if thing.what == "entry" and thing.author else ""
    remark = f"  [{painted(thing.remark, 'yellow')}]" if thing.remark else ""
    return f"{painted(f'{thing.what} {one_line(thing.name, 120)}', 'bold')}{author}{remark}"


def _written(thing: Thing) -> str:
    if thing.turn is None or thing.moment is None:
        return ""
    verb = "asked for" if thing.what == "result" and not thing.path else "written"
    when = thing.turn.at[:19].replace("T", " ")
    return f"{verb} by {thing.author} in tick {thing.moment[0]}, {when}"


def _cut(thing: Thing) -> str:
    if thing.moment is None:
        return ""
    author = "" if thing.what == "entry" else thing.author
    parts = [author, f"tick {thing.moment[0]}", _CUTS.get(thing.cut, "")]
    return f"({', '.join(filter(None, parts))})"
