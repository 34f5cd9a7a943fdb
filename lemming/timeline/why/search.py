"""What the bytes of journals tell before they are taken apart: which files they name, if they are whole.

Taking a journal apart costs twenty times as much as looking through its bytes, so that is done only where
these say that it names what is asked for.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lemming.base.jsontext import JsonProblem, compact, parse
from lemming.errors import CorruptState
from lemming.journal.file import raw_journal
from lemming.journal.lines import holds_together
from lemming.org.organisation import OrgPath

_STRING = rb'"((?:[^"\\]|\\.)*)"'
_PATH = re.compile(rb'"path":' + _STRING)
_AHEAD = re.compile(rb'"written_ahead":\[((?:' + _STRING + rb",?)*)\]")
_STRINGS = re.compile(_STRING)
_NAMES_FILES = (b'{"type":"turn_committed"', b'{"type":"tool_finished"')
_TOOL_STARTED = b'{"type":"tool_started"'


class Traces(NamedTuple):
    """What a journal's bytes tell: the paths they name, as JSON writes them, and who began which tool.

    Entries are left out, as their names tell the tick. `is_whole`: each line follows from the one before.
    """

    paths: frozenset[bytes] = frozenset()
    tools: frozenset[tuple[str, str]] = frozenset()
    is_whole: bool = True


class Search:
    """Looks through journals, each once. `damaged`: the ticks of those that were met and are not whole."""

    def __init__(self, base: OrgPath) -> None:
        self._base = base
        self._traces: dict[int, Traces] = {}
        self.damaged: set[int] = set()

    def names_file(self, tick: int, path: str) -> bool:
        """Return whether a journal tells of a write of a file other than an entry, or nobody can say."""
        return compact(path)[1:-1] in self.traces(tick).paths

    def names(self, tick: int, text: str) -> bool:
        """Return whether a text stands anywhere in a journal."""
        return text.encode() in self._raw(tick)

    def traces(self, tick: int) -> Traces:
        """Return what a journal's bytes tell; nothing for one that cannot be read."""
        if tick not in self._traces:
            self._traces[tick] = traces = _traces_in(self._raw(tick))
            if not traces.is_whole:
                self.damaged.add(tick)
        return self._traces[tick]

    def _raw(self, tick: int) -> bytes:
        try:
            return raw_journal(self._base, tick)
        except CorruptState:
            self.damaged.add(tick)
            return b""


def _traces_in(raw: bytes) -> Traces:
    lines = raw.split(b"\n")
    named: set[bytes] = set()
    tools: set[tuple[str, str]] = set()
    for line in lines:
        if line.startswith(_NAMES_FILES):
            named.update(path for path in _PATH.findall(line) if b"/outbox/" not in path)
            for ahead in _AHEAD.finditer(line):
                named.update(_STRINGS.findall(ahead[1]))
        elif line.startswith(_TOOL_STARTED):
            tools.add(_tool_in(line))
    return Traces(frozenset(named), frozenset(tools), holds_together(lines))


def _tool_in(line: bytes) -> tuple[str, str]:
    try:
        plain = parse(line)
        return str(plain["agent"]), str(plain["tool"])
    except (JsonProblem, KeyError, TypeError):  # of a line that is not whole
        return "", ""
