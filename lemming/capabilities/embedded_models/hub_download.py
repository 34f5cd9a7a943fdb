"""Download of weights from the Hugging Face hub, or from a mirror named by `HF_ENDPOINT`, with the hub's own library.

Of the library, `http_get` is used: its `hf_hub_download` begins anew after a failure, and keeps files in a cache of its
own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from lemming.ext import ConfigError
from lemming.kernel.base.errors import Unavailable, UsageError
from lemming.kernel.base.redaction.secrets import strip_userinfo
from lemming.kernel.files import fs
from lemming.libraries.optional_packages import install_command

HUB = "https://huggingface.co"
ENDPOINT_ENV = "HF_ENDPOINT"

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
    `Unavailable`, `ConfigError`, `UsageError` without the package, `DiskError`.
    """
    address, http_get = build_download_url(repository, file), _load_http_get()
    where = strip_userinfo(address)
    from httpx2 import HTTPError
    from huggingface_hub.errors import HfHubHTTPError

    with fs.AppendFile(folder, part_name) as file_part:
        if file_part.size > size_bytes:
            file_part.truncate(0)
        part = _PartFile(file_part, where, size_bytes, progress)
        try:
            # Uncompressed: `Range` counts bytes on the wire. Without a token: the files are public.
            http_get(
                address, part, resume_size=file_part.size, expected_size=size_bytes, tqdm_class=part.require_total,
                headers={"user-agent": "lemming", "accept-encoding": "identity"},
            )  # fmt: skip
        except HfHubHTTPError as error:
            status = error.response.status_code
            if status == 416:  # the partial file does not begin this one
                file_part.truncate(0)
            is_missing = status in (401, 403, 404)
            reason = f"HTTP {status}{': the file does not exist' if is_missing else ''}"
            raise Unavailable(reason, where=where, hint=_HINT) from None
        except (HTTPError, OSError) as error:
            reason = "the connection was cut" if file_part.size else "cannot be reached"
            raise Unavailable(f"{reason}: {type(error).__name__}", where=where, hint=_HINT) from None
        finally:
            file_part.sync()
            if not file_part.size:
                fs.remove(folder, part_name)


_HINT = f"run it again to continue the download; set {ENDPOINT_ENV} to use a mirror"


def _load_http_get() -> Any:
    """Return the function of the hub's library that downloads a file after the bytes that are there."""
    try:
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils.logging import set_verbosity_error
    except ImportError as error:
        message = "a download from the hub needs the package huggingface_hub, which is not installed"
        raise UsageError(message, hint=install_command("local")) from error
    set_verbosity_error()  # a warning would show the address of a mirror with its password
    return http_get


class _PartFile:
    """The partial file as the hub's library writes it, with its size checked and its progress told."""

    def __init__(self, file: fs.AppendFile, where: str, size_bytes: int, progress: Progress) -> None:
        self._file, self._where, self._size_bytes, self._progress = file, where, size_bytes, progress
        self._position = 0

    @contextlib.contextmanager
    def require_total(self, *, total: int | None = None, **_: object) -> Iterator[_PartFile]:
        """Stand in for the library's progress bar. Raises `Unavailable` for a file of another size."""
        if total not in (None, self._size_bytes):
            message = f"the file must have {self._size_bytes:,} bytes, got {total:,}"
            raise Unavailable(message, where=self._where)
        yield self

    def update(self, _: int) -> None:
        """Ignore the progress, which `write` tells."""

    def write(self, chunk: bytes) -> None:
        self._file.append(chunk)
        self._progress("downloading", self._file.size, self._size_bytes)

    def tell(self) -> int:
        return self._file.size

    def seek(self, position: int) -> None:
        self._position = position

    def truncate(self) -> None:
        """Start anew: the server has ignored the range."""
        self._file.truncate(self._position)
