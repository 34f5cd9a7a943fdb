"""What commands print: the one place where anything reaches the terminal.

Data goes to standard output, talk to standard error; colour only to a terminal. Whatever is printed may hold
texts of models, strangers and file names: here, and not where it is called, they lose what could steer a
terminal or hide in it, and secrets.
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
from typing import Any, Literal, TextIO

from lemming.kernel.base.unseen import INVISIBLE
from lemming.kernel.base.wording import counted as counted

Style = Literal["bold", "dim", "red", "green", "yellow", "plain"]

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_WIDTH_OF_A_FILE = 160
_NARROWEST_COLUMN = 16
_MOVES_EVERY_S, _SAYS_EVERY_S = 0.1, 5.0

# Where a style begins and ends, until the text is written: nobody else can know the mark of this process.
_MARK = os.urandom(8).hex()
_STYLED = re.compile(f"\0{_MARK}([0-9]+)\0")
_CLEAR_LINE = "\r\033[K"


class ReaderGone(Exception):
    """Whoever read our output has stopped: `lemming ... | head`."""


def show(text: str = "") -> None:
    """Print a line of data. Line ends within it, but for empty lines before it, become spaces."""
    _write_line(text, sys.stdout)


def show_text(text: str) -> None:
    """Print a text of several lines."""
    _write(f"{_safe(text)}\n", sys.stdout)


def show_json(kind: str, plain: Mapping[str, Any]) -> None:
    """Print one object on one line, with its version and its type in front."""
    from lemming.kernel.base.jsontext import compact

    _show_json({"v": 1, "type": kind, **plain}, compact, "\n")


def show_as_it_is(plain: Mapping[str, Any]) -> None:
    """Print one object of another program's format on one line."""
    from lemming.kernel.base.jsontext import compact

    _show_json(plain, compact, "\n")


def show_pretty(plain: Any) -> None:
    """Print JSON for people: several lines, indented."""
    from lemming.kernel.base.jsontext import pretty

    _show_json(plain, pretty, "")


def tell(text: str = "", *, style: Style = "plain") -> None:
    """Say something to the person at the keyboard, on a line."""
    _write_line(painted(text, style, sys.stderr), sys.stderr)


def tell_text(text: str) -> None:
    """Say something of several lines to the person at the keyboard."""
    _write(f"{_safe(text)}\n", sys.stderr)


def tell_on_last_line(text: str = "") -> None:
    """Replace what stands on the last line of a terminal, and stay there; without a text, clear it."""
    _write(f"{_CLEAR_LINE}{_safe(text)}", sys.stderr)


@contextlib.contextmanager
def told_as_it_goes(verb: str) -> Iterator[Callable[[str], None]]:
    """Give what says how far a block has come: on a terminal in its last line, else every few seconds."""
    is_terminal, last = sys.stderr.isatty(), time.perf_counter()

    def progress(what: str) -> None:
        nonlocal last
        if time.perf_counter() - last >= (_MOVES_EVERY_S if is_terminal else _SAYS_EVERY_S):
            last = time.perf_counter()
            (tell_on_last_line if is_terminal else tell)(f"{verb} {what} ...")

    yield progress
    if is_terminal:
        tell_on_last_line()


@contextlib.contextmanager
def bar(verb: str) -> Iterator[Callable[[str, int, int], None]]:
    """Give what says on a terminal how much of something is done, out of how much; elsewhere nothing is."""
    with told_as_it_goes(verb) as progress:

        def draw(what: str, done: int, total: int) -> None:
            progress(f"{what} [{'#' * (20 * done // max(total, 1)):<20}] {done} of {total}")

        yield draw if sys.stderr.isatty() else lambda *_: None


@contextlib.contextmanager
def whole_screen() -> Iterator[Callable[[Sequence[str]], None]]:
    """Take the whole terminal for a block; what this gives draws lines from its top, cut at its right side.

    What stood there before comes back when the block ends.
    """

    def draw(lines: Sequence[str]) -> None:
        drawn = [_safe(line).replace("\n", " ") + "\033[0m\033[K" for line in lines]
        _write("\033[H" + "\r\n".join(drawn) + "\033[J", sys.stdout)

    _write("\033[?1049h\033[?25l\033[?7l", sys.stdout)  # another screen, no cursor, no wrapping
    try:
        yield draw
    finally:
        _write("\033[?7h\033[?25h\033[?1049l", sys.stdout)


def painted(text: str, style: Style, stream: TextIO | None = None) -> str:
    """Return the text in a style if the stream (default: standard output) shows colours."""
    stream = stream or sys.stdout
    if style not in _CODES or not text or not has_colour(stream):
        return text
    return f"\0{_MARK}{_CODES[style]}\0{text}\0{_MARK}0\0"


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
    """Return text that cannot steer a terminal: control, format and invisible characters become "?".

    Line ends and tabs stay; other spaces become plain ones.

    >>> printable("a\\x9b2J\\u202eb\\u3000c")
    'a?2J?b c'
    """
    if text.isascii() and text.isprintable():
        return text
    return INVISIBLE.sub("?", "".join(map(_printable, text)))


def _printable(letter: str) -> str:
    if letter.isprintable() or letter in "\n\t":
        return letter
    import unicodedata

    return " " if unicodedata.category(letter) == "Zs" else "?"


def _safe(text: str) -> str:
    """Return what may be written: foreign text made harmless, our own styles as the terminal knows them."""
    from lemming.kernel.base.redaction.secrets import redact_values  # `--help` says nothing of anybody's

    parts = _STYLED.split(redact_values(text))
    parts[::2] = map(printable, parts[::2])
    parts[1::2] = (f"\033[{code}m" for code in parts[1::2])
    return "".join(parts)


def _write_line(text: str, stream: TextIO) -> None:
    line = text.lstrip("\n")
    _write("\n" * (len(text) - len(line)) + _safe(line).replace("\n", " ") + "\n", stream)


def _show_json(plain: Any, write: Any, end: str) -> None:
    from lemming.kernel.files.outputs import without_secrets

    text = without_secrets(plain, write).decode()
    if not text.isascii():
        text = "".join(map(_escaped, text))
    _write(text.replace("\x7f", "\\u007f") + end, sys.stdout)


def _escaped(letter: str) -> str:
    """Return a character as JSON may show it: what is not seen as an escape, which stands for the same."""
    if letter == "\n" or (letter.isprintable() and not INVISIBLE.match(letter)):
        return letter
    return re.sub("(....)", r"\\u\1", letter.encode("utf-16-be", "surrogatepass").hex())


def _write(text: str, stream: TextIO) -> None:
    """Write text at once; raise `ReaderGone` when nobody is there to take it."""
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):  # EIO: the terminal was closed
            raise
        raise ReaderGone from error


def show_cut(text: str, style: Style = "plain") -> None:
    """Print a line of data in a style; on a terminal, cut to its width."""
    show(painted(_cut(text), style))


def _cut(text: str) -> str:
    limit = width_of(sys.stdout)
    return text[: limit - 1] + "…" if sys.stdout.isatty() and len(text) > limit else text


def show_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print aligned columns; on a terminal the widest are cut so that all fit."""
    first, *others = map(_cut, _aligned([headings, *rows]))
    show_text("\n".join((painted(first, "bold"), *others)))


def show_list(
    kind: str, found: Sequence[Any], columns: Mapping[str, Any], *, as_json: bool, nothing: str = ""
) -> None:
    """Print facts: a line each in a table, where there are any, else `nothing`; with --json an object each.

    A column holds an attribute or a key of each, or what a function says of it. The object of a fact is what
    its `as_json` gives, or its fields.
    """
    if as_json:
        for each in found:
            show_json(kind, plain_of(each))
    elif found or not nothing:
        show_table([*columns], [[_cell(each, column) for column in columns.values()] for each in found])
    else:
        tell(nothing)


def plain_of(fact: Any) -> Mapping[str, Any]:
    """Return a fact as JSON values."""
    if isinstance(fact, Mapping):
        return fact
    plain: Mapping[str, Any] = fact.as_json() if hasattr(fact, "as_json") else vars(fact)
    return plain


def _cell(fact: Any, column: Any) -> str:
    if callable(column):
        return str(column(fact))
    value = fact[column] if isinstance(fact, Mapping) else getattr(fact, column)
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def show_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns without headings, cut in the same way."""
    if rows:
        show_text("\n".join(map(_cut, _aligned(rows))))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    limit = width_of(sys.stdout) - 2 * (len(widths) - 1)
    while sys.stdout.isatty() and sum(widths) > limit and max(widths) > _NARROWEST_COLUMN:
        widths[widths.index(max(widths))] -= 1
    return ["  ".join(map(_fitted, row, widths)).rstrip() for row in cells]


def _fitted(cell: str, width: int) -> str:
    return (cell if len(cell) <= width else one_line(cell, width)).ljust(width)


def in_dollars(amount: float | None, *, calls: int = 1, unpriced: int = 0) -> str:
    """Return what calls cost; None: no price is known. Of `unpriced` calls beside them none is.

    >>> in_dollars(0.003), in_dollars(0.003, unpriced=2), in_dollars(None), in_dollars(None, calls=0)
    ('$0.0030', '$0.0030 or more', '$ unknown', '-')
    """
    if amount is None:
        return "$ unknown" if calls else "-"
    return f"${amount:.4f}{' or more' if unpriced else ''}"


def totals_in_words(totals: Mapping[str, Any]) -> str:
    """Return what a tick, or one of its turns, came to."""
    statuses = ("done", "waiting", "skipped", "failed")
    parts = [f"{totals[status]} {status}" for status in statuses if totals.get(status)]
    if isinstance(totals["entries"], int):
        parts.append(counted(totals["entries"], "entry", "entries"))
    parts += [counted(totals["calls"], "call"), counted(totals["credits"], "credit")]
    parts.append(f"{totals['input_tokens']:,} tokens in, {totals['output_tokens']:,} out")
    parts.append(in_dollars(totals["cost_usd"], calls=totals["calls"]))
    if duration := totals.get("duration_ms"):
        parts.append(f"{duration / 1000:.1f}s")
    return ", ".join(parts)


def as_text(value: Any) -> str:
    """Return a text as it is, and any other value as JSON on one line."""
    from lemming.kernel.base.jsontext import compact

    return value if isinstance(value, str) else compact(value).decode()
