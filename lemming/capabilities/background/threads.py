"""Threads that live as long as a server or the engine does: one that died is told of, and started again.

What is told stands in `logs/engine.log`, and for `status`, `doctor` and /healthz in `.lemming/threads/`, for
as long as it is news.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.jsontext import parse, pretty
from lemming.kernel.base.redaction.secrets import excerpt
from lemming.kernel.files import fs
from lemming.kernel.files.documents import value_of
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.organisation import OrgPath

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
STEADY_S = 60.0
"""Who has worked this long since is well again."""


@dataclass(frozen=True, kw_only=True)
class Fall:
    """How a thread died. `times`: in a row; `news_until`: when it will have worked long enough again."""

    thread: str
    why: str
    times: int
    at: str
    news_until: str


def keep_alive(
    work: Callable[[], None],
    *,
    name: str,
    base: OrgPath,
    over: threading.Event,
    first_pause_s: float = FIRST_PAUSE_S,
) -> threading.Thread:
    """Start work on a daemon thread, and again when it raises, after a pause that doubles; return the thread.

    The thread ends when the work returns, or raises once `over` is set.
    """
    thread = threading.Thread(
        target=_keep, args=(work, name, base, over, first_pause_s), name=name, daemon=True
    )
    thread.start()
    return thread


def _keep(
    work: Callable[[], None], name: str, base: OrgPath, over: threading.Event, first_pause_s: float
) -> None:
    times = 0
    while True:
        began = time.perf_counter()
        try:
            return work()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the edge of a thread: told, and begun again
            why = excerpt(f"{type(error).__name__}: {error}", 400)
        if over.is_set():
            return None
        times = 1 if time.perf_counter() - began >= STEADY_S else times + 1
        pause_s = min(first_pause_s * 2.0 ** min(times - 1, 20), LONGEST_PAUSE_S)
        _tell(base, name, why, times, pause_s)
        if over.wait(pause_s):
            return None


def _tell(base: OrgPath, name: str, why: str, times: int, pause_s: float) -> None:
    now = datetime.now(UTC)
    until = now + timedelta(seconds=pause_s + STEADY_S)
    fall = Fall(thread=name, why=why, times=times, at=timestamp(now), news_until=timestamp(until))
    with contextlib.suppress(DiskError):  # the tick says more of a disk that refuses
        EngineLog(base).warning("thread_died", thread=name, reason=why, times=times, again_s=pause_s)
        fs.publish(paths.as_base(base), f"{paths.THREADS}/{name}.json", pretty(asdict(fall)))


def fallen(base: OrgPath, now: datetime) -> list[Fall]:
    """Return the threads that died and have not worked for long since, by name."""
    folder = f"{base}/{paths.THREADS}"
    try:
        files = sorted(fs.list_names(folder))
    except (OSError, DiskError):
        return []
    found = [_read(f"{folder}/{file}") for file in files if file.endswith(".json")]
    return [fall for fall in found if fall and _is_news(fall, now)]


def _read(file: str | os.PathLike[str]) -> Fall | None:
    try:
        fall: Fall = value_of(Fall, parse(fs.read_bytes(file, 1 << 16)))
    except (OSError, DiskError, ValueError):
        return None
    return fall


def _is_news(fall: Fall, now: datetime) -> bool:
    try:
        return parse_timestamp(fall.at) <= now < parse_timestamp(fall.news_until)
    except ValueError:
        return False
