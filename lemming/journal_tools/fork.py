"""Forks an organisation: a copy of its state after a tick, optionally with changed files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemming.git_history.history_reader import PastState
from lemming.git_history.rewind import copy_journals
from lemming.journal_tools.journal_history import PastStates
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import JsonProblem, did_you_mean, dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.files.unknown_keys import unknown_keys
from lemming.kernel.org.config import FILE_TYPES
from lemming.kernel.tick.tick_counter import persist_tick
from lemming.libraries.atomic_folder import require_free, require_outside, stage_org
from lemming.libraries.lenient_json import parse_or_default

_FILE_LIMIT_BYTES = 64 << 20
_RESUME = re.compile(r"agents/[^/]+/resume\.json\Z")


@dataclass(frozen=True)
class SettingOverride:
    """A changed value: the JSON pointer in a file gets `value`."""

    file: str
    pointer: str
    value: Any

    @classmethod
    def parse(cls, text: str) -> SettingOverride:
        """Parse an override of the form `FILE:POINTER=VALUE`; the value is JSON, or else text.

        >>> SettingOverride.parse("config/org.json:/inbox_limit=5")
        SettingOverride(file='config/org.json', pointer='/inbox_limit', value=5)

        Raises `UsageError`.
        """
        location, equals, value = text.partition("=")
        file, colon, pointer = location.partition(":")
        if not (equals and colon and file and pointer.startswith("/")):
            hint = "write for example agents/ada/resume.json:/model/key=fast"
            raise UsageError(f"expected FILE:/POINTER=VALUE, got {text[:80]!r}", hint=hint)
        return cls(file, pointer, parse_or_default(value, value))


def fork(past: PastStates, state: PastState, folder: Path, overrides: list[SettingOverride]) -> list[str]:
    """Create an organisation in `folder` from a past state, and return the files changed by `overrides`.

    Journals up to the tick are copied; the original is not changed. An interrupted fork leaves no organisation. Raises
    `UsageError` before writing anything if the folder is not empty or an override is invalid.
    """
    require_free(folder)
    require_outside(past.base, folder, subject="the fork")
    changed = apply_overrides(overrides, lambda file: past.read_file(state.commit, file))
    # a half-made fork would run as if it were whole: without journals, and with nothing spent
    with stage_org(folder, "fork") as new_base:
        past.checkout(state.commit, new_base)
        for file, content in changed.items():
            fs.write_atomic(new_base, file, content)
        # of a commit that a rewind has set aside there are no journals any more
        if state.commit in past.list_branch_commits():
            copy_journals(past.base, new_base, until=state.tick)
        persist_tick(new_base, state.tick + 1)
    return list(changed)


def apply_overrides(overrides: Iterable[SettingOverride], read: Callable[[str], bytes]) -> dict[str, bytes]:
    """Return the files changed by overrides, with their new contents; `read` returns the old contents.

    Raises `UsageError` for an override that does not fit or that the engine would ignore.
    """
    changed: dict[str, bytes] = {}
    for override in overrides:
        raw = changed.get(override.file) or read(override.file)  # several settings may change one file
        changed[override.file] = apply_override(raw, override)
    return changed


def apply_override(raw: bytes, override: SettingOverride) -> bytes:
    """Return a JSON file with a changed value. The object or list around the value must exist.

    Raises `UsageError`, also for a key that the engine would ignore.

    >>> apply_override(b'{"a": [1, 2]}', SettingOverride("f", "/a/1", "x")).decode().split()
    ['{', '"a":', '[', '1,', '"x"', ']', '}']
    """
    try:
        content = parse(raw, limit_bytes=_FILE_LIMIT_BYTES, allow_bom=True)
    except JsonProblem as error:
        raise UsageError(f"{override.file} must be JSON: {error}", hint="name a JSON file") from error
    *parents, last_part = [part.replace("~1", "/").replace("~0", "~") for part in override.pointer.split("/")[1:]]
    container = content
    for part in parents:
        container = _descend(container, part, override)
    if isinstance(container, list) and last_part == "-":
        container.append(override.value)
    else:
        # a file without a type may contain anything, so only existing keys count
        if not (isinstance(container, dict) and _find_file_type(override.file)):
            _descend(container, last_part, override)
        container[int(last_part) if isinstance(container, list) else last_part] = override.value
    require_effect(override.file, raw, changed := dump_pretty(content), request=f"--set {override.pointer}")
    return changed


def require_effect(file: str, old_content: bytes, new_content: bytes, *, request: str) -> None:
    """Raise `UsageError` for a new key without effect, likely a typing error. `request`: for the message."""
    file_type = _find_file_type(file)
    if file_type is None:  # a memory, or a shared file
        return
    old, new = (parse(raw, limit_bytes=_FILE_LIMIT_BYTES, allow_bom=True) for raw in (old_content, new_content))
    old_pointers = {problem.pointer for problem in unknown_keys(old, file_type)} if isinstance(old, dict) else set()
    for problem in unknown_keys(new, file_type) if isinstance(new, dict) else ():
        if problem.pointer not in old_pointers:
            raise UsageError(f"{request}: {problem.message} in {file}", hint=problem.hint)


def _find_file_type(file: str) -> Any:
    """Return the type with the keys of a file, or None if the file may contain anything."""
    return FILE_TYPES.get(file) or (Agent if _RESUME.match(file) else None)


def _descend(container: Any, part: str, override: SettingOverride) -> Any:
    if isinstance(container, dict) and part in container:
        return container[part]
    if isinstance(container, list) and part.isdecimal() and int(part) < len(container):
        return container[int(part)]
    is_object = isinstance(container, dict)
    message = f'key "{part}" does not exist' if is_object else f"item {part} does not exist"
    hint = (did_you_mean(part, [*container]) if is_object else "") or "name a value in an existing object or list"
    raise UsageError(f"{override.file} has no value at {override.pointer}: {message}", hint=hint)
