"""The tool `file_search`: find lines in text files by a text or a regular expression.

The expressions follow Rust's `regex`, as shipped with pydantic: without look-around, and with a running time
proportional to the length of the line. No expression can hang a tick.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Annotated

from lemming.capabilities.toolbox.file_tools import FileReadingTool
from lemming.capabilities.toolbox.file_walk import TextFileWalker
from lemming.ext import describe_field
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.json_schema.schema_patterns import compile_schema_pattern
from lemming.kernel.base.name_patterns import InvalidPattern
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.tool_context import ToolContext

TIME_LIMIT_S = 10.0
LINE_CHARS = 10_000
MATCHES_LIMIT = 1000
_LINE_SHOWN_CHARS = 300

Test = Callable[[str], bool]


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


def _make_line_test(text: str, regex: str, *, ignore_case: bool) -> Test:
    """Return a predicate for matching lines. Raise `ToolError` for an invalid expression."""
    if regex:
        return _compile_test(f"(?i){regex}" if ignore_case else regex)
    if ignore_case:
        folded = text.casefold()
        return lambda line: folded in line.casefold()
    return lambda line: text in line


def _compile_test(regex: str) -> Test:
    try:
        return compile_schema_pattern(regex).has_match
    except InvalidPattern as error:
        raise ToolError(f"{FileSearchTool.name}: the regular expression cannot be used: {error}") from error
