"""Structured logs: JSON lines in `logs/engine.log` and in each agent's `logs/activity.log`.

Logs are for people and tools that watch; nothing reads them back. Secrets are taken out of every line.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from lemming import paths
from lemming.errors import DiskError
from lemming.files import fs
from lemming.redaction import redact_bytes, redact_json

ROTATE_BYTES = 8 << 20
"""A log that has grown past this when it is closed becomes `<name>.1`, in the place of the one before."""

_INFO = 20  # logging.INFO; the module is imported with the first line that is written
_levels: dict[Path, int] = {}
_moving = threading.Lock()


def setup_logging(base_path: str | os.PathLike[str], level: str = "INFO") -> Any:
    """Set from which level on an organisation's log is written, and return its logger.

    Raises `ValueError` for a level that `logging` does not know. A tick under way keeps the level it has.
    """
    import logging

    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"no log level {level!r}: use DEBUG, INFO, WARNING or ERROR")
    base = paths.as_base(base_path)
    _levels[base] = number
    return engine_logger(base)


def engine_logger(base_path: str | os.PathLike[str]) -> Any:
    """Return the logger that writes to `logs/engine.log`, and opens it for each line."""
    base = paths.as_base(base_path)
    return _logger_at(base, _levels.get(base, _INFO))


@contextlib.contextmanager
def engine_log(base_path: str | os.PathLike[str]) -> Iterator[Any]:
    """Give a logger that writes to `logs/engine.log`, and keeps it open until the block ends.

    The file is made again when somebody removes it. Who moves it away takes the block's lines along.
    """
    base = paths.as_base(base_path)
    with _LogFile(base, paths.ENGINE_LOG) as log:
        yield _logger(log, _levels.get(base, _INFO))


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
    # Without structlog's chain, which costs more than the line: every turn writes one.
    told = {
        "agent": agent_name,
        "tick": tick,
        **fields,
        "level": "info",
        "timestamp": _now(),
        "event": action,
    }
    with _LogFile(base, paths.activity_log(agent_name)) as log:
        log.msg(_dumps(told))


class _LogFile:
    """The end of a structlog chain: a file that is opened with the first line. One write a line."""

    def __init__(self, base: Path, relative: str) -> None:
        self._base, self._relative = base, relative
        self._file: fs.AppendFile | None = None

    def __enter__(self) -> _LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        is_full = file.size > ROTATE_BYTES
        file.close()
        if is_full:
            self._move_away()

    def msg(self, line: bytes) -> None:
        try:
            self._opened().append(_without_secrets(line) + b"\n")
        except DiskError as error:
            _overlook_odd_file(error)

    def _opened(self) -> fs.AppendFile:
        if self._file is not None:
            if os.fstat(self._file.fileno()).st_nlink:
                return self._file
            self._file.close()  # somebody has removed it
        self._file = None  # as long as it cannot be opened
        self._file = fs.AppendFile(self._base, self._relative)
        return self._file

    def _move_away(self) -> None:
        with _moving, contextlib.suppress(FileNotFoundError):
            if os.stat(f"{self._base}/{self._relative}").st_size <= ROTATE_BYTES:  # somebody else was first
                return
            try:
                fs.move(self._base, self._relative, f"{self._relative}.1")
            except DiskError as error:
                _overlook_odd_file(error)

    debug = info = warning = error = critical = msg


class _EachLine:
    """The end of a structlog chain: the file is opened for each line."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def msg(self, line: bytes) -> None:
        with _LogFile(self._base, paths.ENGINE_LOG) as log:
            log.msg(line)

    debug = info = warning = error = critical = msg


def _without_secrets(line: bytes) -> bytes:
    return line if redact_bytes(line) == line else _dumps(redact_json(json.loads(line)))


def _overlook_odd_file(error: DiskError) -> None:
    """Go on without a line where a log file is odd; a full disk stops the engine."""
    if not error.concerns_one_file:
        raise error


@lru_cache(maxsize=4096)
def _logger_at(base: Path, level: int) -> Any:
    return _logger(_EachLine(base), level)


def _logger(end: _LogFile | _EachLine, level: int) -> Any:
    import structlog

    bound = structlog.make_filtering_bound_logger(level)
    return structlog.wrap_logger(end, processors=[_render], wrapper_class=bound).bind()


def _render(_: object, level: str, event: MutableMapping[str, Any]) -> bytes:
    """Return an event as a line; one processor instead of structlog's three, as every turn writes one."""
    event["level"], event["timestamp"] = level, _now()
    return _dumps(event)


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _dumps(event: Mapping[str, Any]) -> bytes:
    try:
        return _writer()(event, fallback=str)
    except ValueError:  # half of a surrogate pair, as in a file's name that is not UTF-8
        return json.dumps(event, ensure_ascii=False, default=str).encode("utf-8", "replace")


@cache
def _writer() -> Callable[..., bytes]:
    """Return the function that writes JSON; it is imported with the first line."""
    from pydantic_core import to_json

    return to_json
