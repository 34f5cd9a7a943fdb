"""Supervised threads of a server or the engine: a thread that died is reported and restarted.

Reports are in `logs/engine.log`, and for `status`, `doctor` and /healthz in `.lemming/threads/` as long as
recent.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from lemming.kernel.base import paths
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.base.redaction.secrets import redacted_excerpt
from lemming.kernel.files import fs
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.organisation import OrgPath

FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 300.0
STABLE_AFTER_S = 60.0
"""Seconds of work after which a restarted thread counts as healthy."""


@dataclass(frozen=True, kw_only=True)
class ThreadFailure:
    """Failure of a thread. `times`: failures in a row. `news_until`: time after which the thread counts as stable."""

    thread: str
    why: str
    times: int
    at: str
    news_until: str


def start_supervised_thread(
    work: Callable[[], None],
    *,
    name: str,
    base: OrgPath,
    stopped: threading.Event,
    first_pause_s: float = FIRST_PAUSE_S,
) -> threading.Thread:
    """Run work on a daemon thread, restarted after an exception with doubled pauses; return the thread.

    The thread ends when the work returns, or raises after `over` is set.
    """
    thread = threading.Thread(
        target=_run_supervised, args=(work, name, base, stopped, first_pause_s), name=name, daemon=True
    )
    thread.start()
    return thread


def _run_supervised(
    work: Callable[[], None], name: str, base: OrgPath, over: threading.Event, first_pause_s: float
) -> None:
    times = 0
    while True:
        start = time.perf_counter()
        try:
            return work()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the edge of a thread: told, and begun again
            reason = redacted_excerpt(f"{type(error).__name__}: {error}", 400)
        if over.is_set():
            return None
        times = 1 if time.perf_counter() - start >= STABLE_AFTER_S else times + 1
        pause_s = min(first_pause_s * 2.0 ** min(times - 1, 20), MAX_PAUSE_S)
        _report_failure(base, name, reason, times, pause_s)
        if over.wait(pause_s):
            return None


def _report_failure(base: OrgPath, name: str, reason: str, times: int, pause_s: float) -> None:
    current_time = datetime.now(UTC)
    recent_until = current_time + timedelta(seconds=pause_s + STABLE_AFTER_S)
    failure = ThreadFailure(
        thread=name, why=reason, times=times, at=timestamp(current_time), news_until=timestamp(recent_until)
    )
    with contextlib.suppress(DiskError):  # the tick says more of a disk that refuses
        EngineLog(base).warning("thread_died", thread=name, reason=reason, times=times, again_s=pause_s)
        fs.write_atomic(paths.as_base(base), f"{paths.THREADS}/{name}.json", dump_pretty(asdict(failure)))


def list_thread_failures(base: OrgPath, current_time: datetime) -> list[ThreadFailure]:
    """Return the recent failures of threads, by name."""
    folder, failures = f"{base}/{paths.THREADS}", list[ThreadFailure]()
    with contextlib.suppress(OSError, DiskError):
        for file in fs.list_names(folder):
            with contextlib.suppress(OSError, DiskError, ValueError):  # a person's file, or one being written
                failure: ThreadFailure = to_value(ThreadFailure, parse(fs.read_bytes(f"{folder}/{file}", 1 << 16)))
                if parse_timestamp(failure.at) <= current_time < parse_timestamp(failure.news_until):
                    failures.append(failure)
    return failures
