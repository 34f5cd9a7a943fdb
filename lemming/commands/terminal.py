"""Output of commands: the only module with access to the terminal.

Data goes to standard output, notices go to standard error; colours only to a terminal. Printed text may come
from models, untrusted senders and file names. So this module, not its callers, removes secrets and unsafe
terminal characters.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Literal, TextIO

from lemming.libraries.invisible_text import INVISIBLE
from lemming.libraries.wording import format_count as format_count
from lemming.libraries.wording import format_usd as format_usd
from lemming.libraries.wording import join_names as join_names
from lemming.libraries.wording import shorten_line
from lemming.libraries.wording import to_text as to_text

Style = Literal["bold", "dim", "red", "green", "yellow", "plain"]

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_FILE_WIDTH = 160
_MIN_COLUMN_WIDTH = 16
_TERMINAL_UPDATE_S, _LOG_UPDATE_S = 0.1, 5.0

# Marks of a style until the text is written: no foreign text can contain the mark of this process.
_MARK = os.urandom(8).hex()
_STYLED = re.compile(f"\0{_MARK}([0-9]+)\0")
_CLEAR_LINE = "\r\033[K"


class OutputClosed(Exception):
    """The reader of the output has closed the pipe: `lemming ... | head`."""


@dataclass
class _Mode:
    """The reader of the output: a program (`--json`) or a person, who may want errors only (`--quiet`)."""

    as_json: bool = False
    quiet: bool = False


_MODE = _Mode()


@contextlib.contextmanager
def output_mode(*, as_json: bool, quiet: bool = False) -> Iterator[None]:
    """Choose the reader for the length of a block.

    A program gets objects, a person gets texts and tables. So a command prints both, and only one of them appears.
    Notices are for a person without `--quiet`; warnings and errors are for everybody.
    """
    former = _MODE.as_json, _MODE.quiet
    _MODE.as_json, _MODE.quiet = as_json, quiet
    try:
        yield
    finally:
        _MODE.as_json, _MODE.quiet = former


def is_for_program() -> bool:
    """Return True if objects are printed."""
    return _MODE.as_json


def has_person() -> bool:
    """Return True if notices are printed."""
    return not (_MODE.as_json or _MODE.quiet)


def can_ask() -> bool:
    """Return True if a person can answer a question here."""
    return not _MODE.as_json and sys.stdin.isatty() and sys.stderr.isatty()


def print_data(text: str = "") -> None:
    """Print a line of data for a person. Line breaks become spaces, except for leading empty lines."""
    if not _MODE.as_json:
        _write_line(text, sys.stdout)


def print_text(text: str) -> None:
    """Print a text of several lines for a person."""
    if not _MODE.as_json:
        _write_text(f"{_sanitize_output(text)}\n", sys.stdout)


def print_json(kind: str, facts: Mapping[str, Any]) -> None:
    """Print an object for a program."""
    if _MODE.as_json:
        print_object(kind, facts)


def print_object(kind: str, facts: Mapping[str, Any]) -> None:
    """Print an object on one line for everybody, preceded by version and type."""
    print_raw_json({"v": 1, "type": kind, **facts})


def print_raw_json(document: Mapping[str, Any]) -> None:
    """Print an object of another program's format on one line for everybody."""
    from lemming.kernel.base.jsontext import dump_compact

    _print_json_text(document, dump_compact, "\n")


def print_pretty_json(document: Any) -> None:
    """Print indented JSON for a person."""
    from lemming.kernel.base.jsontext import dump_pretty

    if not _MODE.as_json:
        _print_json_text(document, dump_pretty, "")


def print_notice(text: str = "", *, style: Style = "plain") -> None:
    """Print a line for a person on standard error, unless they want errors only."""
    if has_person():
        print_warning(text, style=style)


def print_warning(text: str, *, style: Style = "yellow") -> None:
    """Print a line for everybody on standard error."""
    _write_line(style_text(text, style, sys.stderr), sys.stderr)


def print_on_last_line(text: str = "") -> None:
    """Replace the last line of a terminal and leave the cursor there; without a text, clear the line."""
    _write_text(f"{_CLEAR_LINE}{_sanitize_output(text)}", sys.stderr)


@contextlib.contextmanager
def report_progress(verb: str) -> Iterator[Callable[[str], None]]:
    """Give a function for reporting progress: on the last line of a terminal, else every few seconds."""
    is_terminal, last = sys.stderr.isatty(), time.perf_counter()

    def progress(detail: str) -> None:
        nonlocal last
        if time.perf_counter() - last >= (_TERMINAL_UPDATE_S if is_terminal else _LOG_UPDATE_S):
            last = time.perf_counter()
            (print_on_last_line if is_terminal else print_notice)(f"{verb} {detail} ...")

    yield progress
    if is_terminal:
        print_on_last_line()


@contextlib.contextmanager
def show_progress_bar(verb: str) -> Iterator[Callable[[str, int, int], None]]:
    """Give a function for drawing a progress bar on a terminal; elsewhere the function does nothing."""
    with report_progress(verb) as progress:

        def draw(detail: str, done: int, total: int) -> None:
            progress(f"{detail} [{'#' * (20 * done // max(total, 1)):<20}] {done} of {total}")

        yield draw if sys.stderr.isatty() else lambda *_: None


@contextlib.contextmanager
def open_full_screen() -> Iterator[Callable[[Sequence[str]], None]]:
    """Use the whole terminal for a block, then restore it. The yielded function draws lines, cut to the width."""

    def draw(lines: Sequence[str]) -> None:
        drawn = [_sanitize_output(line).replace("\n", " ") + "\033[0m\033[K" for line in lines]
        _write_text("\033[H" + "\r\n".join(drawn) + "\033[J", sys.stdout)

    _write_text("\033[?1049h\033[?25l\033[?7l", sys.stdout)  # another screen, no cursor, no wrapping
    try:
        yield draw
    finally:
        _write_text("\033[?7h\033[?25h\033[?1049l", sys.stdout)


def style_text(text: str, style: Style, stream: TextIO | None = None) -> str:
    """Return the text in a style if the stream (default: standard output) shows colours."""
    stream = stream or sys.stdout
    environment = os.environ  # a terminal gets colours, unless NO_COLOR is set
    shows_colour = environment.get("FORCE_COLOR") or (stream.isatty() and environment.get("TERM") != "dumb")
    if style not in _CODES or not text or environment.get("NO_COLOR") or not shows_colour:
        return text
    return f"\0{_MARK}{_CODES[style]}\0{text}\0{_MARK}0\0"


def get_terminal_width(stream: TextIO) -> int:
    """Return the maximum line length: the terminal's width, or a fixed width for files."""
    return shutil.get_terminal_size().columns if stream.isatty() else _FILE_WIDTH


def one_line(text: str, width: int = _FILE_WIDTH) -> str:
    """Return foreign text on one line, without control characters, cut to a width.

    >>> one_line("two\\n lines\\x1b[2J", 40)
    'two lines?[2J'
    """
    return shorten_line(sanitize_text(" ".join(text.split())), width)


def sanitize_text(text: str) -> str:
    """Return text that cannot control a terminal: control, format and invisible characters become "?".

    Line breaks and tabs are kept; other spaces become plain spaces.

    >>> sanitize_text("a\\x9b2J\\u202eb\\u3000c")
    'a?2J?b c'
    """
    if text.isascii() and text.isprintable():
        return text
    return INVISIBLE.sub("?", "".join(map(_sanitize_char, text)))


def _sanitize_char(letter: str) -> str:
    if letter.isprintable() or letter in "\n\t":
        return letter
    import unicodedata

    return " " if unicodedata.category(letter) == "Zs" else "?"


def _sanitize_output(text: str) -> str:
    """Return text for output: foreign text sanitized, own styles converted to terminal codes."""
    from lemming.kernel.base.redaction.secrets import redact_values  # `--help` shows no foreign text

    parts = _STYLED.split(redact_values(text))
    parts[::2] = map(sanitize_text, parts[::2])
    parts[1::2] = (f"\033[{code}m" for code in parts[1::2])
    return "".join(parts)


def _write_line(text: str, stream: TextIO) -> None:
    line = text.lstrip("\n")
    _write_text("\n" * (len(text) - len(line)) + _sanitize_output(line).replace("\n", " ") + "\n", stream)


def _print_json_text(document: Any, serialize: Any, end: str) -> None:
    from lemming.libraries.output_files import without_secrets

    text = without_secrets(document, serialize).decode()
    if not text.isascii():  # invisible characters become equivalent escapes
        text = "".join(map(_escape_json_char, text))
    _write_text(text.replace("\x7f", "\\u007f") + end, sys.stdout)


def _escape_json_char(letter: str) -> str:
    if letter == "\n" or (letter.isprintable() and not INVISIBLE.match(letter)):
        return letter
    return re.sub("(....)", r"\\u\1", letter.encode("utf-16-be", "surrogatepass").hex())


def _write_text(text: str, stream: TextIO) -> None:
    """Write text immediately. Raises `OutputClosed` if the reader is gone."""
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):  # EIO: the terminal was closed
            raise
        raise OutputClosed from error


def print_truncated(text: str, style: Style = "plain") -> None:
    """Print a line of data in a style; on a terminal, cut to the width."""
    limit = get_terminal_width(sys.stdout)
    is_cut = sys.stdout.isatty() and len(text) > limit
    print_data(style_text(text[: limit - 1] + "…" if is_cut else text, style))


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    widths: Sequence[int] = (),
    styles: Iterable[Style] = (),
) -> None:
    """Print aligned columns with headings; on a terminal, the widest columns are cut until the rows fit.

    `widths`: most characters of each column. `styles`: style of each row.
    """
    lines = align_columns([headings, *rows], widths)
    print_text("\n".join(map(style_text, lines, chain[Style](["bold"], styles, repeat("plain")))))


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns without headings, cut like tables."""
    if rows:
        print_text("\n".join(align_columns(rows)))


def align_columns(rows: Sequence[Sequence[str]], max_widths: Sequence[int] = (), width: int = 0) -> list[str]:
    """Return rows as lines of aligned columns, cut to the terminal or a width; the last column may be wider."""
    max_widths = max_widths or [_FILE_WIDTH] * len(rows[0])

    def clean(cell: str, max_width: int) -> str:
        return " " * (len(cell) - len(cell.lstrip(" "))) + one_line(cell, max_width)  # the indent of a tree

    def pad(cell: str, column_width: int) -> str:
        return (cell if len(cell) <= column_width else f"{cell[: column_width - 1]}…").ljust(column_width)

    cells = [[*map(clean, row, max_widths)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if not width and sys.stdout.isatty() and max_widths[-1] <= _FILE_WIDTH:
        width = get_terminal_width(sys.stdout)
    while width and sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > _MIN_COLUMN_WIDTH:
        widths[widths.index(max(widths))] -= 1
    lines = ["  ".join(map(pad, row, widths)).rstrip() for row in cells]
    return [f"{line[: width - 1]}…" if width and len(line) > width else line for line in lines]


def describe_totals(totals: Mapping[str, Any]) -> str:
    """Describe the totals of a tick or of a turn in words."""
    statuses = ("done", "waiting", "skipped", "failed")
    parts = [f"{totals[status]} {status}" for status in statuses if totals.get(status)]
    if isinstance(totals["entries"], int):
        parts.append(format_count(totals["entries"], "entry", "entries"))
    parts += [format_count(totals["calls"], "call"), format_count(totals["credits"], "credit")]
    parts.append(f"{totals['input_tokens']:,} tokens in, {totals['output_tokens']:,} out")
    parts.append(format_usd(totals["cost_usd"], calls=totals["calls"]))
    if duration := totals.get("duration_ms"):
        parts.append(f"{duration / 1000:.1f}s")
    return ", ".join(parts)


def format_duration(seconds: float) -> str:
    """Format a duration for people.

    >>> [format_duration(seconds) for seconds in (4.4, 75, 3600, 9000)]
    ['4 s', '75 s', '60 min', '2.5 h']
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
