"""Download of weights from the Hugging Face hub, or from a mirror named by `HF_ENDPOINT`.

Protocol: GET `<endpoint>/<repository>/resolve/main/<file>`, with possible redirects, and with `Range` (RFC
9110, section 14) to resume an earlier attempt.
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

from lemming.ext import ConfigError
from lemming.kernel.base.errors import Unavailable
from lemming.kernel.base.integers import to_int
from lemming.kernel.base.redaction.secrets import strip_userinfo
from lemming.kernel.files import fs

HUB = "https://huggingface.co"
ENDPOINT_ENV = "HF_ENDPOINT"
READ_TIMEOUT_S = 60.0
"""A server that says nothing for so long is given up."""
MAX_FRUITLESS_TRIES = 3
_CHUNK_BYTES = 1 << 20
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")

Progress = Callable[[str, int, int], None]


def build_download_url(repository: str, file: str) -> str:
    """Return the URL of a file. Raises `ConfigError` for an invalid `HF_ENDPOINT`."""
    endpoint = os.environ.get(ENDPOINT_ENV, "").strip().rstrip("/") or HUB
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        display_endpoint = strip_userinfo(endpoint)
        raise ConfigError(
            f"expected the address of a hub, got {display_endpoint!r}",
            where=ENDPOINT_ENV,
            hint=f"use {HUB}, for example",
        )
    return f"{endpoint}/{quote(repository)}/resolve/main/{quote(file)}"


def download_file(
    repository: str, file: str, folder: Path, part_name: str, size_bytes: int, progress: Progress
) -> None:
    """Download a file to `folder/part_name`, after the bytes already there, up to `size_bytes`, unchecked.

    A cut connection is resumed. After a failure the partial file stays for the next attempt. Raises
    `Unavailable`, `ConfigError`, `DiskError`.
    """
    address, tries = build_download_url(repository, file), 0
    while (start := _file_size(folder / part_name)) != size_bytes:
        if start > size_bytes:
            fs.remove(folder, part_name)
            continue
        problem = _resume_download(address, folder, part_name, start, size_bytes, progress)
        tries = 0 if _file_size(folder / part_name) > start else tries + 1
        if tries >= MAX_FRUITLESS_TRIES:
            raise Unavailable(problem, where=strip_userinfo(address), hint=_HINT)


_HINT = f"run it again to continue the download; set {ENDPOINT_ENV} to use a mirror"


def _resume_download(
    address: str, folder: Path, part_name: str, start: int, size_bytes: int, progress: Progress
) -> str:
    """Append the server's bytes from `start` on; return the reason for the end."""
    # Uncompressed: `Range` counts bytes on the wire.
    headers = {"user-agent": "lemming", "accept-encoding": "identity"}
    if start:
        headers["range"] = f"bytes={start}-"
    request = urllib.request.Request(address, headers=headers)  # noqa: S310 - the scheme was looked at
    try:
        with urllib.request.urlopen(request, timeout=READ_TIMEOUT_S) as response:  # noqa: S310
            response_start = _parse_range_start(response, size_bytes, address)
            if response_start != start:
                fs.remove(folder, part_name)
                if response_start:
                    message = "the server sent another part of the file than requested"
                    raise Unavailable(message, where=strip_userinfo(address))
            return _append_response(response, folder, part_name, size_bytes, progress)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # the partial file does not begin the new one
            fs.remove(folder, part_name)
        if error.code in (401, 403, 404):
            message = f"HTTP {error.code}: the file does not exist"
            raise Unavailable(message, where=strip_userinfo(address), hint=_HINT) from None
        return f"HTTP {error.code}"
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return f"the connection was cut: {reason}" if start else f"cannot be reached: {reason}"


def _parse_range_start(response: Any, size_bytes: int, address: str) -> int:
    """Return the first byte's position in the response. Raises `Unavailable` for another file."""
    match = _RANGE.fullmatch(response.headers.get("content-range", "")) if response.status == 206 else None
    start = to_int(match[1]) if match else 0
    length = response.headers.get("content-length")
    total = match[2] if match else length
    if total and total.isdigit() and to_int(total) != size_bytes:
        message = f"the file must have {size_bytes:,} bytes, got {to_int(total):,}"
        raise Unavailable(message, where=strip_userinfo(address))
    return start


def _append_response(response: Any, folder: Path, part_name: str, size_bytes: int, progress: Progress) -> str:
    with fs.AppendFile(folder, part_name) as target:
        try:
            while chunk := response.read(_CHUNK_BYTES):
                if target.size + len(chunk) > size_bytes:
                    return "the server sent more bytes than the file has"
                target.append(chunk)
                progress("downloading", target.size, size_bytes)
        finally:
            target.sync()
    return "the connection was closed"


def _file_size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0
