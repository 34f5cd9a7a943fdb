"""Fetching a file of weights from the Hugging Face hub, or a mirror of it that `HF_ENDPOINT` names.

Protocol: GET `<endpoint>/<repository>/resolve/main/<file>`, which may redirect to where the bytes are, with
`Range` (RFC 9110, section 14) to go on with what an earlier attempt has left.
"""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from lemming.kernel.base.errors import ConfigError, Unavailable
from lemming.kernel.base.integers import to_int
from lemming.kernel.base.redaction.secrets import without_userinfo
from lemming.kernel.files import fs

HUB = "https://huggingface.co"
ENDPOINT_ENV = "HF_ENDPOINT"
SILENCE_S = 60.0
"""A server that says nothing for so long is given up."""
TRIES_WITHOUT_A_BYTE = 3
_CHUNK_BYTES = 1 << 20
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")

Progress = Callable[[str, int, int], None]


def address_of(repository: str, file: str) -> str:
    """Return where a file is; raise `ConfigError` when `HF_ENDPOINT` is no address."""
    endpoint = os.environ.get(ENDPOINT_ENV, "").strip().rstrip("/") or HUB
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = without_userinfo(endpoint)
        raise ConfigError(f"no address of a hub: {shown!r}", where=ENDPOINT_ENV, hint=f"such as {HUB}")
    return f"{endpoint}/{quote(repository)}/resolve/main/{quote(file)}"


def download(
    repository: str, file: str, folder: Path, beside: str, size_bytes: int, progress: Progress
) -> None:
    """Fetch a file into `folder/beside`, after what is there of it; it ends with `size_bytes`, unchecked.

    A connection that is cut is taken up again. What was fetched stays for the next time when nothing more
    comes. Raises `Unavailable`, `ConfigError`, `DiskError`.
    """
    address, tries = address_of(repository, file), 0
    while (there := _size(folder / beside)) != size_bytes:
        if there > size_bytes:
            fs.remove(folder, beside)
            continue
        problem = _go_on(address, folder, beside, there, size_bytes, progress)
        tries = 0 if _size(folder / beside) > there else tries + 1
        if tries >= TRIES_WITHOUT_A_BYTE:
            raise Unavailable(problem, where=without_userinfo(address), hint=_HINT)


_HINT = f"run it again: it goes on where it stopped; {ENDPOINT_ENV} names a mirror"


def _go_on(address: str, folder: Path, beside: str, there: int, size_bytes: int, progress: Progress) -> str:
    """Take what the server sends after `there` bytes; return why it ended."""
    # Not packed: `Range` counts bytes of what is sent.
    headers = {"user-agent": "lemming", "accept-encoding": "identity"}
    if there:
        headers["range"] = f"bytes={there}-"
    request = urllib.request.Request(address, headers=headers)  # noqa: S310 - the scheme was looked at
    try:
        with urllib.request.urlopen(request, timeout=SILENCE_S) as response:  # noqa: S310
            begins = _begin_of(response, size_bytes, address)
            if begins != there:
                fs.remove(folder, beside)
                if begins:
                    message = "the server sends another part than was asked for"
                    raise Unavailable(message, where=without_userinfo(address))
            return _take(response, folder, beside, size_bytes, progress)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # what is there is no beginning of it
            fs.remove(folder, beside)
        if error.code in (401, 403, 404):
            message = f"HTTP {error.code}: there is no such file"
            raise Unavailable(message, where=without_userinfo(address), hint=_HINT) from None
        return f"HTTP {error.code}"
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return f"the connection was cut: {reason}" if there else f"cannot be reached: {reason}"


def _begin_of(response: Any, size_bytes: int, address: str) -> int:
    """Return from which byte on the answer is; raise `Unavailable` when it is of another file."""
    found = _RANGE.fullmatch(response.headers.get("content-range", "")) if response.status == 206 else None
    begins = to_int(found[1]) if found else 0
    length = response.headers.get("content-length")
    whole = found[2] if found else length
    if whole and whole.isdigit() and to_int(whole) != size_bytes:
        message = f"not the file that is wanted: {to_int(whole):,} bytes, not {size_bytes:,}"
        raise Unavailable(message, where=without_userinfo(address))
    return begins


def _take(response: Any, folder: Path, beside: str, size_bytes: int, progress: Progress) -> str:
    with fs.AppendFile(folder, beside) as target:
        try:
            while chunk := response.read(_CHUNK_BYTES):
                if target.size + len(chunk) > size_bytes:
                    return "the server sends more than the file has"
                target.append(chunk)
                progress("downloading", target.size, size_bytes)
        finally:
            target.sync()
    return "the connection was cut"


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0
