"""The tools `file_search`, for lines with a text or a regular expression, and `search`, for the most relevant sections.

The expressions follow Rust's `regex`, as shipped with pydantic: without look-around, and with a running time
proportional to the length of the line. No expression can hang a tick.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from lemming.capabilities.toolbox.file_tools import FileReadingTool
from lemming.ext import describe_field
from lemming.kernel.access.agent_files import NOTHING_REMOVED, Removed, read_text, scan_folder
from lemming.kernel.access.allowed_paths import DEPTH_LIMIT, AllowedPath, resolve_path
from lemming.kernel.agents import Agent
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.name_patterns import InvalidPattern, compile_schema_pattern
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.tool_context import ToolContext

FILES_LIMIT = 5000
BYTES_LIMIT = 16 << 20


@dataclass
class TextFileWalker:
    """A walker over text files as one turn sees them. `unread`: files without text. `is_cut`: stopped at a limit."""

    staged: Mapping[str, bytes]
    removed: Removed = NOTHING_REMOVED
    unread: int = 0
    files: int = 0
    is_cut: bool = False
    errors: list[str] = field(default_factory=list)
    _room_bytes: int = BYTES_LIMIT
    _visited: set[str] = field(default_factory=set)

    def walk(self, agent: Agent, base: Path, path: str, *, caller: str) -> Iterator[tuple[AllowedPath, str]]:
        """Yield each file below a folder with its text, or the file itself, sorted by path.

        An empty path stands for all readable folders, without inaccessible folders. Each file comes once.
        Raises `PermissionDenied` or `ToolError`.
        """
        if path:
            yield from self._walk_folder(resolve_path(agent, base, path, "read", caller=caller))
            return
        for grant in agent.permissions.file_access.allow_read:
            try:
                yield from self._walk_folder(resolve_path(agent, base, grant, "read", caller=caller))
            except ToolError as error:
                self.errors.append(error.message)

    def _walk_folder(self, folder: AllowedPath) -> Iterator[tuple[AllowedPath, str]]:
        if folder.path_key in self.staged or not self._is_folder(folder):
            yield from self._count_file(folder, read_text(folder, self.staged, self.removed))
            return
        for file in _iter_files(folder, self.staged, self.removed):
            if self.files + self.unread >= FILES_LIMIT or self._room_bytes <= 0:
                self.is_cut = True
                return
            try:
                text = read_text(file, self.staged, self.removed)
            except ToolError:  # a link, a socket, an image, something large, or gone by now
                self.unread += 1
                continue
            yield from self._count_file(file, text)

    def _count_file(self, file: AllowedPath, text: str) -> Iterator[tuple[AllowedPath, str]]:
        if file.path_key not in self._visited:
            self._visited.add(file.path_key)
            self.files += 1
            self._room_bytes -= len(text)
            yield file, text

    def _is_folder(self, path: AllowedPath) -> bool:
        if path.is_granted_folder or any(key.startswith(f"{path.path_key}/") for key in self.staged):
            return True
        return os.path.isdir(path.root / path.relative)  # only which words are used; opening decides

    @property
    def describe_count(self) -> str:
        """The number of files walked, as text."""
        return f"{self.files} file{'' if self.files == 1 else 's'}"

    def get_remarks(self) -> list[str]:
        """Return remarks for the reader of a result, each on a line."""
        remarks = [f"[not searched: {reason}]" for reason in self.errors]
        if self.unread:
            remarks.append(f"[not searched: {self.unread} that are no text files, or too large]")
        if self.is_cut:
            remarks.append(f"[only the first {self.describe_count} were searched: name a folder further down]")
        return remarks


def _iter_files(folder: AllowedPath, staged: Mapping[str, bytes], removed: Removed) -> Iterator[AllowedPath]:
    if len(folder.parts) > DEPTH_LIMIT:
        return
    names = scan_folder(folder, staged, removed)
    for name in sorted(names):
        if not name.isprintable():  # no call can name it
            continue
        inner = _child_place(folder, name)
        if names[name] == "/":
            yield from _iter_files(inner, staged, removed)
        else:
            yield inner


def _child_place(folder: AllowedPath, name: str) -> AllowedPath:
    parent = folder.attempt.path.rstrip("/").removeprefix("./")
    shown_path = name if parent in ("", ".") and not folder.attempt.path.startswith("/") else f"{parent}/{name}"
    relative = f"{folder.relative}/{name}" if folder.relative else name
    return replace(folder, attempt=replace(folder.attempt, path=shown_path), relative=relative, is_granted_folder=False)


TIME_LIMIT_S = 10.0
LINE_CHARS = 10_000
MATCHES_LIMIT = 1000
_LINE_SHOWN_CHARS = 300


class FileSearchTool(FileReadingTool):
    """Finds lines in text files."""

    name = "file_search"
    description = "Find lines in text files by a text or a regular expression, as path:line: text."

    def plan(
        self,
        context: ToolContext,
        text: Annotated[str, describe_field("In the line.", max_length=1000)] = "",
        regex: Annotated[str, describe_field("In place of `text`.", max_length=200)] = "",
        path: Annotated[str, describe_field("Folder or file; empty: all.")] = "",
        files: Annotated[str, describe_field("As *.md.", max_length=255)] = "",
        ignore_case: Annotated[bool, describe_field("Take a and A for the same.")] = False,
        limit: Annotated[int, describe_field("Lines, up to 1000.", ge=1)] = 100,
    ) -> ToolResult:
        """Return the matching lines, sorted by path and number."""
        if bool(text) == bool(regex):
            raise ToolError(f"{self.name}: give either text or regex")
        matches_line = _make_line_test(text, regex, ignore_case=ignore_case)
        walker, lines = TextFileWalker(context.staged, context.removed), list[str]()
        deadline, max_lines = Deadline(TIME_LIMIT_S), min(limit, MATCHES_LIMIT)
        for file, content in walker.walk(context.agent, context.base, path, caller=self.name):
            if files and not fnmatchcase(file.relative.rpartition("/")[2], files):
                continue
            for number, line in enumerate(content.splitlines(), 1):
                if deadline.has_passed:
                    lines.append(f"[stopped after {TIME_LIMIT_S:g} s, in {file.attempt.path}]")
                    return ToolResult(True, "\n".join(lines))
                if not matches_line(line[:LINE_CHARS]):
                    continue
                if len(lines) == max_lines:
                    lines.append(f"[there are more than these {max_lines} lines]")
                    return ToolResult(True, "\n".join(lines))
                lines.append(f"{file.attempt.path}:{number}: {line[:_LINE_SHOWN_CHARS]}")
        no_match = [] if lines else [f"(no such line in {walker.describe_count})"]
        return ToolResult(True, "\n".join([*lines, *no_match, *walker.get_remarks()]))


def _make_line_test(text: str, regex: str, *, ignore_case: bool) -> Callable[[str], bool]:
    """Return a predicate for matching lines. Raise `ToolError` for an invalid expression."""
    if not regex:
        folded = text.casefold()
        return (lambda line: folded in line.casefold()) if ignore_case else (lambda line: text in line)
    try:
        return compile_schema_pattern(f"(?i){regex}" if ignore_case else regex).has_match
    except InvalidPattern as error:
        raise ToolError(f"{FileSearchTool.name}: the regular expression cannot be used: {error}") from error


# --- the tool `search`, by SQLite's full-text search ---------------------------------------------
# Each call builds the index in memory from the files and discards it afterwards. Queries: sqlite.org/fts5.html.

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
