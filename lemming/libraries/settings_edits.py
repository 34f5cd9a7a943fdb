"""The only way to change existing settings files and resumes.

A writer locks the folder from reading the file to writing it, which prevents lost updates, and starts from
the file's current content. A missing file that the last tick used is not treated as empty.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from lemming.kernel.agents import decode_resume
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.jsontext import JsonProblem, dump_pretty, locate, parse, to_line
from lemming.kernel.files import fs
from lemming.kernel.files.folder_lock import lock_folder
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.settings_files import FilesInUse, missing_file

_LIMIT_BYTES = 1 << 20


class OpenedFile:
    """A locked file. `raw` holds the current content, an empty object if the file does not exist."""

    def __init__(self, base: OrgPath, file: str) -> None:
        self._base, self._file = Path(base), file
        try:
            self.raw = fs.read_bytes(f"{base}/{file}", _LIMIT_BYTES)
        except FileNotFoundError:
            if Organisation.from_path(base).get_cache(FilesInUse).has(file):
                raise missing_file(file) from None
            self.raw = b"{}\n"
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", where=file) from error

    def publish(self, content: bytes, *, sync: bool = False) -> None:
        """Replace the file's content; with `sync` the new content survives power loss."""
        fs.write_atomic(self._base, self._file, content, sync=sync)
        self.raw = content


@contextlib.contextmanager
def edit_file(base: OrgPath, file: str) -> Iterator[OpenedFile]:
    """Open a settings file or a resume for one change; other writers wait.

    Raises `ConfigError` for an unreadable or missing file, `OrgBusy` after some seconds, `DiskError`.
    """
    with lock_folder(Path(base), str(PurePosixPath(file).parent)):
        yield OpenedFile(base, file)


@contextlib.contextmanager
def lock_folders(base: OrgPath, files: Iterable[str]) -> Iterator[None]:
    """Lock the folders of several files, in a fixed order that prevents deadlocks."""
    with contextlib.ExitStack() as stack:
        for folder in sorted({str(PurePosixPath(file).parent) for file in files}):
            stack.enter_context(lock_folder(Path(base), folder))
        yield


def preserve_layout(raw: bytes, value: Any) -> bytes:
    """Return `raw` unchanged if it already holds `value`, else `value` written anew."""
    try:
        return raw if parse(raw, allow_bom=True) == value else dump_pretty(value)
    except JsonProblem:
        return dump_pretty(value)


def set_json_value(raw: bytes, keys: list[str], value: Any) -> bytes:
    """Return a JSON file with a value replaced or added; the layout of the rest stays unchanged.

    >>> set_json_value(b'{"a":  {"b": [1, 2]}}', ["a", "b"], "c")
    b'{"a":  {"b": "c"}}'
    """
    updated = _set_nested(parse(raw, allow_bom=True), keys, value)
    text = raw.decode("utf-8", "surrogateescape")
    changed = _replace_value(text, keys, value).encode("utf-8", "surrogateescape")
    return preserve_layout(changed, updated)


def _replace_value(text: str, keys: list[str], value: Any) -> str:
    bom = "\ufeff" if text.startswith("\ufeff") else ""
    text = text.removeprefix(bom)
    line, column = locate(text, "".join(f"/{key}" for key in keys))
    if not line:
        return text
    key_offset = sum(len(text_line) for text_line in text.splitlines(keepends=True)[: line - 1]) + column - 1
    begin = text.index(":", key_offset + len(json.dumps(keys[-1]))) + 1
    begin += len(text[begin:]) - len(text[begin:].lstrip())
    _, end = json.JSONDecoder().raw_decode(text, begin)
    return f"{bom}{text[:begin]}{to_line(value)}{text[end:]}"


def _set_nested(value_tree: Any, keys: list[str], value: Any) -> Any:
    first, *inner_keys = keys
    return {**value_tree, first: _set_nested(value_tree.get(first, {}), inner_keys, value) if inner_keys else value}


def append_item(base: OrgPath, agent: str | None, keys: tuple[str, ...], item: str) -> str:
    """Append an item to a list of a resume, or of `config/org.json` (None).

    Returns: the changed file, or an empty string if the list contains the item or `*`.

    Raises: ConfigError if the resulting resume would be invalid.
    """
    file = paths.ORG_FILE if agent is None else paths.resume_file(agent)
    with edit_file(base, file) as locked_file:
        document: dict[str, Any] = parse(locked_file.raw, allow_bom=True)
        parent = document
        for key in keys[:-1]:
            parent[key] = parent = dict(parent.get(key) or {})
        items = parent.get(keys[-1]) or []
        if item in items or "*" in items:
            return ""
        parent[keys[-1]] = [*items, item]
        content = dump_pretty(document)
        if agent:
            decode_resume(agent, content)
        locked_file.publish(content)
    return file
