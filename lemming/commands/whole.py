"""A text of somebody else's shown whole: nothing is cut, and what would not be seen is told.

A line begins behind "|"; what does not fit into the terminal goes on behind "»". Signs that show nothing, or
change what others show, stand as their numbers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lemming.base.jsontext import pretty
from lemming.base.unseen import notes_on, seen
from lemming.commands.screen import painted, show, width_of

NOT_THERE = "(not there)"
LONGEST_RUN, MOST_EMPTY, NARROWEST = 60, 3, 20
_RUN = re.compile(rf" {{{LONGEST_RUN},}}")


def show_call(call: Mapping[str, Any], asked: Sequence[tuple[str, str]]) -> None:
    """Print a call that waits for approval, all of it; `asked`: who is asked, and until when."""
    show(painted(f"call {call['id']}", "bold"))
    show_folded("tool", call["tool"])
    show_folded("asks because", f"{call['why']} ({call['gate']})")
    for person, until in asked:
        show_folded("asked", f"{person}: {until}")
    for key, value in call["args"].items():
        show(f"argument {_seen(key)}:")
        show_whole(value if isinstance(value, str) else pretty(value).decode().rstrip("\n"))
    if not call["args"]:
        show("no arguments")
    show("the approval is for exactly this, once" + (", and bound to:" if call["binds"] else ""))
    for path, digest in call["binds"].items():
        show_folded("", f"{path} {digest or NOT_THERE}")
    if call.get("unbound"):
        show("NOT bound, and may change before it is made:")
        for line in call["unbound"]:
            show_folded("", line)
    for note in notes_on(call["args"]):
        show_folded("look closely", note)
    if diff := str(call.get("diff") or ""):
        show("what it would write, or is about:")
        show_whole(diff)


def show_whole(text: str) -> None:
    """Print a text, each of its lines folded, and what is not seen in it as numbers."""
    empty = 0
    for line in [*text.split("\n"), None]:
        if line == "":
            empty += 1
            continue
        if empty > MOST_EMPTY:
            show(f"  ⟨{empty:,} empty lines⟩")
        else:
            for _ in range(empty):
                show("  |")
        empty = 0
        if line is not None:
            for number, part in enumerate(_folded(_seen(line), width_of(sys.stdout) - 4)):
                show(f"  {'»' if number else '|'} {part}")


def show_folded(head: str, text: str) -> None:
    """Print a line with a head, folded where the terminal ends."""
    indent = f"{head}  " if head else "  "
    width = width_of(sys.stdout) - len(indent)
    for number, part in enumerate(_folded(_seen(text), width, at_spaces=True)):
        show(f"{indent if not number else ' ' * (len(indent) - 2) + '» '}{part}")


def _seen(text: str) -> str:
    """Return a text in which what is not seen stands as its number, and long gaps as their length."""
    return _RUN.sub(lambda found: f"⟨{len(found[0]):,} spaces⟩", seen(text))


def _folded(text: str, width: int, *, at_spaces: bool = False) -> Iterator[str]:
    width = max(width, NARROWEST)
    while len(text) > width:
        cut = (text.rfind(" ", width // 2, width) + 1 if at_spaces else 0) or width
        yield text[:cut]
        text = text[cut:]
    yield text
