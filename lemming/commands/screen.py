"""What commands print. Data goes to standard output, talk to standard error; colour only to a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TextIO

Style = Literal["bold", "dim", "red", "green", "yellow", "plain"]

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_WIDTH_OF_A_FILE = 160


class ReaderGone(Exception):
    """Whoever read our output has stopped: `lemming ... | head`."""


def show(text: str = "") -> None:
    """Print data."""
    write(f"{text}\n", sys.stdout)


def show_json(kind: str, plain: Mapping[str, Any]) -> None:
    """Print one object on one line, with its version and its type in front."""
    from lemming.jsontext import compact

    show(compact({"v": 1, "type": kind, **plain}).decode())


def show_pretty(plain: Any) -> None:
    """Print JSON for people: several lines, indented."""
    from lemming.jsontext import pretty

    write(pretty(plain).decode(), sys.stdout)


def tell(text: str = "", *, style: Style = "plain") -> None:
    """Say something to the person at the keyboard."""
    write(f"{painted(text, style, sys.stderr)}\n", sys.stderr)


def write(text: str, stream: TextIO) -> None:
    """Write text at once; raise `ReaderGone` when nobody is there to take it."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError as error:
        raise ReaderGone from error


def painted(text: str, style: Style, stream: TextIO | None = None) -> str:
    """Return the text in a style if the stream (default: standard output) shows colours."""
    stream = stream or sys.stdout
    if style not in _CODES or not text or not has_colour(stream):
        return text
    return f"\033[{_CODES[style]}m{text}\033[0m"


def has_colour(stream: TextIO) -> bool:
    """Return whether a stream gets colours: a terminal does, unless NO_COLOR is set."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def width_of(stream: TextIO) -> int:
    """Return how many characters a line may have: the terminal's width, or plenty for a file."""
    return shutil.get_terminal_size().columns if stream.isatty() else _WIDTH_OF_A_FILE


def one_line(text: str, width: int = _WIDTH_OF_A_FILE) -> str:
    """Return foreign text on one line, without control characters, cut to a width.

    >>> one_line("two\\n lines\\x1b[2J", 40)
    'two lines?[2J'
    """
    line = printable(" ".join(text.split()))
    return line if len(line) <= width else line[: max(width - 1, 0)].rstrip() + "…"


def printable(text: str) -> str:
    """Return text that cannot steer a terminal: control characters become question marks.

    Line ends and tabs stay.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)


def show_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print aligned columns; on a terminal the last one is cut to fit."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    show(painted(_row(headings, widths), "bold"))
    for row in cells:
        show(_row(row, widths))


def counted(number: int | float, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    >>> counted(1, "entry", "entries"), counted(2.5, "credit")
    ('1 entry', '2.5 credits')
    """
    return f"{number:g} {noun if number == 1 else plural or noun + 's'}"


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells[:-1], widths[:-1], strict=True)]
    line = "  ".join([*padded, cells[-1]]).rstrip()
    limit = width_of(sys.stdout)
    return line if len(line) <= limit or not sys.stdout.isatty() else line[: limit - 1] + "…"
