"""`read_document`: extract the text of PDF, Word and HTML files in a limited process (`document_reader`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Annotated, Literal

from lemming.capabilities.toolbox.file_tools import Path, SingleFileReadingTool
from lemming.ext import describe_field
from lemming.kernel.access.agent_files import read_raw
from lemming.kernel.access.allowed_paths import resolve_path
from lemming.kernel.base.errors import ToolError
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.libraries.optional_packages import install_command

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
    command = [
        sys.executable,
        "-P",
        "-m",
        "lemming.capabilities.toolbox.document_reader",
        kind,
        str(part),
        str(PART_CHARS),
    ]
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
