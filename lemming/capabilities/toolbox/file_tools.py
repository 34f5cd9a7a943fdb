"""The tools `file_read`, `file_write` and `file_list`, for the folders granted by `permissions.file_access`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from lemming.ext import describe_field
from lemming.kernel.access.agent_files import list_folder, read_text, write_effect
from lemming.kernel.access.allowed_paths import NEVER_OPEN, granted_folders, resolve_path
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.paths import components, resolve_agent_path
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.quota import FolderSize
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools import EngineTool, Places, ToolClass, ToolResult
from lemming.kernel.tools.tool_context import ToolContext

Path = Annotated[str, describe_field("A file: notes.txt in your workspace, shared/notes.txt in the shared folder.")]


class FileReadingTool(EngineTool):
    """A tool with read access to the folders granted for reading."""

    tool_class: ToolClass = "read"
    keeps_deadline = True
    place_arguments: Sequence[str] = ("path",)

    def read_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return the folders granted by the resume for reading."""
        return granted_folders(agent, "read")


class SingleFileReadingTool(FileReadingTool):
    """A tool with a single file as its result, given by the argument `path`."""

    def source_file(self, agent_name: str, arguments: Mapping[str, Any]) -> str:
        """Return the path of the file read by a call."""
        path = arguments.get("path")
        return resolve_agent_path(agent_name, path) if isinstance(path, str) else ""


class FileWritingTool(EngineTool):
    """A tool with write access to the folders granted for writing."""

    tool_class: ToolClass = "write"
    keeps_deadline = True
    place_arguments: Sequence[str] = ("path",)
    success_is_news = False

    def write_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return the folders granted by the resume for writing."""
        return granted_folders(agent, "write")


class FileReadTool(SingleFileReadingTool):
    """Reads a text file."""

    name = "file_read"
    description = "Read a text file."

    def plan(self, context: ToolContext, path: Path) -> ToolResult:
        """Return the text of the file."""
        allowed_path = resolve_path(context.agent, context.base, path, "read", caller=self.name)
        return ToolResult(True, read_text(allowed_path, context.staged, context.removed))


class FileWriteTool(FileWritingTool):
    """Writes a whole text file."""

    name = "file_write"
    description = "Write a text file: its whole content. Folders on the way are made."
    replaces_whole = True

    def plan(
        self,
        context: ToolContext,
        path: Path,
        content: Annotated[str, describe_field("The whole content of the file.")],
    ) -> ToolResult:
        """Return the effect that writes the file."""
        effect = make_write_effect(context, path, content, caller=self.name)
        return ToolResult(True, f"wrote {len(effect.content)} bytes to {describe_path(path, effect)}", (effect,))


class FileListTool(FileReadingTool):
    """Lists a folder."""

    name = "file_list"
    description = "List a folder. Folders end with /, symbolic links (never followed) with @."

    def plan(
        self,
        context: ToolContext,
        path: Annotated[str, describe_field("A folder: . is your workspace, shared the shared folder.")] = ".",
    ) -> ToolResult:
        """Return the names in the folder, each on a line."""
        allowed_path = resolve_path(context.agent, context.base, path, "read", caller=self.name)
        names, omitted = list_folder(allowed_path, context.staged, context.removed)
        lines = [*names, f"[{omitted} more are not shown]"] if omitted else names
        return ToolResult(True, "\n".join(lines) or "(empty)")


def describe_path(path: str, effect: FileEffect) -> str:
    """Return a path as given; if the path looks organisation-relative, return the real path with a note."""
    first = components(path)[:1]
    if path.startswith("/") or not first or first[0] not in {"agents", *NEVER_OPEN}:
        return path
    return f"{effect.path_key} (a path is below your workspace)"


def make_write_effect(
    context: ToolContext, path: str, content: str, *, caller: str, removed: frozenset[str] = frozenset()
) -> FileEffect:
    """Return the effect that writes a text file. Raise `ToolError` if the agent lacks permission."""
    allowed_path = resolve_path(context.agent, context.base, path, "write", caller=caller)
    try:
        raw = content.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(f"{caller}: the content is not text (at character {error.start})") from error
    limits = FolderSize(context.settings.quota.max_bytes, context.settings.quota.max_files)
    all_removed = context.removed | removed
    return write_effect(allowed_path, raw, context.staged, limits=limits, removed=all_removed)
