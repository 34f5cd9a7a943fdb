"""Recorded runs of workers: a text and a patch for each task. Format: docs/formats.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lemming.ext import ConfigError, describe_field, make_field
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import parse_document

_LIMIT_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """One run of a recording: its task, text and patch."""

    contains: str = field(metadata=describe_field("Text of the task that this run answers.", min_length=1))
    text: str = field(metadata=describe_field("Text that the worker answers."))
    patch: str = make_field("", "File with the patch; empty: nothing was changed.")

    def load_patch(self, base: Path) -> bytes:
        """Return the patch; `base` is the organisation. Raises `ConfigError` for an unreadable file."""
        return _read_file(base, self.patch) if self.patch else b""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Recorded runs, of which the first that fits a task is replayed."""

    runs: list[RecordedRun] = field(metadata=describe_field("Runs, of which the first that fits is replayed."))


def load_recorded_runs(base: Path, file: str) -> list[RecordedRun]:
    """Return the runs of a recording. Raises `ConfigError` for an unreadable file or wrong content."""
    return parse_document(_read_file(base, file), file, Recording, unknown_key_policy="none").value.runs


def _read_file(base: Path, file: str) -> bytes:
    try:
        return fs.read_bytes(base / file, _LIMIT_BYTES)
    except OSError as error:
        message = f"recording must be a readable file, got {error.strerror or error}"
        raise ConfigError(message, where=file, hint="check options.file in config/models.json") from error
