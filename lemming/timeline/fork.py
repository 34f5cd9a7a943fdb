"""A second organisation that goes on from where this one was after a tick, with changed files if wanted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemming.history.journals import copy_journals
from lemming.history.read import State
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import Problem, UsageError
from lemming.kernel.base.jsontext import JsonProblem, nearest, parse, pretty
from lemming.kernel.files import fs
from lemming.kernel.files.unknown import unknown_keys
from lemming.kernel.files.whole_folder import put_whole, require_free
from lemming.kernel.org.config import KINDS
from lemming.kernel.tick.counter import persist_tick
from lemming.timeline.unkept import PastStates

_FILE_LIMIT_BYTES = 64 << 20
_RESUME = re.compile(r"agents/[^/]+/resume\.json\Z")


@dataclass(frozen=True)
class Setting:
    """One change: what the JSON pointer names in a file becomes `value`."""

    file: str
    pointer: str
    value: Any

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Return the setting that `FILE:POINTER=VALUE` describes; the value is JSON, else text.

        >>> Setting.parse("config/org.json:/inbox_limit=5")
        Setting(file='config/org.json', pointer='/inbox_limit', value=5)

        Raises `UsageError`.
        """
        place, equals, value = text.partition("=")
        file, colon, pointer = place.partition(":")
        if not (equals and colon and file and pointer.startswith("/")):
            hint = "for example agents/ada/resume.json:/model/key=fast"
            raise UsageError(f"expected FILE:/POINTER=VALUE, found {text[:80]!r}", hint=hint)
        try:
            return cls(file, pointer, parse(value))
        except JsonProblem:
            return cls(file, pointer, value)


def fork(past: PastStates, state: State, folder: Path, settings: list[Setting]) -> list[str]:
    """Make an organisation in `folder` as this one was, and return the files that `settings` changed.

    Journals up to that tick come along; this organisation is not touched. A fork that is ended
    half-way leaves no organisation. Raises `UsageError` before anything is written when the folder is not
    empty or a setting does not fit.
    """
    _require_free(past.base, folder)
    changed = files_with(settings, lambda file: past.read_file(state.commit, file))
    # a half-made fork would run as if it were whole: without journals, and with nothing spent
    with put_whole(folder, "fork") as made:
        past.check_out(state.commit, made)
        for file, content in changed.items():
            fs.publish(made, file, content)
        # of a commit that a rewind has set aside there are no journals any more
        if state.commit in past.line():
            copy_journals(past.base, made, until=state.tick)
        persist_tick(made, state.tick + 1)
    return list(changed)


def files_with(settings: Iterable[Setting], read: Callable[[str], bytes]) -> dict[str, bytes]:
    """Return the files that settings change, with their new contents; `read` gives the old ones.

    Raises `UsageError` for a setting that does not fit, or that the engine would take no notice of.
    """
    changed: dict[str, bytes] = {}
    for setting in settings:
        raw = changed.get(setting.file) or read(setting.file)  # several settings may change one file
        changed[setting.file] = with_setting(raw, setting)
    return changed


def with_setting(raw: bytes, setting: Setting) -> bytes:
    """Return a JSON file with one value set. The object or list that holds it must be there.

    Raises `UsageError`, also for a key that the engine would take no notice of.

    >>> with_setting(b'{"a": [1, 2]}', Setting("f", "/a/1", "x")).decode().split()
    ['{', '"a":', '[', '1,', '"x"', ']', '}']
    """
    try:
        plain = parse(raw, limit_bytes=_FILE_LIMIT_BYTES, allow_bom=True)
    except JsonProblem as error:
        raise UsageError(f"{setting.file} is not JSON: {error}", hint="only JSON files can be set") from error
    *way, last = [part.replace("~1", "/").replace("~0", "~") for part in setting.pointer.split("/")[1:]]
    holder = plain
    for part in way:
        holder = _inside(holder, part, setting)
    if isinstance(holder, list) and last == "-":
        holder.append(setting.value)
    elif isinstance(holder, list):
        _inside(holder, last, setting)
        holder[int(last)] = setting.value
    elif isinstance(holder, dict):
        if _kind_of(setting.file) is None:  # anything may be in it, so that only what is there is meant
            _inside(holder, last, setting)
        holder[last] = setting.value
    else:
        raise _no_such_place(holder, last, setting)
    require_effect(setting.file, raw, changed := pretty(plain), said=f"--set {setting.pointer}")
    return changed


def require_effect(file: str, before: bytes, after: bytes, *, said: str) -> None:
    """Raise `UsageError` for a new key that the engine would take no notice of: a typing error, most likely.

    `said` is how the change was asked for.
    """
    kind = _kind_of(file)
    if kind is None:  # a memory, or a shared file
        return
    known = {problem.pointer for problem in _unknown_keys(before, kind)}
    for problem in _unknown_keys(after, kind):
        if problem.pointer not in known:
            raise UsageError(f"{said}: {problem.message} in {file}", hint=problem.hint)


def _unknown_keys(raw: bytes, kind: Any) -> list[Problem]:
    plain = parse(raw, limit_bytes=_FILE_LIMIT_BYTES, allow_bom=True)
    return list(unknown_keys(plain, kind)) if isinstance(plain, dict) else []


def _kind_of(file: str) -> Any:
    """Return the type that says which keys a file has; None where anything may be in it."""
    return KINDS.get(file) or (Agent if _RESUME.match(file) else None)


def _inside(holder: Any, part: str, setting: Setting) -> Any:
    if isinstance(holder, dict) and part in holder:
        return holder[part]
    if isinstance(holder, list) and part.isdecimal() and int(part) < len(holder):
        return holder[int(part)]
    raise _no_such_place(holder, part, setting)


def _no_such_place(holder: Any, part: str, setting: Setting) -> UsageError:
    """Return the error for a pointer that leads nowhere, with the nearest name that is there."""
    is_object = isinstance(holder, dict)
    why = f'there is no "{part}"' if is_object else f"there is no item {part}"
    hint = nearest(part, [*holder]) if is_object else ""
    hint = hint or "the object or list that holds the value must be there"
    return UsageError(f"{setting.file} has no place {setting.pointer}: {why}", hint=hint)


def _require_free(base: Path, folder: Path) -> None:
    require_free(folder)
    if folder.resolve().is_relative_to(base.resolve()):
        raise UsageError(
            "a fork cannot be inside the organisation", where=str(folder), hint="name a folder elsewhere"
        )
