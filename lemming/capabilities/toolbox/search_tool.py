"""The tool `search`: find the most relevant sections of text files, using SQLite's full-text search.

Each call builds the index in memory from the files and discards it afterwards. Format of the queries:
sqlite.org/fts5.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

from lemming.capabilities.toolbox.file_search import TextFileWalker
from lemming.capabilities.toolbox.file_tools import FileReadingTool
from lemming.ext import describe_field
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.errors import ToolError
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.tool_context import ToolContext

TIME_LIMIT_S = 10.0
TERMS_LIMIT = 40
RESULTS_LIMIT = 50
_TITLE_WEIGHT = 3.0
_PIECE_CHARS = 4000
_STEPS_BETWEEN_CHECKS = 10_000
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(\S.*)")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_FOLDER = "in"  # which Python keeps for itself


class Section(NamedTuple):
    """A part of a file: its first line, its heading, and its text."""

    line: int
    title: str
    text: str


class SearchTool(FileReadingTool):
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
        properties = {_FOLDER if key == "folder" else key: value for key, value in schema["properties"].items()}
        return {**schema, "properties": properties}

    def parse_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments under the parameter names of `plan`. Raise `ToolError` for invalid arguments."""
        return super().parse_arguments({"folder" if key == _FOLDER else key: value for key, value in arguments.items()})

    def plan(
        self,
        context: ToolContext,
        query: Annotated[str, describe_field("The words.", min_length=1, max_length=1000)],
        folder: Annotated[str, describe_field("A folder or a file; empty: all folders that you may read.")] = "",
        limit: Annotated[int, describe_field("At most so many results, up to 50.", ge=1)] = 10,
    ) -> ToolResult:
        """Return the sections, by score, then path, then position in the file."""
        terms = list(dict.fromkeys(re.findall(r"\w+", query)))[:TERMS_LIMIT]
        if not terms:
            raise ToolError(f"{self.name}: the query has no word")
        walker = TextFileWalker(context.staged, context.removed)
        sections = [
            (file.attempt.path, section)
            for file, text in walker.walk(context.agent, context.base, folder, caller=self.name)
            for section in _split_sections(file.attempt.path, text)
        ]
        ranked = _rank_sections(sections, terms)
        lines = [
            f"{path}:{section.line} (score {score:.3f}) {section.title}\n  {snippet}"
            for score, (path, section), snippet in ranked[: min(limit, RESULTS_LIMIT)]
        ]
        no_match = [] if lines else [f"(nothing about that in {walker.describe_count})"]
        return ToolResult(True, "\n".join([*lines, *no_match, *walker.get_remarks()]))


RankedSections = list[tuple[float, tuple[str, Section], str]]


def _rank_sections(sections: list[tuple[str, Section]], terms: list[str]) -> RankedSections:
    """Return the sections with at least one term, with score and snippet."""
    import sqlite3  # only where a call is made

    deadline = Deadline(TIME_LIMIT_S)
    index = sqlite3.connect(":memory:")
    try:
        index.set_progress_handler(lambda: deadline.has_passed, _STEPS_BETWEEN_CHECKS)
        index.execute("CREATE VIRTUAL TABLE s USING fts5(title, text, tokenize = 'porter unicode61')")
        rows = ((number, item.title, item.text) for number, (_, item) in enumerate(sections))
        index.executemany("INSERT INTO s (rowid, title, text) VALUES (?, ?, ?)", rows)
        query = " OR ".join(f'"{term}"' for term in terms)  # quoted: without quotes the text is a query language
        matches = index.execute(
            f"SELECT rowid, -bm25(s, {_TITLE_WEIGHT}, 1.0), snippet(s, 1, '', '', ' ... ', 32) FROM s "  # noqa: S608 - a number of ours
            "WHERE s MATCH ? ",
            (query,),
        ).fetchall()
    except sqlite3.OperationalError as error:
        reason = "it took too long: name a folder" if "interrupted" in str(error) else str(error)
        raise ToolError(f"{SearchTool.name}: {reason}") from error
    finally:
        index.close()
    rounded = ((round(score, 6), number, snippet) for number, score, snippet in matches)
    best = sorted(rounded, key=lambda item: (-item[0], sections[item[1]][0], item[1]))
    return [(score, sections[number], " ".join(snippet.split())) for score, number, snippet in best]


def _split_sections(path: str, text: str) -> Iterator[Section]:
    """Yield the sections of markdown, or the paragraphs of other text. Long sections are split."""
    name = path.rpartition("/")[2]
    lines = text.splitlines()
    starts = _iter_headings(lines) if name.lower().endswith((".md", ".markdown")) else _iter_paragraphs(lines)
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


def _iter_headings(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the start of each markdown section with its heading. The first section may have none."""
    fence = ""
    if not (lines and _HEADING.match(lines[0])):
        yield 0, ""
    for number, line in enumerate(lines):
        if mark := _FENCE.match(line):
            fence = "" if fence == mark[1] else fence or mark[1]
        elif not fence and (heading := _HEADING.match(line)):
            yield number, heading[1].rstrip("# \t")


def _iter_paragraphs(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the start of each run of nonempty lines."""
    is_between = True
    for number, line in enumerate(lines):
        if is_between and line.strip():
            yield number, ""
        is_between = not line.strip()
