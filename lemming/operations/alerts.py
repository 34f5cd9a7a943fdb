"""Commands run at the start of a failure or of a wait for a person: once for each item.

Reported items stay in `logs/told.json` while they last, so a restart does not repeat an alert. A separate
thread does the work: no tick waits for an alert. Format: docs/formats.md, "Told".
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.errors import DiskError, LemmingError
from lemming.kernel.base.jsontext import JsonProblem, dump_compact, dump_pretty, parse
from lemming.kernel.base.redaction.secrets import redact, redact_json, redacted_excerpt
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event, TickEnds
from lemming.kernel.journal.turn_report import TickReport, TurnReport
from lemming.kernel.logging_config import EngineLog
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.runtime import Runtime
from lemming.libraries.concurrency.supervised_threads import start_supervised_thread

FAILURE, WAITING = "failure", "waiting"
ORG_ITEM = "organisation"
LIMIT_S = 30.0
_TEXT_CHARS, _FILE_LIMIT_BYTES = 4000, 8 << 20
_SILENTLY_RESOLVED = (
    "ConfigError",
    "LimitReached",
    "OutOfCredits",
)  # also resolved when the agent is skipped for another reason

AlertItems = Mapping[str, dict[str, Any]]
"""Failing or waiting items by key: an agent, "organisation", a request. Each has `about` and `text`."""
LoadWaiting = Callable[[Organisation], Iterable[tuple[str, dict[str, Any]]]]


class _AlertBatch(NamedTuple):
    """A batch for the worker: the new items, and all reported items. The command runs only for new items."""

    kind: str
    command: list[str]
    tick: int
    new_items: list[dict[str, Any]]
    reported: Mapping[str, AlertItems]


class Alerts:
    """Alerts of an organisation."""

    def __init__(self, org: Organisation) -> None:
        self._org, self._reported = org, _load_state(org)
        self._queue: queue.SimpleQueue[_AlertBatch | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._settings, self._tick_time = OrgSettings(), ""
        self._load_waiting: LoadWaiting = lambda _: ()

    def begin_tick(self, runtime: Runtime, settings: OrgSettings, load_waiting: LoadWaiting) -> Alerts:
        """Prepare for a new tick and return self; `load_waiting` returns the items waiting for a person."""
        self._settings, self._load_waiting, self._tick_time = (settings, load_waiting, timestamp(runtime.clock.now()))
        runtime.at_end = self.wait
        return self

    def on_event(self, event: Event) -> None:
        """Queue new and resolved items at the end of a tick."""
        if not isinstance(event, TickEnds):
            return
        report, settings = event.report, self._settings
        if settings.on_failure:
            resolved = _find_resolved(report, self._reported.get(FAILURE, {}))
            self._queue_changes(FAILURE, settings.on_failure, report.tick, self._find_failures(report), resolved)
        if settings.on_waiting:
            waiting_items = dict(self._load_waiting(self._org))
            resolved = self._reported.get(WAITING, {}).keys() - waiting_items.keys()
            self._queue_changes(WAITING, settings.on_waiting, report.tick, waiting_items, resolved)

    def on_engine_error(self, error: LemmingError, tick: int) -> None:
        """Queue an alert for an error that stops the engine in this tick."""
        if self._settings.on_failure:
            item = {"about": ORG_ITEM, "text": str(error), "since_tick": tick, "since": self._tick_time}
            self._queue_changes(FAILURE, self._settings.on_failure, tick, {ORG_ITEM: item}, set())

    def wait(self) -> None:
        """Wait until the queue is empty, at most for the time limit of a command."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(LIMIT_S + 5)
            self._thread = None

    def _find_failures(self, report: TickReport) -> AlertItems:
        since = {"since_tick": report.tick, "since": self._tick_time}
        items = {}
        for turn in report.turns:
            if turn.stopped:
                text = f"{turn.agent} is paused: {turn.stopped}"
                items[f"{turn.agent}/paused"] = {"about": turn.agent, "text": text, "error": "", **since}
        for turn in filter(_is_failing, report.turns):
            text = f"{turn.agent}: {turn.reason}"
            items[turn.agent] = {"about": turn.agent, "text": text, "error": turn.error, **since}
        return items

    def _queue_changes(self, kind: str, command: list[str], tick: int, items: AlertItems, resolved: set[str]) -> None:
        previous = self._reported.get(kind, {})
        if items.keys() <= previous.keys() and not resolved:
            return
        removed_agents = previous.keys() - {ORG_ITEM, *list_agent_folders(self._org)} if kind == FAILURE else set()
        continuing = {name: item for name, item in previous.items() if name not in resolved | removed_agents}
        new_items = {name: item for name, item in items.items() if name not in continuing}
        self._reported = {**self._reported, kind: {**continuing, **new_items}}
        if self._thread is None:
            never = threading.Event()  # the queue is always drained, and `wait` has its own limit
            self._thread = start_supervised_thread(
                self._run_worker, name="lemming-alerts", base=self._org, stopped=never
            )
        self._queue.put(_AlertBatch(kind, command, tick, list(new_items.values()), self._reported))

    def _run_worker(self) -> None:
        while batch := self._queue.get():
            try:
                if batch.new_items:
                    self._run_alert_command(batch)
                else:
                    self._write_state(batch)
            except LemmingError as error:  # for example a full disk, which the tick reports in detail
                self._log_failure(batch.kind, str(error))

    def _write_state(self, batch: _AlertBatch) -> None:
        fs.write_atomic(self._org.base, paths.REPORTED_FILE, dump_pretty(redact_json(batch.reported)))

    def _run_alert_command(self, batch: _AlertBatch) -> None:
        payload = {"event": batch.kind, "org": str(self._org), "tick": batch.tick, "things": batch.new_items}
        payload = redact_json(payload)
        problem = run_command(
            batch.command,
            stdin=dump_compact(payload) + b"\n",
            variables=to_environment(payload),
            cwd=self._org.base,
            limit_s=LIMIT_S,
            # a crash before this repeats the alert, a crash after it loses the alert
            on_start=lambda: self._write_state(batch),
        )
        if problem:
            self._log_failure(batch.kind, redact(problem))

    def _log_failure(self, kind: str, reason: str) -> None:
        with contextlib.suppress(DiskError):
            EngineLog(self._org).warning("command_failed", setting=f"on_{kind}", reason=reason)


def to_environment(payload: Mapping[str, Any]) -> dict[str, str]:
    """Return a payload as environment variables, for commands without a JSON parser.

    >>> item = dict(about="ada", text="ada: no key")
    >>> to_environment(dict(event="failure", org="/org", tick=7, things=[item]))["LEMMING_ABOUT"]
    'ada'
    """
    items = payload["things"]
    values = {
        "EVENT": payload["event"],
        "ORG": payload["org"],
        "TICK": str(payload["tick"]),
        "COUNT": str(len(items)),
        "ABOUT": ", ".join(item["about"] for item in items)[:_TEXT_CHARS],
        "TEXT": "\n".join(" ".join(item["text"].split()) for item in items)[:_TEXT_CHARS],
    }
    return {f"LEMMING_{name}": value.replace("\0", "") for name, value in values.items()}


def _is_failing(turn: TurnReport) -> bool:
    return turn.status == "failed" or bool(turn.status == "skipped" and turn.error)


def _find_resolved(report: TickReport, reported: AlertItems) -> set[str]:
    working = {ORG_ITEM}
    for turn in report.turns:
        error = reported.get(turn.agent, {}).get("error")
        if not _is_failing(turn) and (turn.status != "skipped" or error in _SILENTLY_RESOLVED):
            working.add(turn.agent)
    return reported.keys() & working


def _load_state(org: Organisation) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the reported items, without unknown content of the file."""
    try:
        value = parse(fs.read_bytes(org / paths.REPORTED_FILE, _FILE_LIMIT_BYTES))
    except (OSError, JsonProblem):
        return {}
    kinds = value.items() if isinstance(value, dict) else ()
    return {
        kind: {name: item for name, item in items.items() if isinstance(item, dict)}
        for kind, items in kinds
        if kind in (FAILURE, WAITING) and isinstance(items, dict)
    }


_STDERR_BYTES, _STDERR_WAIT_S = 4096, 0.5
_INHERITED = (
    *("PATH", "HOME", "LANG", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ"),
    *("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS"),
)


def run_command(
    command: list[str],
    *,
    stdin: bytes,
    variables: dict[str, str],
    cwd: Path,
    limit_s: float,
    on_start: Callable[[], None],
) -> str:
    """Run a program to the end. Return a description of the failure, or an empty string.

    The environment holds common variables (PATH, HOME, ..., XDG_*) and `variables`. After `limit_s` seconds the
    program and its process group are killed. Background processes left by the program continue. `on_start` is called
    once the program runs, or cannot be started.
    """
    inherited = {name: os.environ[name] for name in os.environ if name in _INHERITED or name.startswith("XDG_")}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**inherited, **variables},
            cwd=cwd,
            start_new_session=True,  # a process group to kill as a whole
        )
    except (OSError, ValueError) as error:
        on_start()
        return f"{command[0]} cannot be started: {getattr(error, 'strerror', None) or error}"
    stderr_chunks: list[bytes] = []
    pipe_thread = threading.Thread(target=_communicate, args=(process, stdin, stderr_chunks), daemon=True)
    pipe_thread.start()
    on_start()
    try:
        status = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"{command[0]} took longer than {limit_s:g} s and was killed"
    finally:
        pipe_thread.join(_STDERR_WAIT_S)  # a child of the program may hold the stream open for days
    last_line = (b"".join(stderr_chunks).decode("utf-8", "replace").strip().splitlines() or ["no message"])[-1]
    return f"{command[0]} ended with {status}: {redacted_excerpt(last_line)}" if status else ""


def _communicate(process: subprocess.Popen[bytes], stdin: bytes, stderr_chunks: list[bytes]) -> None:
    """Write the input and collect the beginning of stderr, then close the pipe of a running program.

    After the program's end the rest is read and dropped, because background processes may write for days.
    """
    assert process.stdin
    assert process.stderr
    with contextlib.suppress(OSError), process.stdin:
        process.stdin.write(stdin)
    with process.stderr:
        remaining = _STDERR_BYTES
        while chunk := os.read(process.stderr.fileno(), _STDERR_BYTES):
            stderr_chunks += [chunk[:remaining]] if remaining else []
            remaining = max(0, remaining - len(chunk))
            if not remaining and process.poll() is None:
                return
