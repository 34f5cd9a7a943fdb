"""Run a harness once: feed the prompt, read the output, and enforce the limits. No process is left at the end.

The thread of the caller reads the output. A second one watches: it sends the harness its stop signal at the deadline,
after silence, at the cost limit and at the engine's stop, and kills every process if that is not enough.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import IO

from lemming.capabilities.workers.attempts import STOP_FILE, Attempt
from lemming.capabilities.workers.harnesses import harness_table
from lemming.capabilities.workers.harnesses.harness_types import ErrorKind, HarnessResult, Progress
from lemming.capabilities.workers.harnesses.output_readers import make_reader
from lemming.capabilities.workers.running.harness_process import HarnessProcess
from lemming.capabilities.workers.running.model_gateway import ModelGateway
from lemming.capabilities.workers.running.run_types import EndedBy, HarnessEnd, HarnessRun
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import Unusable
from lemming.kernel.base.redaction.secrets import redact_untrusted
from lemming.kernel.files import fs
from lemming.kernel.files.fs import AppendFile

PROGRESS_FILE, SESSION_FILE = "progress.jsonl", "session.json"
_MAX_TEXT_CHARS, _MAX_SCANNED_CHARS = 500, 4000
_MAX_PROGRESS_BYTES = 4 << 20
_MAX_LINE_BYTES = 64 << 20
_STDERR_TAIL_BYTES = 8 << 10
_WATCH_INTERVAL_S = 0.1
_BUDGET_GRACE_S = 5.0
_STOP_GRACE_S = 2.5  # within the grace of an engine that ends
_LIMIT_TEXTS: dict[EndedBy, str] = {
    "deadline": "the run must end within {run.deadline_s:g} s",
    "silence": "the harness must give output or send a request within {run.silence_s:g} s",
    "stop": "the engine was asked to stop",
    "person": "stopped by {by}",
    "budget": "the run must cost at most ${run.max_cost_usd:g}",
}


def run_harness(run: HarnessRun) -> HarnessEnd:
    """Run a harness to its end or to a limit. No process of it is left when this returns.

    Writes `progress.jsonl` and `session.json` into `run.folder`. An error of the harness is told by the result. Raises
    `Unusable` if the harness cannot be started, or not confined.
    """
    program = harness_table.find_program(run.harness)
    if program is None:
        name = run.harness.program[0] if run.harness.program else run.harness.name
        raise Unusable(
            f"{name} cannot be started: it is not installed", where=run.harness.name, hint=run.harness.install
        )
    silence = Deadline(run.silence_s)
    with contextlib.ExitStack() as stack:
        gateway = None
        if run.harness.api != "none":
            gateway = stack.enter_context(ModelGateway(run, silence.restart))
        command, environment = _prepare_command(run, gateway)
        command[0] = str(program.resolve())
        log = stack.enter_context(contextlib.closing(_RunLog(run)))
        process = HarnessProcess(
            command, clone=run.clone, home=run.home, environment=environment, readable=run.readable,
            socket=gateway.socket if gateway else None, is_confined=run.is_confined,
        )  # fmt: skip
        return _Run(run, process, gateway, silence, log).finish()


def _prepare_command(run: HarnessRun, gateway: ModelGateway | None) -> tuple[list[str], dict[str, str]]:
    """Write the harness's files into HOME, and return its command line and environment."""
    harness, limit_usd = run.harness, run.max_cost_usd
    values = {"model": run.model, "session": run.session, "base_url": gateway.url if gateway else ""}
    command = harness_table.build_command(
        harness, **values, max_turns=run.max_turns,
        max_cost_usd=None if limit_usd is None else max(0.0, limit_usd - run.spent_usd),
        permissions="ask" if run.permit is not None and harness_table.can_ask(harness) else "bypass",
    )  # fmt: skip
    environment = {**harness_table.build_environment(harness, **values), **run.environment}
    if gateway:
        environment[harness.key_variable] = gateway.token
    files = harness_table.build_home_files(harness, **values)
    if run.key and any(run.key in text for text in (*command, *environment.values(), *files.values(), run.prompt)):
        raise Unusable(
            "the key of a model must not be given to a harness", where=harness.name,
            hint="remove the key from the harness's options and from the prompt",
        )  # fmt: skip
    for path, text in files.items():
        fs.write_private(run.home, path, text.encode())
    return command, environment


class _Run:
    """A run under way."""

    def __init__(
        self, run: HarnessRun, process: HarnessProcess, gateway: ModelGateway | None, silence: Deadline, log: _RunLog
    ) -> None:
        self._run, self._process, self._gateway, self._silence, self._log = run, process, gateway, silence, log
        self._ended_by: EndedBy = ""
        self._budget_grace: Deadline | None = None
        self._error_output = bytearray()

    def finish(self) -> HarnessEnd:
        """Read the output to its end, and return the end of the run."""
        watcher, *helpers = (
            threading.Thread(target=work, name=f"worker-{name}", daemon=True)
            for name, work in (("watch", self._watch), ("prompt", self._feed_prompt), ("errors", self._read_errors))
        )
        for thread in (watcher, *helpers):
            thread.start()
        reader = make_reader(self._run.harness.output)
        try:
            for line in _iter_lines(self._process.stdout, self._silence.restart):
                for progress in reader.read_line(line):
                    self._log.add(progress)
            watcher.join()  # a harness may close its output and go on
        finally:
            self._process.end()
            for thread in (watcher, *helpers):
                thread.join()
            status = self._process.close()
        error_output = self._log.redact(self._error_output.decode("utf-8", "replace"))
        result = reader.finish(status, error_output)
        gateway = self._gateway
        if gateway:
            gateway.close()  # a request that was cut costs, too
        if gateway and gateway.is_exhausted and not self._ended_by:
            self._ended_by = "budget"
        result = self._explain(result)
        self._log.save_session(result.session)
        has_usage = gateway is not None and gateway.requests > 0
        return HarnessEnd(
            result=result,
            exit_status=status,
            ended_by=self._ended_by,
            tokens=gateway.tokens if gateway and has_usage else None,
            cost_usd=gateway.cost_usd if gateway and has_usage else None,
            requests=gateway.requests if gateway else 0,
        )

    def _explain(self, result: HarnessResult) -> HarnessResult:
        """Return the result with the limit as its error, if a limit ended the run."""
        message = self._log.redact(result.message)
        if not self._ended_by:
            return replace(result, message=message)
        reason = _LIMIT_TEXTS[self._ended_by].format(run=self._run, by=self._read_stopper())
        error: ErrorKind = "budget" if self._ended_by == "budget" else "stopped"
        return replace(result, error=error, message=f"{reason}: {message}" if message else reason)

    def _read_stopper(self) -> str:
        """Return the name of the person who asked for the end of the run."""
        by = Attempt("", self._run.folder).read_json(STOP_FILE).get("by")
        return by if isinstance(by, str) and by else "a person"

    def _feed_prompt(self) -> None:
        with contextlib.suppress(OSError), self._process.stdin as stdin:  # the harness need not read all of it
            stdin.write(self._run.prompt.encode())

    def _read_errors(self) -> None:
        while chunk := os.read(self._process.stderr.fileno(), 1 << 16):
            self._silence.restart()
            self._error_output += chunk
            del self._error_output[:-_STDERR_TAIL_BYTES]

    def _watch(self) -> None:
        """Wait for the end of the harness, and bring it about at a limit."""
        deadline = Deadline(self._run.deadline_s)
        while not self._process.wait(_WATCH_INTERVAL_S):
            self._ended_by = self._find_limit(deadline)
            if self._ended_by:
                self._process.send_signal(signal.Signals[f"SIG{self._run.harness.stop_signal}"])
                self._process.wait(_STOP_GRACE_S)
                break
        self._process.end()

    def _find_limit(self, deadline: Deadline) -> EndedBy:
        if self._gateway and self._gateway.is_exhausted:
            # It was refused, and most harnesses tell so and end by themselves.
            self._budget_grace = self._budget_grace or Deadline(_BUDGET_GRACE_S)
            if self._budget_grace.has_passed:
                return "budget"
        if (self._run.folder / STOP_FILE).exists():
            return "person"
        if self._run.stop is not None and self._run.stop.is_set():
            return "stop"
        if deadline.has_passed:
            return "deadline"
        return "silence" if self._silence.has_passed else ""


class _RunLog:
    """The files of a run that screens read. Texts in it have no secrets and are short."""

    def __init__(self, run: HarnessRun) -> None:
        self._run, self._clock, self._session, self._is_full = run, SystemClock(), "", False
        self._file = AppendFile(run.folder, PROGRESS_FILE)
        self.save_session(run.session)

    def add(self, progress: Progress) -> None:
        """Append a step of the worker, unless the file is full, and pass it on."""
        if progress.kind == "session":
            self.save_session(progress.text)
        text, path = (
            self.redact(value[:_MAX_SCANNED_CHARS])[:_MAX_TEXT_CHARS] for value in (progress.text, progress.path)
        )
        self._append(replace(progress, text=text, path=path))
        if self._run.on_progress is not None:
            self._run.on_progress(replace(progress, text=text, path=path))

    def _append(self, progress: Progress) -> None:
        if self._is_full:
            return
        if self._file.size > _MAX_PROGRESS_BYTES:
            self._is_full = True
            progress = Progress(kind="text", text="more progress is not written: the file is full")
        entry = {
            "at": self._clock.now().isoformat(),
            "kind": progress.kind,
            "text": progress.text,
            "path": progress.path,
        }
        self._file.append(json.dumps(entry).encode() + b"\n")

    def save_session(self, session: str) -> None:
        """Write the session's id durably as soon as it is known. Repeatable."""
        if session and session != self._session:
            self._session = session
            content = json.dumps({"session": session, "harness": self._run.harness.name})
            fs.write_atomic(self._run.folder, SESSION_FILE, content.encode(), sync=True)

    def redact(self, text: str) -> str:
        """Return a text of the harness without secrets."""
        key = self._run.key
        return redact_untrusted(text.replace(key, "[redacted key]") if key else text)

    def close(self) -> None:
        """Close the files."""
        self._file.close()


def _iter_lines(stream: IO[bytes], on_output: Callable[[], object]) -> Iterator[bytes]:
    """Yield the lines of a stream without their ends. A line over `_MAX_LINE_BYTES` is cut there."""
    line = bytearray()
    while chunk := os.read(stream.fileno(), 1 << 16):
        on_output()
        *complete, remainder = chunk.split(b"\n")
        for part in complete:
            line += part[: _MAX_LINE_BYTES - len(line)]
            yield bytes(line)
            line.clear()
        line += remainder[: _MAX_LINE_BYTES - len(line)]
    if line:
        yield bytes(line)
