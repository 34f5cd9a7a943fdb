"""Extract the text of a document in a separate process, with memory and time limits set before reading.

`python -P -m lemming.capabilities.toolbox.document_reader KIND PART CHARS` reads the document from standard input and
answers with JSON: `{"text", "has_more"}`, or `{"error"}`, or `{"missing"}` with the name of a missing package.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import resource
import signal
import sys
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

MEMORY_LIMIT_BYTES = 1 << 30
CPU_LIMIT_S = 20
TIME_LIMIT_S = 40
_UNPACKED_LIMIT_BYTES = 64 << 20
_MEMBERS_LIMIT = 5000
_SKIPPED_TAGS = ("script", "style", "noscript", "template", "svg", "head")


class UnreadableDocument(Exception):
    """Raised for an unreadable document. The message gives the reason."""


def main() -> int:
    """Read a document from standard input and print the text as JSON."""
    kind, part, chars = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    _apply_limits()
    raw = sys.stdin.buffer.read()
    try:
        text, has_more = take_part(_READERS[kind](raw), part, chars)
        answer: dict[str, Any] = {"text": text, "has_more": has_more}
    except ModuleNotFoundError as error:
        answer = {"missing": error.name}
    except UnreadableDocument as error:
        answer = {"error": str(error)}
    except MemoryError:
        answer = {"error": f"to read it takes more than {MEMORY_LIMIT_BYTES >> 20} MiB of memory"}
    except RecursionError:
        answer = {"error": "it is nested too deep"}
    except Exception as error:  # noqa: BLE001 - the edge of this process: what a broken file leads to is anything
        answer = {"error": f"it is broken: {type(error).__name__}: {error}"[:500]}
    sys.stdout.buffer.write(json.dumps(answer).encode())
    return 0


def take_part(pieces: Iterator[str], part: int, chars: int) -> tuple[str, bool]:
    """Return part `part` (from 1, `chars` long) of a text in pieces, and True if more text follows.

    The function consumes no piece beyond this part.

    >>> take_part(iter(["abc", "def", "ghi"]), 2, 4)
    ('efgh', True)
    """
    text, end = "", part * chars
    for piece in pieces:
        text += piece
        if len(text) > end:
            break
    return text[end - chars : end], len(text) > end


def _apply_limits() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it writes no file
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(TIME_LIMIT_S)  # also if the engine is gone by then


def _read_pdf(raw: bytes) -> Iterator[str]:
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(raw))
    if reader.is_encrypted and not reader.decrypt(""):
        raise UnreadableDocument("it is encrypted and opens with a password only")
    has_text = False
    count = len(reader.pages)
    for number, page in enumerate(reader.pages, 1):
        text = page.extract_text().strip()
        has_text = has_text or bool(text)
        yield f"[page {number} of {count}]\n{text}\n\n"
    if not has_text:
        raise UnreadableDocument(f"none of its {count} pages holds text: they are pictures, or empty")


def _read_word(raw: bytes) -> Iterator[str]:
    import mammoth

    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        members = archive.infolist()
    if "word/document.xml" not in [member.filename for member in members]:
        raise UnreadableDocument("it is an archive, and no Word document (.docx)")
    unpacked = sum(member.file_size for member in members)
    if len(members) > _MEMBERS_LIMIT or unpacked > _UNPACKED_LIMIT_BYTES:
        raise UnreadableDocument(f"it unpacks to {unpacked} bytes in {len(members)} files, which is too much")
    no_image = mammoth.images.img_element(lambda image: {"src": ""})
    yield from _read_html(mammoth.convert_to_html(io.BytesIO(raw), convert_image=no_image).value.encode())


def _read_html(raw: bytes) -> Iterator[str]:
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    soup = BeautifulSoup(raw, "html.parser")
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    for tag in soup(_SKIPPED_TAGS):
        tag.decompose()
    text = str(MarkdownConverter(heading_style="ATX", strip=["img"]).convert_soup(soup)).strip()
    text = re.sub(r"[ \t]+\n", "\n", text)
    text = re.sub(r"\n{3,}", "\n\n", text)
    yield from itertools.chain([f"{title}\n\n"] if title and not text.startswith("# ") else [], [text])


_READERS: dict[str, Callable[[bytes], Iterator[str]]] = {"pdf": _read_pdf, "word": _read_word, "html": _read_html}

if __name__ == "__main__":
    sys.exit(main())
