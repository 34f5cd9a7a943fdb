"""`file_edit`, `file_append`, `file_move`: text files changed in parts, and moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from lemming.capabilities.toolbox.files import Path, ReadsFiles, WritesFiles, effect_of
from lemming.kernel.access.allowed_paths import resolve
from lemming.kernel.access.open import is_taken, read_text, remove_effect
from lemming.kernel.base.errors import PermissionDenied, ToolError
from lemming.kernel.files.fitting import about
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.context import ToolContext

_LINES_COMPARED = 5000
_LINES_NAMED = 10
_LINE_SHOWN_CHARS = 200


class FileEdit(WritesFiles, ReadsFiles):
    """Replaces a passage of a text file."""

    name = "file_edit"
    description = (
        "Replace a passage of a text file. The old text must stand there exactly so, and only once unless "
        "`all` is true."
    )

    def plan(
        self,
        context: ToolContext,
        path: Path,
        old: Annotated[str, about("The passage as it stands there, line ends included.", min_length=1)],
        new: Annotated[str, about("What is to stand there instead; empty: the passage is taken out.")],
        all: Annotated[bool, about("Replace it wherever it stands.")] = False,
    ) -> ToolResult:
        """Return the effect that writes the file with the passage replaced."""
        place = resolve(context.agent, context.base, path, "read", caller=self.name)
        text = read_text(place, context.staged, context.removed)
        found = [*_places_of(old, text)]
        if not found:
            raise place.asked.failed(f"does not hold that passage{_nearest(old, text)}")
        if len(found) > 1 and not all:
            lines = ", ".join(str(_line_of(text, start)) for start in found[:_LINES_NAMED])
            more = " and others" if len(found) > _LINES_NAMED else ""
            raise place.asked.failed(
                f"holds that passage {len(found)} times, in lines {lines}{more}: give more of it, or all true"
            )
        effect = effect_of(context, path, text.replace(old, new), caller=self.name)
        what = f"{len(found)} passages" if len(found) > 1 else f"line {_line_of(text, found[0])}"
        return ToolResult(True, f"changed {what} of {path}", (effect,))


class FileAppend(WritesFiles):
    """Adds to the end of a text file."""

    name = "file_append"
    description = "Add text to the end of a file, beginning on a new line. The file is made if need be."

    def plan(
        self,
        context: ToolContext,
        path: Path,
        content: Annotated[str, about("What is added.", min_length=1)],
    ) -> ToolResult:
        """Return the effect that writes the file with the text at its end."""
        place = resolve(context.agent, context.base, path, "write", caller=self.name)
        try:
            before = read_text(place, context.staged, context.removed)
        except PermissionDenied:  # that is not to be taken for a file that is not there
            raise
        except ToolError as error:
            if not isinstance(error.__cause__, FileNotFoundError) and place.key not in context.removed:
                raise
            before = ""
        end = "\n" if before and not before.endswith("\n") else ""
        effect = effect_of(context, path, f"{before}{end}{content}", caller=self.name)
        return ToolResult(True, f"{path} has {len(effect.content)} bytes now", (effect,))


class FileMove(WritesFiles, ReadsFiles):
    """Gives a text file another name or folder."""

    name = "file_move"
    description = (
        "Move or rename a text file. Nothing that stands there is written over, unless `over` is true."
    )
    place_arguments = ("path", "to")

    def plan(
        self,
        context: ToolContext,
        path: Path,
        to: Annotated[str, about("Its new path, the name of the file included.")],
        over: Annotated[bool, about("Write over a file that stands there.")] = False,
    ) -> ToolResult:
        """Return the effects that write the file at its new place, and take the old one away."""
        text = read_text(
            resolve(context.agent, context.base, path, "read", caller=self.name),
            context.staged,
            context.removed,
        )
        old = resolve(context.agent, context.base, path, "write", caller=self.name)
        new = resolve(context.agent, context.base, to, "write", caller=self.name)
        if old.key == new.key:
            raise new.asked.failed("is the file itself")
        gone = remove_effect(old, context.staged)
        written = effect_of(context, to, text, caller=self.name, removed=frozenset({gone.place}))
        if not over and is_taken(new, context.staged, context.removed):
            raise new.asked.failed("is there already: choose another name, or say over true")
        return ToolResult(True, f"moved {path} to {to}", (written, gone))


def _places_of(passage: str, text: str) -> Iterator[int]:
    start = text.find(passage)
    while start >= 0:
        yield start
        start = text.find(passage, start + len(passage))


def _line_of(text: str, start: int) -> int:
    return text.count("\n", 0, start) + 1


def _nearest(old: str, text: str) -> str:
    """Return the line that is most like the passage's first one, in words; empty when none is."""
    from difflib import get_close_matches

    wanted = next((line for line in old.splitlines() if line.strip()), "").strip()[:_LINE_SHOWN_CHARS]
    lines = text.splitlines()[:_LINES_COMPARED]
    stripped = [line.strip()[:_LINE_SHOWN_CHARS] for line in lines]
    if not (wanted and (close := get_close_matches(wanted, stripped, n=1, cutoff=0.5))):
        return ""
    number = stripped.index(close[0])
    return f'; line {number + 1} comes nearest: "{lines[number][:_LINE_SHOWN_CHARS]}"'
