"""Structured logs: JSON lines in `logs/engine.log` and in each agent's `logs/activity.log`.

Logs are for people and tools that watch; nothing reads them back. Secrets are taken out of every line.
"""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from lemming import fs, paths
from lemming.errors import DiskError
from lemming.redaction import redact_values

ROTATE_BYTES = 8 << 20
"""A log that has grown past this becomes `<name>.1`, in the place of the one before."""

_INFO = 20  # logging.INFO; the module is imported with the first line that is written
_levels: dict[Path, int] = {}
_moving = threading.Lock()


def setup_logging(base_path: str | os.PathLike[str], level: str = "INFO") -> Any:
    """Set from which level on an organisation's log is written, and return its logger.

    Raises `ValueError` for a level that `logging` does not know.
    """
    import logging

    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"no log level {level!r}: use DEBUG, INFO, WARNING or ERROR")
    base = paths.as_base(base_path)
    _levels[base] = number
    return engine_logger(base)


def engine_logger(base_path: str | os.PathLike[str]) -> Any:
    """Return the logger that writes to `logs/engine.log`."""
    return _logger(paths.as_base(base_path), paths.ENGINE_LOG)


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
    from pydantic_core import to_json

    # Without structlog's chain, which costs more than the line: every turn writes one.
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    told = {"agent": agent_name, "tick": tick, **fields, "level": "info", "timestamp": now, "event": action}
    _Lines(base, paths.activity_log(agent_name)).msg(_dumps(to_json, told))


class _Lines:
    """The end of a structlog chain: one write a line, through the one module that writes."""

    def __init__(self, base: Path, relative: str) -> None:
        self._base, self._relative = base, relative

    def msg(self, line: str) -> None:
        try:
            with fs.AppendFile(self._base, self._relative) as file:
                file.append(redact_values(line).encode("utf-8", "replace") + b"\n")
                is_full = file.size > ROTATE_BYTES
            if is_full:
                self._move_away()
        except DiskError as error:
            if not error.concerns_one_file:  # a full disk stops the engine; an odd log file does not
                raise

    def _move_away(self) -> None:
        with _moving:
            if os.stat(f"{self._base}/{self._relative}").st_size > ROTATE_BYTES:  # nobody else was first
                fs.move(self._base, self._relative, f"{self._relative}.1")

    debug = info = warning = error = critical = msg


def _logger(base: Path, relative: str) -> Any:
    return _logger_at(base, relative, _levels.get(base, _INFO))


@lru_cache(maxsize=4096)
def _logger_at(base: Path, relative: str, level: int) -> Any:
    import structlog

    bound = structlog.make_filtering_bound_logger(level)
    return structlog.wrap_logger(_Lines(base, relative), processors=_processors(), wrapper_class=bound).bind()


@cache
def _processors() -> list[Any]:
    import structlog
    from pydantic_core import to_json

    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.JSONRenderer(serializer=partial(_dumps, to_json)),
    ]


def _dumps(to_json: Any, event: dict[str, Any], **_: Any) -> str:
    try:
        text: str = to_json(event, fallback=str).decode("utf-8", "replace")
    except ValueError:  # half of a surrogate pair, as in a file's name that is not UTF-8
        text = json.dumps(event, ensure_ascii=False, default=str).encode("utf-8", "replace").decode()
    return text
