"""`file_read`, `file_write`, `file_list`: files below the folders that `permissions.file_access` grants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from lemming.kernel.access.allowed_paths import NEVER_OPEN, granted_places, resolve
from lemming.kernel.access.open import list_folder, read_text, write_effect
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.paths import components, place_of
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.fitting import about
from lemming.kernel.files.quota import FolderSize
from lemming.kernel.org.config import Org
from lemming.kernel.tools import EngineTool, Places, ToolClass, ToolResult
from lemming.kernel.tools.context import ToolContext

Path = Annotated[str, about("A file: notes.txt in your workspace, shared/notes.txt in the shared folder.")]


class ReadsFiles(EngineTool):
    """A tool whose calls read below the folders that the resume grants for reading."""

    tool_class: ToolClass = "read"
    keeps_deadline = True
    place_arguments: Sequence[str] = ("path",)

    def reads(self, agent: Agent, settings: Org) -> Places:
        """Return the folders that the resume grants for reading."""
        return granted_places(agent, "read")


class ReadsFile(ReadsFiles):
    """One whose calls give what one file holds, which is the argument `path`."""

    def source(self, agent_name: str, arguments: Mapping[str, Any]) -> str:
        """Return the file that is read."""
        path = arguments.get("path")
        return place_of(agent_name, path) if isinstance(path, str) else ""


class WritesFiles(EngineTool):
    """A tool whose calls write below the folders that the resume grants for writing."""

    tool_class: ToolClass = "write"
    keeps_deadline = True
    place_arguments: Sequence[str] = ("path",)
    success_is_news = False

    def writes(self, agent: Agent, settings: Org) -> Places:
        """Return the folders that the resume grants for writing."""
        return granted_places(agent, "write")


class FileRead(ReadsFile):
    """Reads a text file."""

    name = "file_read"
    description = "Read a text file."

    def plan(self, context: ToolContext, path: Path) -> ToolResult:
        """Return the text of the file."""
        place = resolve(context.agent, context.base, path, "read", caller=self.name)
        return ToolResult(True, read_text(place, context.staged, context.removed))


class FileWrite(WritesFiles):
    """Writes a whole text file."""

    name = "file_write"
    description = "Write a text file: its whole content. Folders on the way are made."
    replaces_whole = True

    def plan(
        self,
        context: ToolContext,
        path: Path,
        content: Annotated[str, about("The whole content of the file.")],
    ) -> ToolResult:
        """Return the effect that writes the file."""
        effect = effect_of(context, path, content, caller=self.name)
        return ToolResult(
            True, f"wrote {len(effect.content)} bytes to {place_in_words(path, effect)}", (effect,)
        )


class FileList(ReadsFiles):
    """Lists a folder."""

    name = "file_list"
    description = "List a folder. Folders end with /, symbolic links (never followed) with @."

    def plan(
        self,
        context: ToolContext,
        path: Annotated[str, about("A folder: . is your workspace, shared the shared folder.")] = ".",
    ) -> ToolResult:
        """Return the names in the folder, one a line."""
        place = resolve(context.agent, context.base, path, "read", caller=self.name)
        names, left_out = list_folder(place, context.staged, context.removed)
        lines = [*names, f"[{left_out} more are not shown]"] if left_out else names
        return ToolResult(True, "\n".join(lines) or "(empty)")


def place_in_words(path: str, effect: FileEffect) -> str:
    """Return a path as it was said; where it sounds like one of the organisation's, where it really lies."""
    first = components(path)[:1]
    if path.startswith("/") or not first or first[0] not in {"agents", *NEVER_OPEN}:
        return path
    return f"{effect.place} (a path is below your workspace)"


def effect_of(
    context: ToolContext, path: str, content: str, *, caller: str, removed: frozenset[str] = frozenset()
) -> FileEffect:
    """Return the effect that writes a text file; raise `ToolError` when the agent may not."""
    place = resolve(context.agent, context.base, path, "write", caller=caller)
    try:
        raw = content.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(f"{caller}: the content is not text (at character {error.start})") from error
    limits = FolderSize(context.settings.quota.max_bytes, context.settings.quota.max_files)
    gone = context.removed | removed
    return write_effect(place, raw, context.staged, limits=limits, removed=gone)
