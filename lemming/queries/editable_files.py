"""Files a person may edit on the page, and validation of a text during typing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any

from lemming.kernel.agents import RESUME_LIMIT_BYTES, decode_resume, list_agent_folders, suggest_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem, UsageError
from lemming.kernel.files import fs
from lemming.kernel.org.config import preview_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.validation.agent_validation import locate_problem
from lemming.queries.org_validation import validate_config, validate_resume
from lemming.queries.tick_preview import load_inspection_settings

SETTINGS_FILES = {"org": paths.ORG_FILE, "models": paths.MODELS_FILE}
"""The editable settings, by their name in an address."""


def resolve_editable_file(base: OrgPath, file: str) -> str:
    """Return the path of an editable file, which is a resume or a settings file; raise `UsageError` for other files."""
    if file in SETTINGS_FILES.values():
        return file
    name, folders = PurePosixPath(file).parent.name, list_agent_folders(base)
    if not paths.AGENT_NAME.match(name) or file != paths.resume_file(name):
        editable_files = ", ".join((*SETTINGS_FILES.values(), "agents/NAME/resume.json"))
        raise UsageError(f'"{file[:80]}" cannot be edited here', hint=editable_files)
    if name not in folders:
        raise UsageError(f'agent "{name[:80]}" does not exist', hint=suggest_agent(name[:80], folders))
    return file


def encode_draft(base: OrgPath, file: str, text: str) -> tuple[str, bytes]:
    """Return the path and the bytes of an edited file. Raises `UsageError` for other files and for lone surrogates."""
    file = resolve_editable_file(base, file)
    try:
        return file, text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"not valid text (at character {error.start})") from error


def load_raw_text(base: OrgPath, file: str) -> bytes:
    """Return the bytes of an editable file, or empty bytes if the file is missing. Raises `ConfigError`."""
    try:
        return fs.read_bytes(base / file, RESUME_LIMIT_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=file) from error


def load_editable_file(base: OrgPath, file: str) -> dict[str, Any]:
    """Return a file with its text, the SHA-256 of its bytes, and its problems, as JSON values."""
    raw, read_error = b"", ""
    try:
        raw = load_raw_text(base, file)
    except ConfigError as error:
        read_error = str(error)
    return {
        "file": file,
        "text": raw.decode("utf-8", "replace"),
        "sha256": sha256(raw).hexdigest(),
        "wrong": read_error,
        "problems": [problem.as_json() for problem in validate_text(base, file, raw)] if raw else [],
    }


def validate_text(base: OrgPath, file: str, raw: bytes) -> list[Problem]:
    """Return the problems `validate` would report for a file with these bytes."""
    if file in SETTINGS_FILES.values():
        problems = _validate_with_settings(base, file, raw)  # problems of other broken files are skipped
        return [locate_problem(problem, base, raw) for problem in problems if problem.file == file]
    try:
        document, config = decode_resume(PurePosixPath(file).parent.name, raw), load_inspection_settings(base)
    except ConfigError as error:
        return [*error.problems]
    return [*document.warnings, *validate_resume(base, document.value, config, raw)]


def _validate_with_settings(base: OrgPath, file: str, raw: bytes) -> Iterator[Problem]:
    try:
        config = preview_config(base, file, raw)
    except ConfigError as error:
        yield from error.problems
        return
    with contextlib.suppress(ConfigError):  # the present file may be broken, and is shown all the same
        yield from validate_config(base, replace(config, org=replace(config.org, tool_files=[])))
