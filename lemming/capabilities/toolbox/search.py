"""`search`: the sections of text files that are most about some words, by SQLite's full-text search.

The index is made in memory from the files for each call, and is never kept. Format of its queries:
sqlite.org/fts5.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

from lemming.capabilities.toolbox.files import ReadsFiles
from lemming.capabilities.toolbox.files_below import Texts
from lemming.kernel.base.deadlines import Deadline
from lemming.kernel.base.errors import ToolError
from lemming.kernel.files.fitting import about
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.context import ToolContext

TIME_LIMIT_S = 10.0
TERMS_LIMIT = 40
RESULTS_LIMIT = 50
_TITLE_WEIGHT = 3.0
_PIECE_CHARS = 4000
_STEPS_BETWEEN_LOOKS = 10_000
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(\S.*)")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_FOLDER = "in"  # which Python keeps for itself


class Section(NamedTuple):
    """A part of a file: its first line, what stands above it, and its text."""

    line: int
    title: str
    text: str


class Search(ReadsFiles):
    """Finds sections of files by words."""

    name = "search"
    description = (
        "Find the sections and paragraphs of text files that are most about some words: path:line, a score, "
        "and a piece of the text, best first."
    )
    place_arguments = (_FOLDER,)

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        schema = super().parameters
        properties = {_FOLDER if key == "folder" else key: it for key, it in schema["properties"].items()}
        return {**schema, "properties": properties}

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by the names that `plan` has for them; raise `ToolError`."""
        return super().check({"folder" if key == _FOLDER else key: it for key, it in arguments.items()})

    def plan(
        self,
        context: ToolContext,
        query: Annotated[str, about("The words.", min_length=1, max_length=1000)],
        folder: Annotated[str, about("A folder or a file; empty: all folders that you may read.")] = "",
        limit: Annotated[int, about("At most so many results, up to 50.", ge=1)] = 10,
    ) -> ToolResult:
        """Return the sections, by score, then path, then place in the file."""
        terms = list(dict.fromkeys(re.findall(r"\w+", query)))[:TERMS_LIMIT]
        if not terms:
            raise ToolError(f"{self.name}: the query has no word")
        texts = Texts(context.staged, context.removed)
        sections = [
            (file.asked.path, section)
            for file, text in texts.of(context.agent, context.base, folder, caller=self.name)
            for section in _sections(file.asked.path, text)
        ]
        found = _ranked(sections, terms)
        lines = [
            f"{path}:{section.line} (score {score:.3f}) {section.title}\n  {snippet}"
            for score, (path, section), snippet in found[: min(limit, RESULTS_LIMIT)]
        ]
        nothing = [] if lines else [f"(nothing about that in {texts.count})"]
        return ToolResult(True, "\n".join([*lines, *nothing, *texts.remarks()]))


Found = list[tuple[float, tuple[str, Section], str]]


def _ranked(sections: list[tuple[str, Section]], terms: list[str]) -> Found:
    """Return the sections that hold one of the terms, each with its score and a piece of its text."""
    import sqlite3  # only where a call is made

    deadline = Deadline(TIME_LIMIT_S)
    index = sqlite3.connect(":memory:")
    try:
        index.set_progress_handler(lambda: deadline.has_passed, _STEPS_BETWEEN_LOOKS)
        index.execute("CREATE VIRTUAL TABLE s USING fts5(title, text, tokenize = 'porter unicode61')")
        rows = ((number, it.title, it.text) for number, (_, it) in enumerate(sections))
        index.executemany("INSERT INTO s (rowid, title, text) VALUES (?, ?, ?)", rows)
        query = " OR ".join(f'"{term}"' for term in terms)  # quoted: what is not is a language of its own
        rows_found = index.execute(
            f"SELECT rowid, -bm25(s, {_TITLE_WEIGHT}, 1.0), snippet(s, 1, '', '', ' ... ', 32) FROM s "  # noqa: S608 - a number of ours
            "WHERE s MATCH ? ",
            (query,),
        ).fetchall()
    except sqlite3.OperationalError as error:
        why = "it took too long: name a folder" if "interrupted" in str(error) else str(error)
        raise ToolError(f"{Search.name}: {why}") from error
    finally:
        index.close()
    found = ((round(score, 6), number, snippet) for number, score, snippet in rows_found)
    best = sorted(found, key=lambda it: (-it[0], sections[it[1]][0], it[1]))
    return [(score, sections[number], " ".join(snippet.split())) for score, number, snippet in best]


def _sections(path: str, text: str) -> Iterator[Section]:
    """Yield the sections of markdown, the paragraphs of other text; long ones in pieces."""
    name = path.rpartition("/")[2]
    lines = text.splitlines()
    starts = _headings(lines) if name.lower().endswith((".md", ".markdown")) else _paragraphs(lines)
    for (start, title), (end, _) in pairwise([*starts, (len(lines), "")]):
        size, first, piece = 0, start, list[str]()
        for number in range(start, end):
            piece.append(lines[number])
            size += len(lines[number])
            if size > _PIECE_CHARS:
                yield Section(first + 1, title or name, "\n".join(piece))
                size, first, piece = 0, number + 1, []
        if any(map(str.strip, piece)):
            yield Section(first + 1, title or name, "\n".join(piece))


def _headings(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield where each section of markdown begins, with its heading; the first may have none."""
    fence = ""
    if not (lines and _HEADING.match(lines[0])):
        yield 0, ""
    for number, line in enumerate(lines):
        if mark := _FENCE.match(line):
            fence = "" if fence == mark[1] else fence or mark[1]
        elif not fence and (heading := _HEADING.match(line)):
            yield number, heading[1].rstrip("# \t")


def _paragraphs(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield where each run of lines that are not empty begins."""
    is_between = True
    for number, line in enumerate(lines):
        if is_between and line.strip():
            yield number, ""
        is_between = not line.strip()
