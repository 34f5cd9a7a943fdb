"""The text of one document: a program of its own, with limits on memory and time before it looks at a byte.

`python -P -m lemming.capabilities.toolbox.document_reader KIND PART CHARS` takes the document on
standard input. It answers with JSON: `{"text", "has_more"}`, or `{"error"}`, or `{"missing"}`, the package
that is not there.
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
_NOT_READ = ("script", "style", "noscript", "template", "svg", "head")


class Unreadable(Exception):
    """The document cannot be read; the message says why."""


def main() -> int:
    """Read a document and print its text."""
    kind, part, chars = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    _limit()
    raw = sys.stdin.buffer.read()
    try:
        text, has_more = take(_READERS[kind](raw), part, chars)
        answer: dict[str, Any] = {"text": text, "has_more": has_more}
    except ModuleNotFoundError as error:
        answer = {"missing": error.name}
    except Unreadable as error:
        answer = {"error": str(error)}
    except MemoryError:
        answer = {"error": f"to read it takes more than {MEMORY_LIMIT_BYTES >> 20} MiB of memory"}
    except RecursionError:
        answer = {"error": "it is nested too deep"}
    except Exception as error:  # noqa: BLE001 - the edge of this process: what a broken file leads to is anything
        answer = {"error": f"it is broken: {type(error).__name__}: {error}"[:500]}
    sys.stdout.buffer.write(json.dumps(answer).encode())
    return 0


def take(pieces: Iterator[str], part: int, chars: int) -> tuple[str, bool]:
    """Return part number `part`, from 1, of a text in pieces, `chars` long, and whether there is more.

    No piece is asked for beyond that.

    >>> take(iter(["abc", "def", "ghi"]), 2, 4)
    ('efgh', True)
    """
    text, end = "", part * chars
    for piece in pieces:
        text += piece
        if len(text) > end:
            break
    return text[end - chars : end], len(text) > end


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it writes no file
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(TIME_LIMIT_S)  # also if the engine is gone by then


def _pdf(raw: bytes) -> Iterator[str]:
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(raw))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unreadable("it is encrypted and opens with a password only")
    found = False
    count = len(reader.pages)
    for number, page in enumerate(reader.pages, 1):
        text = page.extract_text().strip()
        found = found or bool(text)
        yield f"[page {number} of {count}]\n{text}\n\n"
    if not found:
        raise Unreadable(f"none of its {count} pages holds text: they are pictures, or empty")


def _word(raw: bytes) -> Iterator[str]:
    import mammoth

    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        members = archive.infolist()
    if "word/document.xml" not in [member.filename for member in members]:
        raise Unreadable("it is an archive, and no Word document (.docx)")
    unpacked = sum(member.file_size for member in members)
    if len(members) > _MEMBERS_LIMIT or unpacked > _UNPACKED_LIMIT_BYTES:
        raise Unreadable(f"it unpacks to {unpacked} bytes in {len(members)} files, which is too much")
    no_image = mammoth.images.img_element(lambda image: {"src": ""})
    yield from _html(mammoth.convert_to_html(io.BytesIO(raw), convert_image=no_image).value.encode())


def _html(raw: bytes) -> Iterator[str]:
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    soup = BeautifulSoup(raw, "html.parser")
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    for tag in soup(_NOT_READ):
        tag.decompose()
    text = str(MarkdownConverter(heading_style="ATX", strip=["img"]).convert_soup(soup)).strip()
    text = re.sub(r"[ \t]+\n", "\n", text)
    text = re.sub(r"\n{3,}", "\n\n", text)
    yield from itertools.chain([f"{title}\n\n"] if title and not text.startswith("# ") else [], [text])


_READERS: dict[str, Callable[[bytes], Iterator[str]]] = {"pdf": _pdf, "word": _word, "html": _html}

if __name__ == "__main__":
    sys.exit(main())
