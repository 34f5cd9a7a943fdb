"""`file_search`: the lines of text files that hold a text, or match a regular expression.

The expressions are those of Rust's `regex`, as pydantic brings it: no look-around, and no line takes longer
than in proportion to its length, so that none can hang a tick.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Annotated

from lemming.capabilities.toolbox.files import ReadsFiles
from lemming.capabilities.toolbox.files_below import Texts
from lemming.kernel.base.deadlines import Deadline
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.json_schema.patterns import schema_pattern
from lemming.kernel.base.patterns import NoExpression
from lemming.kernel.files.fitting import about
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.context import ToolContext

TIME_LIMIT_S = 10.0
LINE_CHARS = 10_000
MATCHES_LIMIT = 1000
_LINE_SHOWN_CHARS = 300

Test = Callable[[str], bool]


class FileSearch(ReadsFiles):
    """Finds lines in text files."""

    name = "file_search"
    description = "Find lines in text files by a text or a regular expression, as path:line: text."

    def plan(
        self,
        context: ToolContext,
        text: Annotated[str, about("In the line.", max_length=1000)] = "",
        regex: Annotated[str, about("In place of `text`.", max_length=200)] = "",
        path: Annotated[str, about("Folder or file; empty: all.")] = "",
        files: Annotated[str, about("As *.md.", max_length=255)] = "",
        ignore_case: Annotated[bool, about("Take a and A for the same.")] = False,
        limit: Annotated[int, about("Lines, up to 1000.", ge=1)] = 100,
    ) -> ToolResult:
        """Return the lines, sorted by path and number."""
        if bool(text) == bool(regex):
            raise ToolError(f"{self.name}: give either text or regex")
        fits = _test(text, regex, ignore_case=ignore_case)
        texts, found = Texts(context.staged, context.removed), list[str]()
        deadline, most = Deadline(TIME_LIMIT_S), min(limit, MATCHES_LIMIT)
        for file, content in texts.of(context.agent, context.base, path, caller=self.name):
            if files and not fnmatchcase(file.relative.rpartition("/")[2], files):
                continue
            for number, line in enumerate(content.splitlines(), 1):
                if deadline.has_passed:
                    found.append(f"[stopped after {TIME_LIMIT_S:g} s, in {file.asked.path}]")
                    return ToolResult(True, "\n".join(found))
                if not fits(line[:LINE_CHARS]):
                    continue
                if len(found) == most:
                    found.append(f"[there are more than these {most} lines]")
                    return ToolResult(True, "\n".join(found))
                found.append(f"{file.asked.path}:{number}: {line[:_LINE_SHOWN_CHARS]}")
        nothing = [] if found else [f"(no such line in {texts.count})"]
        return ToolResult(True, "\n".join([*found, *nothing, *texts.remarks()]))


def _test(text: str, regex: str, *, ignore_case: bool) -> Test:
    """Return what tells whether a line is looked for; raise `ToolError` for a broken expression."""
    if regex:
        return _expression(f"(?i){regex}" if ignore_case else regex)
    if ignore_case:
        folded = text.casefold()
        return lambda line: folded in line.casefold()
    return lambda line: text in line


def _expression(regex: str) -> Test:
    try:
        return schema_pattern(regex).finds
    except NoExpression as error:
        raise ToolError(f"{FileSearch.name}: the regular expression cannot be used: {error}") from error
