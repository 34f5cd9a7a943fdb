"""Styles belong to their part: no class of one part is styled by another, and no state's name alone."""

from __future__ import annotations

import re
from pathlib import Path

STATIC = Path(__file__).parents[2] / "lemming/dashboard/static"
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
PARTS = {path.stem for path in (STATIC / "parts").glob("*.js")}
STATES = frozenset(
    re.findall(
        r"\w+",
        """done waiting failed skipped running working interrupted damaged unfinished committed failing broken
        begun waits paused out_of_credits news due person channel ended not_due nothing_new stopped idle lost
        quiet message report request response status outside unknown full high low added gone place
        agent owner tool""",
    )
)
"""What the engine calls states and kinds: they stand on pills, columns and boxes, as they come."""


def sheet(name: str) -> str:
    return COMMENT.sub("", (STATIC / name).read_text())


def rules(css: str) -> list[tuple[str, str]]:
    """Return the rules at the top of a sheet, each with what is between its braces."""
    found, depth, begin, head = [], 0, 0, ""
    for at, letter in enumerate(css):
        if letter == "{":
            depth += 1
            if depth == 1:
                head, begin = css[begin:at].strip(), at + 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                found.append((head, css[begin:at]))
                begin = at + 1
    return found


def selectors(css: str) -> list[str]:
    """Return every selector of a sheet, those within others and within media rules too."""
    found = []
    for head, body in rules(css):
        found += [] if head.startswith("@") else [each.strip() for each in re.split(r",(?![^(]*\))", head)]
        found += selectors(body)
    return [each for each in found if not re.fullmatch(r"\d+%|from|to", each)]


def test_what_a_part_looks_like_stands_inside_that_part() -> None:
    heads = [head for head, _ in rules(sheet("parts.css"))]
    assert heads
    assert {head.removeprefix(".part-") for head in heads} <= PARTS, heads
    assert len(heads) == len({*heads})


def test_what_all_parts_share_names_no_part() -> None:
    assert ".part-" not in sheet("style.css")


def test_no_state_is_styled_but_on_what_shows_it() -> None:
    alone = [
        selector
        for name in ("style.css", "parts.css")
        for selector in selectors(sheet(name))
        for compound in re.split(r"[\s>+~]+", re.sub(r":[\w-]+(\([^)]*\))?", "", selector))
        if (classes := re.findall(r"\.([\w-]+)", compound)) and STATES.issuperset(classes)
        if not re.match(r"\.(diff|mark|files|problems)\b", selector)
    ]
    assert alone == []
