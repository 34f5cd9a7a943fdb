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
from dataclasses import asdict, replace
from typing import IO

from lemming.capabilities.workers.attempts import STOP_FILE, Attempt
from lemming.capabilities.workers.harnesses import harness_table
from lemming.capabilities.workers.harnesses.acp_client import run_acp
from lemming.capabilities.workers.harnesses.claude_permissions import ClaudePermissions
from lemming.capabilities.workers.harnesses.harness_types import ErrorKind, HarnessResult, Progress, RunTokens
from lemming.capabilities.workers.harnesses.output_readers import make_reader
from lemming.capabilities.workers.running.harness_process import HarnessProcess
from lemming.capabilities.workers.running.model_gateway import ModelGateway
from lemming.capabilities.workers.running.run_types import EndedBy, HarnessEnd, HarnessRun
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import Unusable
from lemming.kernel.base.integers import clamp_int
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
        permissions="ask" if _asks(run) else "bypass",
    )  # fmt: skip
    environment = {**harness_table.build_environment(harness, **values), **run.environment}
    if gateway:
        environment[harness.key_variable] = gateway.token
    files = harness_table.build_home_files(harness, **values)
    if run.secret_key and any(
        run.secret_key in text for text in (*command, *environment.values(), *files.values(), run.prompt)
    ):
        raise Unusable(
            "the key of a model must not be given to a harness", where=harness.name,
            hint="remove the key from the harness's options and from the prompt",
        )  # fmt: skip
    for path, text in files.items():
        fs.write_private(run.home, path, text.encode())
    return command, environment


def _asks(run: HarnessRun) -> bool:
    return run.permit is not None and harness_table.can_ask(run.harness)


class _Run:
    """A run under way."""

    def __init__(
        self, run: HarnessRun, process: HarnessProcess, gateway: ModelGateway | None, silence: Deadline, log: _RunLog
    ) -> None:
        self._run, self._process, self._gateway, self._silence, self._log = run, process, gateway, silence, log
        self._ended_by: EndedBy = ""
        self._budget_grace: Deadline | None = None
        self._has_ended = threading.Event()
        self._error_output = bytearray()

    def finish(self) -> HarnessEnd:
        """Read the output to its end, and return the end of the run."""
        watcher, *helpers = (
            threading.Thread(target=work, name=f"worker-{name}", daemon=True)
            for name, work in (("watch", self._watch), ("errors", self._read_errors))
        )
        for thread in (watcher, *helpers):
            thread.start()
        try:
            conclude = self._converse()
        finally:
            self._process.end()
            for thread in (watcher, *helpers):
                thread.join()
            status = self._process.close()
        result = conclude(status, self._log.redact(self._error_output.decode("utf-8", "replace")))
        gateway = self._gateway
        if gateway:
            gateway.close()  # a request that was cut costs, too
        if gateway and gateway.is_exhausted and not self._ended_by:
            self._ended_by = "budget"
        result = self._explain(result)
        self._log.save_session(result.session, result.tokens)
        has_usage = gateway is not None and gateway.requests > 0
        return HarnessEnd(
            result=result,
            exit_status=status,
            ended_by=self._ended_by,
            tokens=gateway.tokens if gateway and has_usage else None,
            cost_usd=gateway.cost_usd if gateway and has_usage else None,
            requests=gateway.requests if gateway else 0,
        )

    def _converse(self) -> Callable[[int, str], HarnessResult]:
        """Hold the conversation with the harness. Return the function that makes its result of status and errors."""
        run = self._run
        if run.harness.output == "acp":
            watched = replace(run, on_progress=self._log.add)
            turn = run_acp(self._process.stdin, self._process.stdout, watched, on_output=self._silence.restart)
            return lambda _, errors: replace(turn, message=f"{turn.message} {errors}".strip()) if turn.error else turn
        reader = make_reader(run.harness.output, self._log.earlier_tokens)
        permissions = ClaudePermissions(run.permit) if _asks(run) and run.permit else None
        prompt = permissions.first_input(run.prompt) if permissions else run.prompt.encode()
        # On a thread of its own: a harness may write before it reads.
        feeder = threading.Thread(target=self._feed, args=(prompt,), kwargs={"is_last": not permissions}, daemon=True)
        feeder.start()
        for line in _iter_lines(self._process.stdout, self._silence.restart):
            for progress in reader.read_line(line):
                self._log.add(progress)
            if permissions:
                answer = permissions.answer(line)
                self._silence.restart()  # a gate may have taken its time
                self._feed(answer or b"", is_last=permissions.is_finished)
        self._has_ended.wait()  # a harness may close its output and go on
        feeder.join()
        if permissions:
            return lambda status, errors: permissions.conclude(reader.finish(status, errors))
        return reader.finish

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

    def _feed(self, content: bytes, *, is_last: bool) -> None:
        with contextlib.suppress(OSError, ValueError):  # the harness need not read all of it, or has ended
            self._process.stdin.write(content)
            if is_last:
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
        self.earlier_tokens = self._read_earlier_tokens()
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

    def save_session(self, session: str, tokens: RunTokens | None = None) -> None:
        """Write the session's id durably as soon as it is known, and its tokens at the end. Repeatable."""
        if session and (session != self._session or tokens):
            self._session = session
            total = {
                name: count + getattr(self.earlier_tokens, name)
                for name, count in asdict(tokens or RunTokens()).items()
            }
            content = json.dumps({"session": session, "harness": self._run.harness.name, "tokens": total})
            fs.write_atomic(self._run.folder, SESSION_FILE, content.encode(), sync=True)

    def _read_earlier_tokens(self) -> RunTokens:
        """Return the tokens of the session's earlier runs, which Codex counts again."""
        with contextlib.suppress(FileNotFoundError, ValueError, AttributeError):  # none, or cut by a crash
            saved = json.loads(fs.read_bytes(self._run.folder / SESSION_FILE, 1 << 16))
            tokens = saved.get("tokens") if saved.get("session") == self._run.session else None
            if isinstance(tokens, dict):
                return RunTokens(**{name: clamp_int(tokens.get(name)) or 0 for name in asdict(RunTokens())})
        return RunTokens()

    def redact(self, text: str) -> str:
        """Return a text of the harness without secrets."""
        key = self._run.secret_key
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
