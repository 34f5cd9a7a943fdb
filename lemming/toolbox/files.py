"""`file_read`, `file_write`, `file_list`: files below the folders that `permissions.file_access` grants."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lemming.access.grants import resolve
from lemming.access.open import list_folder, read_text, write_effect
from lemming.errors import ToolError
from lemming.sandbox.quota import Usage
from lemming.tools import EngineTool, ToolContext, ToolResult

Path = Annotated[
    str, Field(description="A file: notes.txt in your workspace, shared/notes.txt in the shared folder.")
]


class FileRead(EngineTool):
    """Reads a text file."""

    name = "file_read"
    description = "Read a text file."

    def plan(self, context: ToolContext, path: Path) -> ToolResult:
        """Return the text of the file."""
        place = resolve(context.agent, context.base, path, "read", caller=self.name)
        return ToolResult(True, read_text(place, context.staged))


class FileWrite(EngineTool):
    """Writes a whole text file."""

    name = "file_write"
    success_is_news = False
    description = "Write a text file: its whole content. Folders on the way are made."

    def plan(
        self,
        context: ToolContext,
        path: Path,
        content: Annotated[str, Field(description="The whole content of the file.")],
    ) -> ToolResult:
        """Return the effect that writes the file."""
        place = resolve(context.agent, context.base, path, "write", caller=self.name)
        try:
            raw = content.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ToolError(f"{self.name}: the content is not text (at character {error.start})") from error
        limits = Usage(context.org.quota.max_bytes, context.org.quota.max_files)
        effect = write_effect(place, raw, context.staged, limits=limits)
        return ToolResult(True, f"wrote {len(raw)} bytes to {path}", (effect,))


class FileList(EngineTool):
    """Lists a folder."""

    name = "file_list"
    description = "List a folder. Folders end with /, symbolic links (never followed) with @."

    def plan(
        self,
        context: ToolContext,
        path: Annotated[
            str, Field(description="A folder: . is your workspace, shared the shared folder.")
        ] = ".",
    ) -> ToolResult:
        """Return the names in the folder, one a line."""
        place = resolve(context.agent, context.base, path, "read", caller=self.name)
        names, left_out = list_folder(place, context.staged)
        lines = [*names, f"[{left_out} more are not shown]"] if left_out else names
        return ToolResult(True, "\n".join(lines) or "(empty)")
