"""Permissions to run code, and the digests they are bound to: files in the organisation, exact commands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.kernel.access.workspace_trust import RequiredPermission
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.files.canonical_path import real_path
from lemming.kernel.files.stat_cache import FileCache, is_file, lstat
from lemming.kernel.org.organisation import Organisation, OrgPath

FILE_LIMIT_BYTES = 64 << 20


def digest_files(base: OrgPath, files: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each file, in hex, by the path in the organisation."""
    cache = Organisation.from_path(base).get_cache(_DigestCache).cache
    return {file: _digest(cache, base, file) for file in sorted(set(files))}


def digest_setting(setting: str, value: object) -> dict[str, str]:
    """Return the SHA-256 of a setting's value, in hex, by the setting's name."""
    return {setting: sha256(dump_compact(value)).hexdigest()}


def digest_command(base: OrgPath, setting: str, value: object, arguments: object, cwd: object) -> dict[str, str]:
    """Return the digests of a command: of the setting's value, and of the organisation's files named in it."""
    texts = [str(argument) for argument in arguments] if isinstance(arguments, list) else str(arguments).split()
    return {
        **digest_setting(setting, value),
        # The files too: the same command with another script is another program.
        **digest_files(base, _find_named_files(Path(base), texts, str(cwd or ""))),
    }


def digest_plugin(base: OrgPath, name: str) -> dict[str, str]:
    """Return the digests of a plugin's files and neighbours, if Python may find it in the organisation."""
    from lemming.kernel.access.plugin_files import find_module_files

    return digest_files(base, find_module_files(Path(base), name))


def code_permission(does: str, bound_to: Mapping[str, str] | None = None) -> RequiredPermission:
    """Return a permission to run the organisation's own code, which requires workspace trust."""
    return RequiredPermission(does, bound_to or {}, needs_agreement=True)


def program_permission(base: OrgPath, setting: str, options: Mapping[str, Any]) -> RequiredPermission:
    """Return a permission to run a program, from the options of a model key in `config/models.json`."""
    arguments = options.get("command")
    command = " ".join(map(str, arguments)) if isinstance(arguments, list) else str(arguments)
    option_text = "".join(f", {name} {json.dumps(options[name])}" for name in ("env", "cwd") if options.get(name))
    command_options = {name: options.get(name) for name in ("command", "cwd", "env")}
    does = f"runs the program: {command}{option_text}"
    return code_permission(does, digest_command(base, setting, command_options, arguments, options.get("cwd")))


class _DigestCache:
    """Cached digests of files, separate from the organisation's own cache of parsed values."""

    def __init__(self, org: Organisation) -> None:
        self.cache = FileCache(org.base)


def _digest(cache: FileCache, base: OrgPath, file: str) -> str:
    try:
        return cache.get_reading(file, lambda _: None, limit_bytes=FILE_LIMIT_BYTES).digest
    except LemmingError:
        raise
    except OSError as error:  # missing, a link, or too large to hash before each tick
        try:
            status = lstat(f"{base}/{file}")
        except OSError:
            return f"unreadable: {error.strerror}"
        return f"{status.st_size} bytes of {status.st_mtime_ns}"


def _find_named_files(base: Path, arguments: Iterable[str], cwd: str) -> Iterator[str]:
    """Yield the files of the organisation named by a command's arguments, alone or after a `=`."""
    org = Path(real_path(f"{base}"))
    for argument in arguments:
        for text in {argument, argument.partition("=")[2]} - {""}:  # as in --config=FILE
            for folder in {org, org / cwd}:
                try:
                    file = Path(real_path(f"{folder / text}"))
                    if file.is_relative_to(org) and is_file(f"{file}"):
                        yield str(file.relative_to(org))
                except ValueError:  # not a path: a whole program in one argument
                    continue
