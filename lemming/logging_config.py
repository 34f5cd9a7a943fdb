"""Logging of the engine and of agents: everything in `lemming.kernel.logging_config`, and the logger of a program."""

import os
from pathlib import Path
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.logging_config import *  # noqa: F403 - a door: each name is that module's own
from lemming.kernel.logging_config import LogFile, set_level, to_json_line


def setup_logging(base_path: str | os.PathLike[str], level: str = "INFO") -> Any:
    """Set the minimum level of an organisation's log, and return a structlog logger for the log.

    Raises `ValueError` for a level unknown to `logging`. A running tick keeps its level.
    """
    import logging

    import structlog

    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"log level must be DEBUG, INFO, WARNING or ERROR, got {level!r}")
    base = paths.as_base(base_path)
    set_level(base, number)
    return structlog.wrap_logger(
        _LineLogger(base),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(serializer=to_json_line, default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
    )


class _LineLogger:
    """End of a structlog chain that opens the file for each line."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def msg(self, line: bytes) -> None:
        """Append a line to the engine's log."""
        file = LogFile(self._base, paths.ENGINE_LOG)
        file.write(line)
        file.rotate()
        file.close()

    debug = info = warning = error = critical = msg
