"""Supervision of an engine: notifications for systemd (ready, stopping, alive), and `GET /healthz` on the loopback address.

Protocol: sd_notify(3), sd_watchdog_enabled(3). Without `NOTIFY_SOCKET` in the environment nothing is sent. A client of
/healthz must be on this machine, by address and by the host name in the request: a web page that uses another host
name is refused.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from lemming.kernel.base.blocking_deadline import Deadline, MonotonicClock
from lemming.kernel.base.errors import ConfigError, LemmingError, UsageError
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.redaction.secrets import redact_bytes, redact_json
from lemming.kernel.journal.engine_events import Event, Sleeping, TickBegins, TickEnds
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.config import Config, OrgSettings, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tools import get_toolset
from lemming.libraries.concurrency.supervised_threads import start_supervised_thread
from lemming.libraries.optional_packages import require_server
from lemming.libraries.sandbox.sandbox_settings import get_shell_settings

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


class SystemdNotifier:
    """Connection to systemd, told of events for `systemctl status`. Errors are ignored: engines run without it."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self.watchdog_s = _parse_watchdog_interval(environment) if self._address else None
        self._is_ready = False

    def notify(self, *assignments: str) -> None:
        """Send assignments in a single datagram."""
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto("\n".join(assignments).encode(), address)

    def on_event(self, event: Event) -> None:
        """Report readiness at the first tick, and the totals of each tick."""
        if isinstance(event, TickBegins) and not self._is_ready:
            self._is_ready = True
            self.notify(READY, f"STATUS=tick {event.tick}")
        elif isinstance(event, TickEnds):
            totals = event.report.totals
            parts = [f"{totals[status]} {status}" for status in ("done", "waiting", "failed") if totals[status]]
            self.notify(f"STATUS=tick {event.report.tick}: {', '.join(parts) or 'nobody was due'}")


class Watchdog:
    """Feeder of systemd's watchdog while the engine makes progress; systemd restarts a stuck engine."""

    def __init__(self, notifier: SystemdNotifier, progress: EngineProgress, base: Path) -> None:
        self._notifier, self._progress, self._base = notifier, progress, base
        self._has_complained = False

    def feed(self) -> None:
        """Feed the watchdog, or log the lack of progress once."""
        if not (silence_s := self._progress.overdue_s):
            self._notifier.notify(ALIVE)
        elif not self._has_complained:
            self._has_complained = True
            EngineLog(self._base).warning("no_progress", tick=self._progress.tick, silent_s=round(silence_s))


@contextlib.contextmanager
def run_watchdog(notifier: SystemdNotifier, progress: EngineProgress, base: Path) -> Iterator[None]:
    """Feed the watchdog for the length of the block, three times as often as required, and report the end."""
    stopped, watchdog, interval_s = threading.Event(), Watchdog(notifier, progress, base), notifier.watchdog_s
    feeder = None

    def feed_until_stopped() -> None:
        watchdog.feed()
        while not stopped.wait((interval_s or 0.0) / 3):
            watchdog.feed()

    if interval_s is not None:
        feeder = start_supervised_thread(feed_until_stopped, name="lemming-watchdog", base=base, stopped=stopped)
    try:
        yield
    finally:
        stopped.set()
        if feeder:
            feeder.join()
        notifier.notify(STOPPING)


def _parse_watchdog_interval(environment: Mapping[str, str]) -> float | None:
    """Return the watchdog interval in seconds, or None without a watchdog for this process."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None  # the watchdog belongs to another process
    microseconds = environment.get("WATCHDOG_USEC", "")
    return int(microseconds) / 1e6 or None if microseconds.isdecimal() else None


# --- progress ------------------------------------------------------------------------------------
# Every event sets a deadline for the next event: a turn has its deadlines, a pause its length. An engine
# with a longer silence is stuck.


MARGIN_S = 120.0
"""Seconds for work without a deadline of its own: waits for rate limits (a minute at most), packing of journals."""


class EngineProgress:
    """Observer of an engine's progress. `interval_s` and `batch` are the engine's options."""

    def __init__(
        self,
        org: Organisation,
        *,
        interval_s: float | None = None,
        batch: bool = False,
        monotonic: MonotonicClock = time.monotonic,
    ) -> None:
        self._org, self._interval_s, self._batch, self._monotonic = org, interval_s, batch, monotonic
        self._config = Config(OrgSettings(), {}, {})
        self._max_silence_s = compute_max_silence_s(self._config, batch=batch)
        self._lock = Lock()
        self.tick = 0
        self._extend_deadline(0.0)

    def on_event(self, event: Event) -> None:
        """Extend the deadline for the next event."""
        pause_s = 0.0
        if isinstance(event, TickBegins):
            self.tick = event.tick
            with contextlib.suppress(ConfigError):  # the engine continues with the previous settings
                if (config := load_config(self._org)) is not self._config:
                    self._config, self._max_silence_s = config, compute_max_silence_s(config, batch=self._batch)
        elif isinstance(event, TickEnds):
            pause_s = self._config.org.tick_interval_s if self._interval_s is None else self._interval_s
        elif isinstance(event, Sleeping):
            pause_s = event.seconds
        self._extend_deadline(pause_s)

    @property
    def overdue_s(self) -> float:
        """Seconds of silence if the engine is overdue, else 0."""
        with self._lock:
            silence_s = self._next_deadline.elapsed()
            return silence_s if silence_s > self._next_deadline.seconds else 0.0

    def _extend_deadline(self, pause_s: float) -> None:
        with self._lock:
            self._next_deadline = Deadline(pause_s + self._max_silence_s, clock=self._monotonic)


def compute_max_silence_s(config: Config, *, batch: bool) -> float:
    """Return the maximum silence of a healthy engine in seconds: the longest deadline plus a margin.

    >>> compute_max_silence_s(Config(OrgSettings(tool_timeout_s=300), {}, {}), batch=False)
    420.0
    """
    org = config.org
    deadlines = [org.tool_timeout_s, get_shell_settings(org).timeout_s]
    deadlines += [tool.timeout_s for tool in get_toolset(org).values() if tool.timeout_s is not None]
    deadlines += [entry.deadline_s for entry in config.models.values()]
    deadlines += [entry.batch_deadline_s for entry in config.models.values() if batch]
    return max(deadlines) + MARGIN_S


HOST, PATH = "127.0.0.1", "/healthz"
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Health(NamedTuple):
    """Result of a health check, with facts as JSON values."""

    is_well: bool
    facts: dict[str, Any]


HealthCheck = Callable[[dict[str, str]], Health]
"""Looks at the organisation; it is given the words after "?" in the address."""


@contextlib.contextmanager
def serve_health(port: int, check: HealthCheck, base: OrgPath) -> Iterator[int]:
    """Serve /healthz on a loopback port for the length of the block (0: any free port), and yield the port.

    The status is 200 for a healthy organisation and 503 otherwise, both with the facts. Raises: UsageError if the port
    or the server's packages are not available.
    """
    require_server("/healthz")
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from lemming.libraries.concurrency.http_server import bind_port, serve_in_thread

    check_lock = threading.Lock()  # a single check at a time

    def run_check(parameters: dict[str, str]) -> Response:
        with check_lock:
            try:
                health = check(parameters)
            except LemmingError as error:
                is_usage = isinstance(error, UsageError)
                status = HTTPStatus.BAD_REQUEST if is_usage else HTTPStatus.SERVICE_UNAVAILABLE
                return to_response(status, error.as_json())
        return to_response(HTTPStatus.OK if health.is_well else HTTPStatus.SERVICE_UNAVAILABLE, health.facts)

    async def answer(request: Request) -> Response:
        host = request.headers.get("Host", HOST)
        if host.rpartition(":")[0] not in _LOOPBACK_NAMES and host not in _LOOPBACK_NAMES:
            return to_response(HTTPStatus.MISDIRECTED_REQUEST, {"message": "ask for it by this machine's own name"})
        if request.url.path != PATH:
            return to_response(HTTPStatus.NOT_FOUND, {"message": f"there is only {PATH}"})
        return await run_in_threadpool(run_check, dict(request.query_params))

    async def refuse_method(request: Request, _: Exception) -> Response:
        return to_response(HTTPStatus.NOT_IMPLEMENTED, {"message": f"ask with GET, not {request.method}"})

    def to_response(status: HTTPStatus, facts: dict[str, Any]) -> Response:
        raw = dump_compact({"v": 1, **facts})
        if redact_bytes(raw) != raw:
            raw = dump_compact(redact_json({"v": 1, **facts}))
        return Response(raw + b"\n", status, {"Cache-Control": "no-store"}, "application/json")

    app = Starlette(routes=[Route("/{path:path}", answer)], exception_handlers={HTTPException: refuse_method})
    with serve_in_thread(app, bind_port(HOST, port), name="lemming-health", base=base) as bound_port:
        yield bound_port
