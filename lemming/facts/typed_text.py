"""Files that a person edits on the page: which they are, and what is wrong with a text as it is typed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any

from lemming.facts.preview import settings_to_look_by
from lemming.facts.problems import problems_of_config, problems_of_resume
from lemming.kernel.agents import RESUME_LIMIT_BYTES, agent_folders, decode_resume, nearest_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem, UsageError
from lemming.kernel.base.jsontext import locate
from lemming.kernel.files import fs
from lemming.kernel.org.config import MODELS_FILE, ORG_FILE, config_with
from lemming.kernel.org.organisation import OrgPath

SETTINGS = {"org": ORG_FILE, "models": MODELS_FILE}
"""The settings that can be edited, by what an address calls them."""


def editable(base: OrgPath, file: str) -> str:
    """Return the path of a file that may be edited: a resume, or settings; raise `UsageError` for another."""
    if file in SETTINGS.values():
        return file
    name, folders = PurePosixPath(file).parent.name, agent_folders(base)
    if not paths.AGENT_NAME.match(name) or file != paths.resume_file(name):
        known = ", ".join((*SETTINGS.values(), "agents/NAME/resume.json"))
        raise UsageError(f'"{file[:80]}" is not edited here', hint=known)
    if name not in folders:
        raise UsageError(f'there is no agent "{name[:80]}"', hint=nearest_agent(name[:80], folders))
    return file


def raw_text(base: OrgPath, file: str) -> bytes:
    """Return the bytes of a file that people edit; none when there is no such file. Raises `ConfigError`."""
    try:
        return fs.read_bytes(base / file, RESUME_LIMIT_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=file) from error


def as_it_stands(base: OrgPath, file: str) -> dict[str, Any]:
    """Return a file with its text, the SHA-256 of its bytes, and what is wrong with it, as JSON values."""
    raw, wrong = b"", ""
    try:
        raw = raw_text(base, file)
    except ConfigError as error:
        wrong = str(error)
    return {
        "file": file,
        "text": raw.decode("utf-8", "replace"),
        "sha256": sha256(raw).hexdigest(),
        "wrong": wrong,
        "problems": [problem.as_json() for problem in problems_of_text(base, file, raw)] if raw else [],
    }


def problems_of_text(base: OrgPath, file: str, raw: bytes) -> list[Problem]:
    """Return what `validate` would say of a file if these bytes stood in it."""
    if file in SETTINGS.values():
        return [*_problems_of_settings(base, file, raw)]
    name = PurePosixPath(file).parent.name
    try:
        document, config = decode_resume(name, raw), settings_to_look_by(base)
    except ConfigError as error:
        return [*error.problems]
    found = problems_of_resume(base, document.value, config, agent_folders(base), raw)
    return [*document.warnings, *found]


def _problems_of_settings(base: OrgPath, file: str, raw: bytes) -> Iterator[Problem]:
    """Yield what is wrong with this file; another that is broken is not its fault."""
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    for problem in _problems_with(base, file, raw):
        if problem.file == file:
            line, column = (problem.line, problem.column) if problem.line else locate(text, problem.pointer)
            yield replace(problem, line=line, column=column)


def _problems_with(base: OrgPath, file: str, raw: bytes) -> Iterator[Problem]:
    try:
        config = config_with(base, file, raw)
    except ConfigError as error:
        yield from error.problems
        return
    with contextlib.suppress(ConfigError):  # what stands there now is broken, and some look at that too
        yield from problems_of_config(base, replace(config, org=replace(config.org, tool_files=[])))
