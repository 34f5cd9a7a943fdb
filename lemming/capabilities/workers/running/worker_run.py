"""Run a harness once: feed the prompt, read the output, and enforce the limits. No process is left at the end.

The thread of the caller reads the output. A second one watches: it sends the harness its stop signal at the deadline,
after silence, at the cost limit and at the engine's stop, and kills every process if that is not enough.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import IO

from lemming.capabilities.workers.attempts import STOP_FILE
from lemming.capabilities.workers.harnesses.acp_reader import READERS
from lemming.capabilities.workers.harnesses.harness_table import build_invocation, can_ask, find_program
from lemming.capabilities.workers.harnesses.harness_types import EndedBy, ErrorKind, HarnessEnd, HarnessRun, Progress
from lemming.capabilities.workers.harnesses.json_fields import OWN_TOKENS, JsonFields, RunTokens
from lemming.capabilities.workers.harnesses.output_readers import OutputReader
from lemming.capabilities.workers.running.harness_process import HarnessProcess
from lemming.capabilities.workers.running.model_gateway import ModelGateway
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import Unusable
from lemming.kernel.base.redaction.secrets import redact_untrusted
from lemming.kernel.files import fs
from lemming.kernel.files.fs import AppendFile

_MAX_LINE_BYTES = 64 << 20
_STDERR_TAIL_BYTES = 8 << 10
_WATCH_INTERVAL_S = 0.1
_STOP_GRACE_S = 2.5  # within the grace of an engine that ends
_LIMIT_TEXTS: dict[EndedBy, str] = {
    "deadline": "the run must end within {run.deadline_s:g} s",
    "silence": "the harness must give output or send a request within {run.silence_s:g} s",
    "stop": "the engine was asked to stop",
    "person": "stopped by {by}",
    "budget": "the run must cost at most ${run.job.max_cost_usd:g}",
}


def run_harness(run: HarnessRun) -> HarnessEnd:
    """Run a harness to its end or to a limit. No process of it is left when this returns.

    Writes `progress.jsonl` and `session.json` into the attempt's folder. An error of the harness is told by its end. Raises
    `Unusable` if the harness cannot be started, or not confined.
    """
    program = find_program(run.harness)
    if program is None:
        message = f"{(*run.harness.program, run.harness.name)[0]} cannot be started: it is not installed"
        raise Unusable(message, where=run.harness.name, hint=run.harness.install)
    is_free = run.find_cost(RunTokens(input=1, output=1)) == 0
    if run.job.max_cost_usd is not None and run.harness.api == "none" and not is_free:
        hint = "limit runs and deadline_s: the model requests of this harness do not pass the engine"
        raise Unusable("a limit in dollars cannot be kept", where=run.harness.name, hint=hint)
    silence = Deadline(run.silence_s)
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(ModelGateway(run, silence.restart)) if run.harness.api != "none" else None
        arguments, environment = _prepare_harness(run, gateway)
        log = RunLog(run, stack.enter_context(fs.AppendFile(run.attempt.folder, PROGRESS_FILE)))
        reader = READERS[run.harness.output](run.harness, log.earlier_tokens, run.permit)
        stack.callback(reader.close)
        process = HarnessProcess(
            [str(program.resolve()), *arguments], clone=run.attempt.clone, home=run.attempt.home,
            environment=environment, readable=run.readable, socket=gateway.socket if gateway else None,
            is_confined=run.job.is_confined,
        )  # fmt: skip
        return _Run(run, process, gateway, silence, log).finish(reader)


def _prepare_harness(run: HarnessRun, gateway: ModelGateway | None) -> tuple[list[str], dict[str, str]]:
    """Write the harness's files into HOME. Return its arguments and its environment."""
    limit_usd = run.job.max_cost_usd
    invocation = build_invocation(
        run.harness, model=run.job.model, session=run.session, base_url=gateway.url if gateway else "",
        max_cost_usd=None if limit_usd is None else max(0.0, limit_usd - run.spent_usd), max_turns=run.max_turns,
        permissions="ask" if run.permit and can_ask(run.harness) else "bypass",
    )  # fmt: skip
    environment = {**invocation.environment, **run.environment}
    if gateway:
        environment[run.harness.key_variable] = gateway.token
    texts = (*invocation.command, *environment.values(), *invocation.home_files.values(), run.prompt)
    if run.secret_key and any(run.secret_key in text for text in texts):
        hint = "remove the key from the harness's options and from the prompt"
        raise Unusable("the key of a model must not be given to a harness", where=run.harness.name, hint=hint)
    for path, text in invocation.home_files.items():
        fs.write_private(run.attempt.home, path, text.encode())
    return invocation.command[1:], environment


class _Run:
    def __init__(
        self, run: HarnessRun, process: HarnessProcess, gateway: ModelGateway | None, silence: Deadline, log: RunLog
    ) -> None:
        self._run, self._process, self._gateway, self._silence, self._log = run, process, gateway, silence, log
        self._ended_by: EndedBy = ""
        self._budget_grace: Deadline | None = None
        self._has_ended = threading.Event()
        self._input: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._error_output = bytearray()

    def finish(self, reader: OutputReader) -> HarnessEnd:
        """Hold the conversation to its end, and return the end of the run."""
        work = (self._watch, self._read_errors, self._feed)
        threads = [threading.Thread(target=function, daemon=True) for function in work]
        for thread in threads:
            thread.start()
        try:
            self._converse(reader)
            if reader.ends_process:
                self._input.put(None)
                self._process.wait(_STOP_GRACE_S)  # it saves its session once its input has ended
        finally:
            self._process.end()
            self._input.put(None)
            for thread in threads:
                thread.join()
            status = self._process.close()
        end = reader.finish(status, self._log.redact(self._error_output.decode("utf-8", "replace")))
        gateway = self._gateway
        if gateway:
            gateway.close()  # a request that was cut costs, too
            if gateway.is_exhausted and not self._ended_by:
                self._ended_by = "budget"
            if gateway.requests:
                tokens, usd = gateway.tokens, gateway.cost_usd
                end = replace(end, gateway_tokens=tokens, gateway_usd=usd, requests=gateway.requests)
        self._log.save_session(end.session, end.tokens)
        return replace(self._explain(end), exit_status=status, ended_by=self._ended_by)

    def _converse(self, reader: OutputReader) -> None:
        """Pass input and output between the harness and the reader until the turn or the harness ends."""
        run = self._run
        self._input.put(reader.begin(run.prompt, session=run.session, folder=str(run.attempt.clone)))
        is_open = reader.is_answering
        if not is_open:
            self._input.put(None)
        for line in _iter_lines(self._process.stdout, self._silence.restart):
            for progress in reader.read_line(line):
                self._log.add(progress)
            if is_open:
                self._silence.restart()  # a gate may have taken its time
                is_open = reader.is_answering
                self._input.put(reader.answers if is_open else None)
                reader.answers = b""
            if reader.ends_process and reader.error is not None:
                break
        if not reader.ends_process:
            self._has_ended.wait()  # a harness may close its output and go on

    def _explain(self, end: HarnessEnd) -> HarnessEnd:
        """Return the end with the limit as its error, if a limit ended the run."""
        message = self._log.redact(end.message)
        if not self._ended_by:
            return replace(end, message=message)
        by = self._run.attempt.read_json(STOP_FILE).get("by") or "a person"
        reason = _LIMIT_TEXTS[self._ended_by].format(run=self._run, by=by)
        error: ErrorKind = "budget" if self._ended_by == "budget" else "stopped"
        return replace(end, error=error, message=f"{reason}: {message}" if message else reason)

    def _feed(self) -> None:
        """Write the input, on a thread of its own: a harness may write before it reads."""
        with contextlib.suppress(OSError, ValueError):  # the harness need not read all of it, or has ended
            for content in iter(self._input.get, None):
                self._process.stdin.write(content)
            self._process.stdin.close()

    def _read_errors(self) -> None:
        while chunk := os.read(self._process.stderr.fileno(), 1 << 16):
            self._silence.restart()
            self._error_output += chunk
            del self._error_output[:-_STDERR_TAIL_BYTES]

    def _watch(self) -> None:
        """Wait for the end of the harness, and bring it about at a limit."""
        deadline = Deadline(self._run.deadline_s)
        try:
            while not self._ended_by and not self._process.wait(_WATCH_INTERVAL_S):
                self._ended_by = self._find_limit(deadline)
            if self._ended_by:
                self._process.send_signal(signal.Signals[f"SIG{self._run.harness.stop_signal}"])
                self._process.wait(_STOP_GRACE_S)
            self._process.end()
        finally:
            self._has_ended.set()

    def _find_limit(self, deadline: Deadline) -> EndedBy:
        if self._gateway and self._gateway.is_exhausted:
            # It was refused, and most harnesses tell so and end by themselves.
            self._budget_grace = self._budget_grace or Deadline(self._run.budget_grace_s)
            if self._budget_grace.has_passed:
                return "budget"
        if (self._run.attempt.folder / STOP_FILE).exists():
            return "person"
        if self._run.stop is not None and self._run.stop.is_set():
            return "stop"
        if deadline.has_passed:
            return "deadline"
        return "silence" if self._silence.has_passed else ""


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


PROGRESS_FILE, SESSION_FILE = "progress.jsonl", "session.json"
_MAX_TEXT_CHARS, _MAX_SCANNED_CHARS = 500, 4000
_MAX_PROGRESS_BYTES = 4 << 20
_END_OF_LOG = {"kind": "text", "text": "more progress is not written: the file is full", "path": ""}


class RunLog:
    """The log of one run. `file`: `progress.jsonl`. `earlier_tokens`: those of the session's earlier runs."""

    def __init__(self, run: HarnessRun, file: AppendFile) -> None:
        self._run, self._file, self._clock, self._session = run, file, SystemClock(), ""
        saved = run.attempt.read_json(SESSION_FILE)
        tokens = JsonFields(saved.get("tokens") if saved.get("session") == run.session else None)
        self.earlier_tokens = tokens.sum_tokens(OWN_TOKENS)
        self.save_session(run.session)

    def add(self, progress: Progress) -> None:
        """Append a step of the worker, unless the file is full, and tell the caller. Paths are relative to the clone."""
        if progress.kind == "session":
            self.save_session(progress.text)
        text, path = (
            self.redact(value[:_MAX_SCANNED_CHARS].replace(f"{self._run.attempt.clone}/", ""))[:_MAX_TEXT_CHARS]
            for value in (progress.text, progress.path)
        )
        progress = replace(progress, text=text, path=path)
        if self._run.on_progress is not None:
            self._run.on_progress(progress)
        if self._file.size > _MAX_PROGRESS_BYTES:
            return
        entry = {"at": self._clock.now().isoformat(), **asdict(progress)}
        self._file.append(json.dumps(entry).encode() + b"\n")
        if self._file.size > _MAX_PROGRESS_BYTES:
            self._file.append(json.dumps(entry | _END_OF_LOG).encode() + b"\n")

    def save_session(self, session: str, tokens: RunTokens | None = None) -> None:
        """Write the session's id durably as soon as it is known, and its tokens at the end. Repeatable."""
        if session and (session != self._session or tokens):
            self._session = session
            total = asdict(self.earlier_tokens + (tokens or RunTokens()))
            content = json.dumps({"session": session, "harness": self._run.harness.name, "tokens": total})
            fs.write_atomic(self._run.attempt.folder, SESSION_FILE, content.encode(), sync=True)

    def redact(self, text: str) -> str:
        """Return a text of the harness without secrets."""
        key = self._run.secret_key
        return redact_untrusted(text.replace(key, "[redacted key]") if key else text)
