"""`read_document`: PDF, Word and HTML as text, by a program with limits (`document_reader`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Annotated, Literal

from lemming.capabilities.toolbox.files import Path, ReadsFile
from lemming.kernel.access.allowed_paths import resolve
from lemming.kernel.access.open import read_raw
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.extras import install_line
from lemming.kernel.files.fitting import about
from lemming.kernel.tools import ToolResult
from lemming.kernel.tools.context import ToolContext

DOCUMENT_LIMIT_BYTES = 32 << 20
PART_CHARS = 24_000
_WAIT_S = 60.0
_FROM_THE_ENGINE = ("PATH", "PYTHONPATH", "HOME", "SYSTEMROOT")

Kind = Literal["pdf", "word", "html"]


class NotInstalled(ToolError):
    """The packages that read documents are not there."""


class ReadDocument(ReadsFile):
    """Reads a document that is no plain text."""

    name = "read_document"
    description = "Read a PDF, a Word document (.docx) or an HTML page as text, a long one in parts."
    output_limit_bytes = 128 << 10
    parallel = True  # each is read by a process of its own

    def plan(
        self,
        context: ToolContext,
        path: Path,
        part: Annotated[int, about("Which part, from 1.", ge=1)] = 1,
    ) -> ToolResult:
        """Return the text of one part."""
        place = resolve(context.agent, context.base, path, "read", caller=self.name)
        raw = read_raw(place, context.staged, context.removed, limit_bytes=DOCUMENT_LIMIT_BYTES)
        kind = _kind_of(raw, path)
        if kind is None:
            raise place.asked.failed(f"is no PDF, Word (.docx) or HTML document{_instead(raw)}")
        try:
            text, has_more = text_of(raw, kind, min(part, 1000))
        except NotInstalled as error:
            raise ToolError(f"{self.name}: {error.message}") from error
        except ToolError as error:
            raise place.asked.failed(f"cannot be read: {error.message}") from error
        if not text and part > 1:
            raise place.asked.failed(f"has no part {part}")
        more = f"\n[there is more: part {part + 1}]" if has_more else ""
        return ToolResult(True, f"{text}{more}" or "(it holds no text)")


def text_of(raw: bytes, kind: Kind, part: int = 1) -> tuple[str, bool]:
    """Return one part of a document's text, and whether there is more.

    Raises `NotInstalled`, and `ToolError` that says why the document cannot be read.
    """
    command = [
        sys.executable,
        "-P",
        "-m",
        "lemming.capabilities.toolbox.document_reader",
        kind,
        str(part),
        str(PART_CHARS),
    ]
    # not what the engine has: there are keys in it, and this program looks at what strangers wrote
    environment = {name: os.environ[name] for name in _FROM_THE_ENGINE if name in os.environ}
    try:
        ran = subprocess.run(
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
    if ran.returncode:
        why = "it takes too long" if ran.returncode < 0 else f"its reader ended with status {ran.returncode}"
        raise ToolError(why)
    answer = json.loads(ran.stdout)
    if "missing" in answer:
        hint = install_line("documents")
        raise NotInstalled(f"to read it, a person has to install {answer['missing']}: {hint}")
    if "error" in answer:
        raise ToolError(answer["error"])
    return answer["text"], answer["has_more"]


def _kind_of(raw: bytes, path: str) -> Kind | None:
    if b"%PDF-" in raw[:1024]:
        return "pdf"
    if raw.startswith(b"PK\x03\x04"):
        return "word"
    begins = raw[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if path.lower().endswith((".html", ".htm", ".xhtml")) or begins.startswith((b"<!doctype html", b"<html")):
        return "html"
    return None


def _instead(raw: bytes) -> str:
    """Return what to do with a file of another kind, where that is known."""
    if raw.startswith(b"\xd0\xcf\x11\xe0"):
        return ": it is an old Office file, to be saved as .docx"
    if raw.startswith(b"{\\rtf"):
        return ": it is RTF, to be saved as .docx"
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    return ": it is plain text, for file_read"
