"""What an agreement is bound to: files of an organisation whose code runs, the exact words of commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from lemming.errors import LemmingError
from lemming.files import fs
from lemming.files.cache import FileCache
from lemming.files.descriptors import walk
from lemming.files.jsontext import compact
from lemming.organisation import Organisation, OrgPath

LIMIT_BYTES = 64 << 20
_CODE = (".py", ".pyc", ".so", ".pyd", ".pth", ".zip")
_CACHE = "__pycache__"
_PYC_MADE_BY_STAMP = bytes(
    4
)  # the flags of docs.python.org/3/reference/import.html, "Cached bytecode invalidation"


def of_files(base: OrgPath, files: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each file, in hex, by its path in the organisation."""
    cache = Organisation.at(base).own(_Files).cache
    return {file: _digest(cache, base, file) for file in sorted(set(files))}


def of_setting(place: str, value: object) -> dict[str, str]:
    """Return the SHA-256 of what a setting says, in hex, by its place."""
    return {place: sha256(compact(value)).hexdigest()}


def of_command(base: OrgPath, place: str, value: object, words: object, cwd: object) -> dict[str, str]:
    """Return what a command is bound to: what its setting says, and the files in here that it names."""
    named = [str(word) for word in words] if isinstance(words, list) else str(words).split()
    return {**of_setting(place, value), **of_files(base, _files_named(Path(base), named, str(cwd or "")))}


def of_module(base: OrgPath, name: str) -> dict[str, str]:
    """Return what a plugin is bound to: its files, and those beside it, where Python may find it in here."""
    return of_files(base, _files_of_module(Path(base), name.partition(".")[0]))


class _Files:
    """The digests of files as they were last; the organisation's own cache holds values of other kinds."""

    def __init__(self, org: Organisation) -> None:
        self.cache = FileCache(org.base)


def _digest(cache: FileCache, base: OrgPath, file: str) -> str:
    try:
        return cache.reading(file, _nothing, limit_bytes=LIMIT_BYTES).digest
    except LemmingError:
        raise
    except OSError as error:  # gone by now, a link, or too large to be looked at before each tick
        try:
            status = os.lstat(Path(base) / file)
        except OSError:
            return f"unreadable: {error.strerror}"
        return f"{status.st_size} bytes of {status.st_mtime_ns}"


def _nothing(_: bytes) -> None:
    return None


def _files_named(base: Path, words: Iterable[str], cwd: str) -> Iterator[str]:
    """Yield the files of the organisation that words of a command name, alone or after a `=`."""
    org = base.resolve()
    for word in words:
        for text in {word, word.partition("=")[2]} - {""}:
            for folder in {org, org / cwd}:
                try:
                    found = (folder / text).resolve()
                    if found.is_relative_to(org) and found.is_file():
                        yield str(found.relative_to(org))
                except (OSError, ValueError):  # no path at all: a whole program in a word
                    continue


def _files_of_module(base: Path, top: str) -> Iterator[str]:
    org = base.resolve()
    for entry in dict.fromkeys(sys.path):
        folder = Path(entry).resolve()
        if not folder.is_relative_to(org) or not _holds(folder, top):
            continue
        inside = folder.relative_to(org)
        for name in fs.list_names(str(folder)):
            if name.endswith(_CODE):
                yield str(inside / name)
        for above, _, files in walk(folder / top):
            for file in files:
                if Path(above).name != _CACHE or _is_never_checked(file.path):
                    yield str(Path(file.path).resolve().relative_to(org))


def _holds(folder: Path, top: str) -> bool:
    return folder.is_dir() and any(name.partition(".")[0] == top for name in fs.list_names(str(folder)))


def _is_never_checked(path: str) -> bool:
    """Return whether Python would run this bytecode whatever its source says; it writes none such."""
    try:
        with open(path, "rb") as file:
            return file.read(8)[4:] != _PYC_MADE_BY_STAMP
    except OSError:
        return True
