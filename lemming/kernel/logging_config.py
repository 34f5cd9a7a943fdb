"""Structured logs: JSON lines in `logs/engine.log` and in each agent's `logs/activity.log`.

Logs are for people and monitoring tools; the engine never reads them. Secrets are removed from every line.
Callers with lines of their own get a structlog logger; for the engine's lines a function is enough
(docs/decisions.md, decision 9).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.redaction.secrets import redact_bytes, redact_json
from lemming.kernel.files import fs
from lemming.kernel.files.stat_cache import lstat

ROTATE_BYTES = 8 << 20
"""A log that has grown past this when it is closed becomes `<name>.1`, in the place of the one before."""

_INFO, _WARNING = 20, 30  # as `logging` numbers them, which is imported for whoever sets a level
_levels: dict[Path, int] = {}  # as callers have set them: whoever runs a tick later is given the path only
_moving = threading.Lock()


def set_level(base: Path, number: int) -> None:
    """Set the minimum level of an organisation's log, as `logging` numbers levels."""
    _levels[base] = number


class EngineLog:
    """Writes the engine's lines to `logs/engine.log`, from the level set for the organisation.

    As a context manager it keeps the file open; otherwise the file is opened for each line. A removed file is
    created again. A file moved away during the block keeps receiving the lines of the block.
    """

    def __init__(self, base_path: str | os.PathLike[str]) -> None:
        self._base = paths.as_base(base_path)
        self._file = LogFile(self._base, paths.ENGINE_LOG)
        self._level = _levels.get(self._base, _INFO)
        self._stays_open = False

    def __enter__(self) -> EngineLog:
        self._level, self._stays_open = _levels.get(self._base, _INFO), True
        self._file.close_if_replaced()
        return self

    def __exit__(self, *_: object) -> None:
        self._stays_open = False
        self._file.rotate()

    def close(self) -> None:
        """Close the file until the next line."""
        self._file.close()

    def info(self, event: str, **fields: Any) -> None:
        """Write a line about a regular event."""
        if self._level <= _INFO:
            self._write({**fields, "event": event, "level": "info", "timestamp": _now()})

    def warning(self, event: str, **fields: Any) -> None:
        """Write a line about an event that may need a person's attention."""
        if self._level <= _WARNING:
            self._write({**fields, "event": event, "level": "warning", "timestamp": _now()})

    def log_turn(
        self, agent: str, tick: int, action: str, fields: dict[str, Any], notes: str, agent_log: LogFile | None
    ) -> None:
        """Write the end of an agent's turn to the engine's log and to the agent's activity log."""
        number, level, now = (_WARNING, "warning", _now()) if action == "failed" else (_INFO, "info", _now())
        if self._level <= number:
            self._write({"tick": tick, "agent": agent, **fields, "event": "turn", "level": level, "timestamp": now})
        if agent_log and self._level <= _INFO:
            end = {"notes": notes, "level": "info", "timestamp": now, "event": f"agent_{action}"}
            agent_log.close_if_replaced()
            agent_log.write(to_json_line({"agent": agent, "tick": tick, **fields, **end}))
            agent_log.rotate()

    def _write(self, fields: dict[str, Any]) -> None:
        self._file.close_if_removed()
        self._file.write(to_json_line(fields))
        if not self._stays_open:
            self._file.rotate()
            self._file.close()


def log_agent_action(base_path: str | os.PathLike[str], agent_name: str, tick: int, action: str, **fields: Any) -> None:
    """Write one line to an agent's activity log.

    >>> import json, tempfile
    >>> base = Path(tempfile.mkdtemp())
    >>> log_agent_action(base, "planner", 7, "agent_completed", duration_ms=1234)
    >>> json.loads((base / "agents/planner/logs/activity.log").read_text())["duration_ms"]
    1234
    """
    base = paths.as_base(base_path)
    if _levels.get(base, _INFO) > _INFO:
        return
    file, end = LogFile(base, paths.activity_log(agent_name)), {"level": "info", "timestamp": _now(), "event": action}
    file.write(to_json_line({"agent": agent_name, "tick": tick, **fields, **end}))
    file.rotate()
    file.close()


class LogFile:
    """A log file, opened with the first line after a close. Each line is one write."""

    def __init__(self, base: Path, relative: str) -> None:
        self._base, self._relative, self._path = base, relative, f"{base}/{relative}"
        self._file: fs.AppendFile | None = None

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def close_if_replaced(self) -> None:
        """Close the file if its path now holds another file."""
        if self._file is None:
            return
        try:
            status = lstat(self._path)
        except OSError:
            self.close()
            return
        if (status.st_ino, status.st_dev) == (self._file.initial_status.st_ino, self._file.initial_status.st_dev):
            self._file.size = status.st_size
        else:
            self.close()

    def close_if_removed(self) -> None:
        """Close the file if somebody has removed it from its folder."""
        if self._file is not None and not os.fstat(self._file.fileno()).st_nlink:
            self.close()

    def rotate(self) -> None:
        """Rename the file when it is full."""
        if self._file is not None and self._file.size > ROTATE_BYTES:
            self.close()
            self._rename_full()

    def write(self, line: bytes) -> None:
        """Append a line, without secrets."""
        try:
            if self._file is None:
                self._file = fs.AppendFile(self._base, self._relative)
            # in the texts, not in the encoded line: the result must stay JSON
            redacted = line if redact_bytes(line) == line else to_json_line(redact_json(json.loads(line)))
            self._file.append(redacted + b"\n")
        except DiskError as error:
            _ignore_file_error(error)

    def _rename_full(self) -> None:
        with _moving, contextlib.suppress(FileNotFoundError):
            if os.stat(self._path).st_size <= ROTATE_BYTES:  # another process was first
                return
            try:
                fs.move(self._base, self._relative, f"{self._relative}.1")
            except DiskError as error:
                _ignore_file_error(error)


def _ignore_file_error(error: DiskError) -> None:
    """Ignore an error of a single log file; re-raise errors such as a full disk."""
    if not error.concerns_one_file:
        raise error


def _now() -> str:
    seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
    return f"{_format_second(seconds)}.{microseconds:06d}Z"


@lru_cache(maxsize=1)
def _format_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def to_json_line(event: Any, default: Callable[[Any], Any] = str) -> bytes:
    """Return an event as a JSON line; `default` converts values without a JSON form."""
    try:
        return _get_serializer()(event, fallback=default)
    except ValueError:  # half of a surrogate pair, as in a file's name that is not UTF-8
        return json.dumps(event, ensure_ascii=False, default=default).encode("utf-8", "replace")


@cache
def _get_serializer() -> Callable[..., bytes]:
    """Return the function that writes JSON, imported with the first line."""
    from pydantic_core import to_json

    return to_json
