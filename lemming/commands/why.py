"""`lemming why`: where an entry, a memory or a file came from."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from typing import Annotated

from lemming.commands.options import Here, argument, option
from lemming.commands.screen import one_line, painted, show, tell, told_as_it_goes, width_of
from lemming.facts.views.why import facts_of
from lemming.timeline.why.explain import explain, keep_only, sources
from lemming.timeline.why.things import Thing
from lemming.timeline.why.trusted import TrustStep, way_of
from lemming.timeline.why.writings import Writings

LINES_ON_A_SCREEN = 40
UNFOLDED = 5
NARROWEST = 40
_CUTS = {
    "depth": "--depth goes further back",
    "told": "its turn is told elsewhere",
    "full": "the tree is full; ask for this by its name",
}


def why(
    here: Here,
    target: Annotated[str, argument("TARGET", "An entry's id, a file, or AGENT/memory/KEY.")],
    depth: Annotated[int, option("--depth N", "How many turns to go back.", min=1, max=100)] = 3,
    everything: Annotated[
        bool, option("--all", "Show entries again that are told elsewhere in the tree.")
    ] = False,
    grep: Annotated[str, option("--grep TEXT", "Show only the branches that contain a text.")] = "",
) -> None:
    """Show which turn wrote something, what that turn could see, and back through those to where they
    came from.

    What people wrote, or changed by hand, ends a branch. This tells what a turn could see and what it wrote;
    it does not claim that the one caused the other.

    \b
    Examples:
      lemming why 3fa9c1d2e0b7
      lemming why editor/memory/goal --depth 1
      lemming why 3fa9c1d2e0b7 --depth 20 --grep ferry
      lemming why agents/editor/workspace/notes.txt --json | jq .target.turn.saw
    """
    base = here.org
    with told_as_it_goes("looking through") as progress:
        writings = Writings(base, progress)
        found = explain(writings, target, depth=depth)
        way = way_of(writings, found.path)
    if grep and not keep_only(found, grep):
        tell(
            f'nothing in this tree contains "{one_line(grep, 80)}"; --depth goes further back', style="yellow"
        )
    if here.shows("why", facts_of(writings, found, way)):
        return
    lines = [*lines_of(found, everything=everything or bool(grep)), *_trust_lines(way)]
    for line in lines:
        show(line)
    if len(lines) > LINES_ON_A_SCREEN:
        _show_sources(found)
    if writings.damaged:
        ticks = ", ".join(map(str, sorted(writings.damaged)))
        tell(f"the journals of tick {ticks} cannot be read; `lemming repair` says more", style="yellow")


def lines_of(found: Thing, *, everything: bool = False) -> Iterator[str]:
    """Return the lines of a tree, as wide as the screen."""
    tree = _Tree(found, everything=everything, width=max(width_of(sys.stdout), NARROWEST))
    return tree.lines(found, "")


def _trust_lines(way: list[TrustStep]) -> list[str]:
    """Return lines about the way on which something came to be trusted less than what agents write."""
    lines = [painted("trusted less, because of where it came from", "bold")] if way else []
    for step in way:
        wrote = (
            f", of {step.agent}'s turn in tick {step.tick}, because of {step.because}" if step.because else ""
        )
        vouched = f"; vouched for: {', '.join(step.vouched)}" if step.vouched else ""
        lines.append(f"   {one_line(f'{step.what}: {step.trust}{wrote}{vouched}', 400)}")
    return ["", *lines] if lines else []


def _show_sources(root: Thing) -> None:
    """Repeat what ends the branches of a long tree: what people wrote, or may have written."""
    ends = sources(root)
    if ends:
        show(f"\n{painted('not written by a turn', 'bold')}")
    for thing, turn in ends:
        seen = f"(seen by {turn.agent} in tick {turn.tick})"
        show(f"   {_line(thing, max(width_of(sys.stdout), NARROWEST) - 3, seen)}")


class _Tree:
    """A tree as lines of at most `width` characters.

    Where a turn saw many entries that it knew already, those that stand elsewhere in the tree are only
    counted: every entry is on a line of its own at least once.
    """

    def __init__(self, root: Thing, *, everything: bool, width: int) -> None:
        self._width, self._everything = width, everything
        self._shown = {thing.path for thing in _each(root) if not _may_be_folded(thing)}

    def lines(self, thing: Thing, margin: str) -> Iterator[str]:
        """Yield the lines of a thing: the first without its margin, the others with theirs."""
        room = self._width - len(margin)
        if thing.turn is None:
            yield _line(thing, room, _cut(thing))
            return
        yield _line(thing, room)
        seen = thing.turn.saw
        more = ", which could see:" if seen else ", which could see nothing but its instructions"
        yield f"{margin}   {painted(one_line(_written(thing) + more, room - 3), 'dim')}"
        folded = self._folded(seen)
        shown = [one for one in seen if id(one) not in folded]
        for number, one in enumerate(shown, 1):
            is_last = number == len(shown) and not folded
            inner = self._fit(margin + ("      " if is_last else "   │  "))
            first, *rest = self.lines(one, inner)
            yield f"{inner[:-6]}   {'└─' if is_last else '├─'} {first}"
            yield from rest
        if folded:
            yield f"{margin}   └─ {painted(one_line(_folded_line(folded.values()), room - 6), 'dim')}"

    def _fit(self, margin: str) -> str:
        """Return a margin that leaves half of the width: of a deep one the left part is cut away."""
        most = max(self._width // 2 // 6 * 6, 6)
        return margin if len(margin) <= most else margin[-most:]

    def _folded(self, seen: list[Thing]) -> dict[int, Thing]:
        """Return the entries that are counted only, because they stand elsewhere; none when they are few."""
        known = [one for one in seen if _may_be_folded(one)]
        folded = {id(one): one for one in known if one.path in self._shown}
        if self._everything or len(folded) <= UNFOLDED:
            folded = {}
        self._shown.update(one.path for one in known)
        return folded


def _each(root: Thing) -> Iterator[Thing]:
    yield root
    for thing in root.turn.saw if root.turn else ():
        yield from _each(thing)


def _may_be_folded(thing: Thing) -> bool:
    """Return whether this is an entry that its turn knew already, and nothing else is said of it here."""
    return thing.what == "entry" and bool(thing.cut) and not thing.remark and not thing.is_new


def _line(thing: Thing, room: int, cut: str = "") -> str:
    """Return a thing on one line: what it is, who wrote it, what else is known, and as much text as fits."""
    name = one_line(f"{thing.what} {thing.name}", max(room // 2, 20))
    author = f" of {thing.author}" if thing.what == "entry" and thing.author else ""
    remark = one_line(thing.remark, max(room - len(name) - len(author) - 4, 12)) if thing.remark else ""
    fixed = len(name) + len(author) + (len(remark) + 4 if remark else 0)
    text = one_line(thing.text, max(room - fixed - 2 - (len(cut) + 2 if cut else 0), 12))
    parts = [
        f"{painted(name, 'bold')}{author}",
        f"[{painted(remark, 'yellow')}]" if remark else "",
        text,
        painted(cut, "dim"),
    ]
    return "  ".join(filter(None, parts))


def _folded_line(folded: Collection[Thing]) -> str:
    authors = ", ".join(sorted({one.author for one in folded}))
    ticks = [one.moment[0] for one in folded if one.moment]
    further = "; --depth goes further back" if any(one.cut == "depth" for one in folded) else ""
    span = f"ticks {min(ticks)} to {max(ticks)}"
    return f"{len(folded)} more entries of {authors}, {span}: told elsewhere{further}"


def _written(thing: Thing) -> str:
    if thing.turn is None or thing.moment is None:
        return ""
    verb = "asked for" if thing.what == "result" and not thing.path else "written"
    when = thing.turn.at[:19].replace("T", " ")
    short = f", in a turn that was cut short ({thing.turn.cut_short})" if thing.turn.cut_short else ""
    return f"{verb} by {thing.author} in tick {thing.moment[0]}, {when}{short}"


def _cut(thing: Thing) -> str:
    if thing.moment is None:
        return ""
    author = "" if thing.what == "entry" else thing.author
    parts = [author, f"tick {thing.moment[0]}", _CUTS.get(thing.cut, "")]
    return f"({', '.join(filter(None, parts))})"
