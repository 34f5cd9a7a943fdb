"""What runs code, and what an agreement to that is bound to: files in here, the exact words of commands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.kernel.access.trust import Reach
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.jsontext import compact
from lemming.kernel.files.real_place import real_path
from lemming.kernel.files.stamps import FileCache, is_file, status_of
from lemming.kernel.org.organisation import Organisation, OrgPath

LIMIT_BYTES = 64 << 20


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
    from lemming.kernel.access.plugin_files import files_of_module

    return of_files(base, files_of_module(Path(base), name))


def code(does: str, bound_to: Mapping[str, str] | None = None) -> Reach:
    """Return something that runs code of the organisation's own: it waits for somebody to agree."""
    return Reach(does, bound_to or {}, needs_agreement=True)


def program(base: OrgPath, place: str, options: Mapping[str, Any]) -> Reach:
    """Return that a program is run, as the options of a model key in `config/models.json` say."""
    words = options.get("command")
    command = " ".join(map(str, words)) if isinstance(words, list) else str(words)
    rest = "".join(f", {name} {json.dumps(options[name])}" for name in ("env", "cwd") if options.get(name))
    run = {name: options.get(name) for name in ("command", "cwd", "env")}
    does = f"runs the program: {command}{rest}"
    return code(does, of_command(base, place, run, words, options.get("cwd")))


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
            status = status_of(f"{base}/{file}")
        except OSError:
            return f"unreadable: {error.strerror}"
        return f"{status.st_size} bytes of {status.st_mtime_ns}"


def _nothing(_: bytes) -> None:
    return None


def _files_named(base: Path, words: Iterable[str], cwd: str) -> Iterator[str]:
    """Yield the files of the organisation that words of a command name, alone or after a `=`."""
    org = Path(real_path(f"{base}"))
    for word in words:
        for text in {word, word.partition("=")[2]} - {""}:  # as in --config=FILE
            for folder in {org, org / cwd}:
                try:
                    found = Path(real_path(f"{folder / text}"))
                    if found.is_relative_to(org) and is_file(f"{found}"):
                        yield str(found.relative_to(org))
                except ValueError:  # no path at all: a whole program in a word
                    continue
