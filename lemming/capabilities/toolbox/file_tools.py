"""The tools for files, in the folders granted by `permissions.file_access`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from lemming.ext import describe_field
from lemming.kernel.access.agent_files import read_raw, read_text, write_effect
from lemming.kernel.access.allowed_paths import NEVER_OPEN, granted_folders, resolve_path
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import PermissionDenied, ToolError
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.files.quota import FolderSize
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools import EngineTool, Places, ToolClass, ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.libraries.agent_folders import list_folder, remove_effect, target_exists
from lemming.libraries.optional_packages import install_command

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
        return paths.resolve_agent_path(agent_name, path) if isinstance(path, str) else ""


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
    first = paths.components(path)[:1]
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


_LINES_COMPARED = 5000
_LINES_NAMED = 10
_LINE_SHOWN_CHARS = 200


class FileEditTool(FileWritingTool, FileReadingTool):
    """Replaces a passage in a text file."""

    name = "file_edit"
    description = (
        "Replace a passage of a text file. The old text must stand there exactly so, and only once unless "
        "`all` is true."
    )

    def plan(
        self,
        context: ToolContext,
        path: Path,
        old: Annotated[str, describe_field("The passage as it stands there, line ends included.", min_length=1)],
        new: Annotated[str, describe_field("What is to stand there instead; empty: the passage is taken out.")],
        all: Annotated[bool, describe_field("Replace it wherever it stands.")] = False,
    ) -> ToolResult:
        """Return the effect that writes the file with the passage replaced."""
        allowed_path = resolve_path(context.agent, context.base, path, "read", caller=self.name)
        text = read_text(allowed_path, context.staged, context.removed)
        occurrences = [*_find_occurrences(old, text)]
        if not occurrences:
            raise allowed_path.attempt.to_tool_error(f"does not hold that passage{_suggest_line(old, text)}")
        if len(occurrences) > 1 and not all:
            lines = ", ".join(str(_line_number(text, start)) for start in occurrences[:_LINES_NAMED])
            suffix = " and others" if len(occurrences) > _LINES_NAMED else ""
            raise allowed_path.attempt.to_tool_error(
                f"holds that passage {len(occurrences)} times, in lines {lines}{suffix}: give more of it, or all true"
            )
        effect = make_write_effect(context, path, text.replace(old, new), caller=self.name)
        change = (
            f"{len(occurrences)} passages" if len(occurrences) > 1 else f"line {_line_number(text, occurrences[0])}"
        )
        return ToolResult(True, f"changed {change} of {path}", (effect,))


class FileAppendTool(FileWritingTool):
    """Appends to a text file."""

    name = "file_append"
    description = "Add text to the end of a file, beginning on a new line. The file is made if need be."

    def plan(
        self, context: ToolContext, path: Path, content: Annotated[str, describe_field("What is added.", min_length=1)]
    ) -> ToolResult:
        """Return the effect that writes the file with the text appended."""
        allowed_path = resolve_path(context.agent, context.base, path, "write", caller=self.name)
        try:
            old_text = read_text(allowed_path, context.staged, context.removed)
        except PermissionDenied:  # that is not to be taken for a file that is not there
            raise
        except ToolError as error:
            if not isinstance(error.__cause__, FileNotFoundError) and allowed_path.path_key not in context.removed:
                raise
            old_text = ""
        end = "\n" if old_text and not old_text.endswith("\n") else ""
        effect = make_write_effect(context, path, f"{old_text}{end}{content}", caller=self.name)
        return ToolResult(True, f"{path} has {len(effect.content)} bytes now", (effect,))


class FileMoveTool(FileWritingTool, FileReadingTool):
    """Renames or moves a text file."""

    name = "file_move"
    description = "Move or rename a text file. Nothing that stands there is written over, unless `over` is true."
    place_arguments = ("path", "to")

    def plan(
        self,
        context: ToolContext,
        path: Path,
        to: Annotated[str, describe_field("Its new path, the name of the file included.")],
        over: Annotated[bool, describe_field("Write over a file that stands there.")] = False,
    ) -> ToolResult:
        """Return the effects that write the file at the new path and remove the old file."""
        text = read_text(
            resolve_path(context.agent, context.base, path, "read", caller=self.name), context.staged, context.removed
        )
        source = resolve_path(context.agent, context.base, path, "write", caller=self.name)
        destination = resolve_path(context.agent, context.base, to, "write", caller=self.name)
        if source.path_key == destination.path_key:
            raise destination.attempt.to_tool_error("is the file itself")
        removal = remove_effect(source, context.staged)
        write = make_write_effect(context, to, text, caller=self.name, removed=frozenset({removal.path_key}))
        if not over and target_exists(destination, context.staged, context.removed):
            raise destination.attempt.to_tool_error("is there already: choose another name, or say over true")
        return ToolResult(True, f"moved {path} to {to}", (write, removal))


def _find_occurrences(passage: str, text: str) -> Iterator[int]:
    start = text.find(passage)
    while start >= 0:
        yield start
        start = text.find(passage, start + len(passage))


def _line_number(text: str, start: int) -> int:
    return text.count("\n", 0, start) + 1


def _suggest_line(old: str, text: str) -> str:
    """Return a hint with the line most similar to the passage's first line, or an empty text."""
    from difflib import get_close_matches

    first_line = next((line for line in old.splitlines() if line.strip()), "").strip()[:_LINE_SHOWN_CHARS]
    lines = text.splitlines()[:_LINES_COMPARED]
    stripped = [line.strip()[:_LINE_SHOWN_CHARS] for line in lines]
    if not (first_line and (close := get_close_matches(first_line, stripped, n=1, cutoff=0.5))):
        return ""
    number = stripped.index(close[0])
    return f'; line {number + 1} comes nearest: "{lines[number][:_LINE_SHOWN_CHARS]}"'


DOCUMENT_LIMIT_BYTES = 32 << 20
PART_CHARS = 24_000
_WAIT_S = 60.0
_INHERITED_VARIABLES = ("PATH", "PYTHONPATH", "HOME", "SYSTEMROOT")

Kind = Literal["pdf", "word", "html"]


class DocumentPackagesMissing(ToolError):
    """Raised if the packages for reading documents are not installed."""


class ReadDocumentTool(SingleFileReadingTool):
    """Reads a document in a format other than plain text."""

    name = "read_document"
    description = "Read a PDF, a Word document (.docx) or an HTML page as text, a long one in parts."
    output_limit_bytes = 128 << 10
    parallel = True  # each is read by a process of its own

    def plan(
        self, context: ToolContext, path: Path, part: Annotated[int, describe_field("Which part, from 1.", ge=1)] = 1
    ) -> ToolResult:
        """Return the text of a part."""
        allowed_path = resolve_path(context.agent, context.base, path, "read", caller=self.name)
        raw = read_raw(allowed_path, context.staged, context.removed, limit_bytes=DOCUMENT_LIMIT_BYTES)
        kind = _detect_kind(raw, path)
        if kind is None:
            raise allowed_path.attempt.to_tool_error(
                f"is no PDF, Word (.docx) or HTML document{_suggest_alternative(raw)}"
            )
        try:
            text, has_more = extract_text(raw, kind, min(part, 1000))
        except DocumentPackagesMissing as error:
            raise ToolError(f"{self.name}: {error.message}") from error
        except ToolError as error:
            raise allowed_path.attempt.to_tool_error(f"cannot be read: {error.message}") from error
        if not text and part > 1:
            raise allowed_path.attempt.to_tool_error(f"has no part {part}")
        continuation = f"\n[there is more: part {part + 1}]" if has_more else ""
        return ToolResult(True, f"{text}{continuation}" or "(it holds no text)")


def extract_text(raw: bytes, kind: Kind, part: int = 1) -> tuple[str, bool]:
    """Return a part of a document's text, and True if more follows. Raises `DocumentPackagesMissing` or `ToolError`."""
    module = "lemming.capabilities.toolbox.document_reader"
    command = [sys.executable, "-P", "-m", module, kind, str(part), str(PART_CHARS)]
    # not the engine's environment: it holds keys, and this program reads hostile files
    environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    try:
        process = subprocess.run(
            command,
            input=raw,
            capture_output=True,
            timeout=_WAIT_S,
            env=environment,
            cwd="/",
            start_new_session=True,  # Ctrl-C is for the engine
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolError("it takes too long") from error
    if process.returncode:
        reason = "it takes too long" if process.returncode < 0 else f"its reader ended with status {process.returncode}"
        raise ToolError(reason)
    answer = json.loads(process.stdout)
    if "missing" in answer:
        hint = install_command("documents")
        raise DocumentPackagesMissing(f"to read it, a person has to install {answer['missing']}: {hint}")
    if "error" in answer:
        raise ToolError(answer["error"])
    return answer["text"], answer["has_more"]


def _detect_kind(raw: bytes, path: str) -> Kind | None:
    if b"%PDF-" in raw[:1024]:
        return "pdf"
    if raw.startswith(b"PK\x03\x04"):
        return "word"
    start = raw[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if path.lower().endswith((".html", ".htm", ".xhtml")) or start.startswith((b"<!doctype html", b"<html")):
        return "html"
    return None


def _suggest_alternative(raw: bytes) -> str:
    """Return a hint for a file of another format, empty for an unknown format."""
    if raw.startswith(b"\xd0\xcf\x11\xe0"):
        return ": it is an old Office file, to be saved as .docx"
    if raw.startswith(b"{\\rtf"):
        return ": it is RTF, to be saved as .docx"
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    return ": it is plain text, for file_read"
