"""Structured logs: JSON lines in `logs/engine.log` and in each agent's `logs/activity.log`.

Logs are for people and tools that watch; nothing reads them back. Secrets are taken out of every line. Who
writes lines of their own gets a structlog logger; the engine's lines need no more than a function
(docs/decisions/0009).
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
from lemming.kernel.files.stamps import status_of

ROTATE_BYTES = 8 << 20
"""A log that has grown past this when it is closed becomes `<name>.1`, in the place of the one before."""

_INFO, _WARNING = 20, 30  # as `logging` numbers them, which is imported for whoever sets a level
_levels: dict[Path, int] = {}  # as callers have set them: whoever runs a tick later is given the path only
_moving = threading.Lock()


def setup_logging(base_path: str | os.PathLike[str], level: str = "INFO") -> Any:
    """Set from which level on an organisation's log is written; return a structlog logger that writes to it.

    Raises `ValueError` for a level that `logging` does not know. A tick under way keeps the level it has.
    """
    import logging

    import structlog

    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"no log level {level!r}: use DEBUG, INFO, WARNING or ERROR")
    base = paths.as_base(base_path)
    _levels[base] = number
    return structlog.wrap_logger(
        _EachLine(base),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(serializer=_dumps, default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
    )


class EngineLog:
    """Writes the engine's own lines to `logs/engine.log`, from the level that was set for the organisation.

    As a context it keeps the file open until it is closed, else it is opened for each line. It is made
    again when somebody removes it. Who moves it away takes the block's lines along.
    """

    def __init__(self, base_path: str | os.PathLike[str]) -> None:
        self._base = paths.as_base(base_path)
        self._file = LogFile(self._base, paths.ENGINE_LOG)
        self._level = _levels.get(self._base, _INFO)
        self._stays_open = False

    def __enter__(self) -> EngineLog:
        self._level, self._stays_open = _levels.get(self._base, _INFO), True
        self._file.look()
        return self

    def __exit__(self, *_: object) -> None:
        self._stays_open = False
        self._file.rotate()

    def close(self) -> None:
        """Close the file; it is opened again for the next line."""
        self._file.close()

    def info(self, event: str, **fields: Any) -> None:
        """Write a line about what happened."""
        if self._level <= _INFO:
            self._write({**fields, "event": event, "level": "info", "timestamp": _now()})

    def warning(self, event: str, **fields: Any) -> None:
        """Write a line about what a person may want to look at."""
        if self._level <= _WARNING:
            self._write({**fields, "event": event, "level": "warning", "timestamp": _now()})

    def turn(
        self, agent: str, tick: int, action: str, facts: dict[str, Any], notes: str, own: LogFile | None
    ) -> None:
        """Write how an agent's turn ended: a line here, and one in the agent's `own` activity log."""
        who, told, now = agent.encode(), _dumps(facts)[1:-1], _now().encode()
        is_failed = action == "failed"
        if self._level <= (_WARNING if is_failed else _INFO):
            ends = b'"event":"turn","level":"%b","timestamp":"%b"}' % (
                b"warning" if is_failed else b"info", now
            )  # fmt: skip
            self._add(b'{"tick":%d,"agent":"%b",%b,%b' % (tick, who, told, ends))
        if own and self._level <= _INFO:
            ends = b'"level":"info","timestamp":"%b","event":"agent_%b"}' % (now, action.encode())
            said = _dumps(notes) if notes else b'""'
            own.look()
            own.write(b'{"agent":"%b","tick":%d,%b,"notes":%b,%b' % (who, tick, told, said, ends))
            own.rotate()

    def _write(self, told: dict[str, Any]) -> None:
        self._add(_dumps(told))

    def _add(self, line: bytes) -> None:
        self._file.remake()
        self._file.write(line)
        if not self._stays_open:
            self._file.rotate()
            self._file.close()


def log_agent_action(
    base_path: str | os.PathLike[str], agent_name: str, tick: int, action: str, **fields: Any
) -> None:
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
    told = {"agent": agent_name, "tick": tick, **fields}
    file = LogFile(base, paths.activity_log(agent_name))
    file.write(_dumps({**told, "level": "info", "timestamp": _now(), "event": action}))
    file.rotate()
    file.close()


class LogFile:
    """A log that is opened with the first line after it was closed. One write a line."""

    def __init__(self, base: Path, relative: str) -> None:
        self._base, self._relative, self._path = base, relative, f"{base}/{relative}"
        self._file: fs.AppendFile | None = None

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def look(self) -> None:
        """Close the file unless it still stands in its place."""
        if self._file is None:
            return
        try:
            there = status_of(self._path)
        except OSError:
            self.close()
            return
        if (there.st_ino, there.st_dev) == (self._file.opened.st_ino, self._file.opened.st_dev):
            self._file.size = there.st_size
        else:
            self.close()

    def remake(self) -> None:
        """Close the file if somebody has removed it."""
        if self._file is not None and not os.fstat(self._file.fileno()).st_nlink:
            self.close()

    def rotate(self) -> None:
        """Move the file out of the way when it is full."""
        if self._file is not None and self._file.size > ROTATE_BYTES:
            self.close()
            self._move_away()

    def write(self, line: bytes) -> None:
        """Add a line, without secrets."""
        try:
            if self._file is None:
                self._file = fs.AppendFile(self._base, self._relative)
            self._file.append(_without_secrets(line) + b"\n")
        except DiskError as error:
            _overlook_odd_file(error)

    def _move_away(self) -> None:
        with _moving, contextlib.suppress(FileNotFoundError):
            if os.stat(self._path).st_size <= ROTATE_BYTES:  # somebody else was first
                return
            try:
                fs.move(self._base, self._relative, f"{self._relative}.1")
            except DiskError as error:
                _overlook_odd_file(error)


class _EachLine:
    """The end of a structlog chain: the file is opened for each line."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def msg(self, line: bytes) -> None:
        """Add a line to the engine's log."""
        file = LogFile(self._base, paths.ENGINE_LOG)
        file.write(line)
        file.rotate()
        file.close()

    debug = info = warning = error = critical = msg


def _without_secrets(line: bytes) -> bytes:
    # in the texts, not in the line as it is: what comes out must be JSON
    return line if redact_bytes(line) == line else _dumps(redact_json(json.loads(line)))


def _overlook_odd_file(error: DiskError) -> None:
    """Go on without a line where a log file is odd; a full disk stops the engine."""
    if not error.concerns_one_file:
        raise error


def _now() -> str:
    seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
    return f"{_second(seconds)}.{microseconds:06d}Z"


@lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _dumps(event: Any, default: Callable[[Any], Any] = str) -> bytes:
    """Return an event as a line; `default` turns what JSON has no word for into what it has one for."""
    try:
        return _writer()(event, fallback=default)
    except ValueError:  # half of a surrogate pair, as in a file's name that is not UTF-8
        return json.dumps(event, ensure_ascii=False, default=default).encode("utf-8", "replace")


@cache
def _writer() -> Callable[..., bytes]:
    """Return the function that writes JSON; it is imported with the first line."""
    from pydantic_core import to_json

    return to_json
