"""The worker processes of an organisation's functions: each serves one agent, a call at a time.

A worker starts at the first call, and again after being ended. A reaper process surrounds each worker and
ends it, with all its children, when the engine closes the pipe or dies.

Leftovers of a function in its worker, such as a thread, can affect neither another agent's call nor a later
reply for the same agent: each call has a number, which its reply repeats.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from lemming.capabilities.toolbox.functions.function_call import REPLY_LIMIT_BYTES, FunctionResult, result_from_json
from lemming.capabilities.toolbox.functions.function_import import Sources
from lemming.ext import ConfigError, Problem
from lemming.kernel.base.blocking_deadline import NEVER, Deadline, WorkAbandoned, wait_slices
from lemming.kernel.base.errors import DiskError, ToolError
from lemming.kernel.base.jsontext import dump_compact, parse
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import Tool, ToolResult, interrupted_result
from lemming.kernel.tools.tool_context import RequestedEffects, ToolContext
from lemming.libraries.processes.supervised_process import SupervisedProcess

MAX_CONCURRENT = 4
MAX_IDLE = 8
"""Processes that wait for their agent's next call; the one that has waited longest is ended first."""
START_S = 60.0
"""Maximum seconds for a process to start."""
_PIECE_BYTES = 1 << 16


_LOADED: dict[str, tuple[Sources, Sources]] = {}
"""Sources last loaded without a problem, by organisation: `run_once` opens the organisation for each tick."""


class FunctionWorkers:
    """The worker processes of an organisation."""

    def __init__(self, org: Organisation, *, max_concurrent: int | None = None) -> None:
        self._org = org
        self._idle: list[WorkerProcess] = []
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(MAX_CONCURRENT if max_concurrent is None else max_concurrent)
        self.sources: Sources = {}
        """What the files of tools hold, which processes load; set by who has looked at the files."""
        self._rejected: tuple[tuple[Sources, Sources], tuple[Problem, ...]] = ({}, {}), ()

    def load_in_worker(self, files: Sequence[str], sources: Sources, settings: OrgSettings) -> Sequence[Problem]:
        """Load files in a worker before the engine does, to detect files that hang or end their process.

        Returns a problem for each such file; unchanged code is not loaded again. The engine itself finds all
        other problems. Raises `ConfigError` if no worker can start.
        """
        candidate = {file: sources[str(self._org.base / file)] for file in files}, sources
        if candidate != self._rejected[0]:
            is_proven = _LOADED.get(str(self._org.base)) == candidate
            self._rejected = (candidate, () if is_proven else tuple(self._find_hanging_files(files, sources, settings)))
        if not self._rejected[1]:
            _LOADED[str(self._org.base)] = candidate
        return self._rejected[1]

    def _find_hanging_files(self, files: Sequence[str], sources: Sources, settings: OrgSettings) -> Iterator[Problem]:
        worker: WorkerProcess | None = None
        try:
            for file in files:
                worker = worker or WorkerProcess(self._org, settings.tool_max_memory_bytes, sources)
                try:
                    request = dump_compact({"load": str(self._org.base / file)}) + b"\n"
                    worker.send_request(request, Deadline(settings.tool_timeout_s))
                except _WorkerEnded as error:
                    limit = f"its import took longer than {settings.tool_timeout_s:g} s (tool_timeout_s)"
                    hint = "move the work into the function, or remove the file from `tool_files`"
                    yield Problem(f"cannot be loaded: {error.reason or limit}", file, hint=hint)
                    worker.end()
                    worker = None
        except ToolError as error:
            raise ConfigError(error.message, where="config/org.json", hint="required for tool_files") from error
        finally:
            if worker:  # not kept: a scan of the tools may never make a call or close the pool
                worker.end()

    def call(self, tool: Tool, request: dict[str, Any], context: ToolContext) -> FunctionResult:
        """Run a call. If the process ends or hangs, the call's result reports the failure.

        The tool's time limit starts after the worker is ready. The turn's time limit also covers the wait and
        the start: without time left, the call is not made.

        Raises `WorkAbandoned` on a stop, and `DiskError` if the disk fails.
        """
        # Not guessable: the rest of an earlier call in the process could otherwise answer in its place.
        number = secrets.token_hex(16)
        line, checks = dump_compact({**request, "number": number}) + b"\n", request["callee"] is None
        with self._acquire_slot(context) as has_slot:
            if not has_slot:
                reason = f"{tool.name} was not called: the turn's time was over before a process was free"
                return FunctionResult(ToolResult(False, reason, outcome="skipped"), RequestedEffects())
            worker = self._take_worker(context.agent.name, context.settings)
            try:
                function_result = _parse_answer(
                    worker.send_request(line, context.deadline, context.stop, needs_validation=checks), number
                )
            except _WorkerEnded as error:
                worker.end()
                return FunctionResult(error.to_result(tool, context.deadline), RequestedEffects())
            # The answer may still arrive, and must not be read as the answer of the next call.
            except BaseException:
                worker.end()
                raise
            self._return_worker(worker, function_result)
            return function_result

    @contextlib.contextmanager
    def _acquire_slot(self, context: ToolContext) -> Iterator[bool]:
        """Hold a free slot in the block. Yield False if the turn's time is over. Raises `WorkAbandoned` on a stop."""
        turn = context.deadline.outer or NEVER
        has_slot = self._slots.acquire(blocking=False) or any(
            self._slots.acquire(timeout=seconds) for seconds in wait_slices(turn, context.stop, grace_s=0)
        )
        if not has_slot and context.stop is not None and context.stop.is_set():
            raise WorkAbandoned
        try:
            yield has_slot
        finally:
            if has_slot:
                self._slots.release()

    def close(self) -> None:
        """End the idle workers. A later call starts a new worker."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def _take_worker(self, agent: str, settings: OrgSettings) -> WorkerProcess:
        with self._lock:
            while idle_workers := [worker for worker in self._idle if worker.agent == agent]:
                self._idle.remove(worker := idle_workers[-1])
                if worker.is_alive and worker.matches(settings.tool_max_memory_bytes, self.sources):
                    return worker
                worker.end()
        return WorkerProcess(self._org, settings.tool_max_memory_bytes, self.sources, agent)

    def _return_worker(self, worker: WorkerProcess, function_result: FunctionResult) -> None:
        if function_result.needs_end or worker.has_unread_output:
            worker.end()
            return
        with self._lock:
            self._idle.append(worker)
            oldest = self._idle.pop(0) if len(self._idle) > MAX_IDLE else None
        if oldest:
            oldest.end()


def _parse_answer(line: bytes, number: str) -> FunctionResult:
    """Return the result in a worker's reply. Raise `_WorkerEnded` for a line of another form or another call.

    Raises `DiskError` if the worker's disk failed, because such an error says nothing about the call.
    """
    try:
        reply = parse(line, limit_bytes=REPLY_LIMIT_BYTES)
        if reply.pop("number") != number:
            raise _WorkerEnded("its process answered another call")
        if "disk" in reply:
            message, where, hint = reply["disk"]
            raise DiskError(message, where=where, hint=hint)
        return result_from_json(reply)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise _WorkerEnded("what its process gave is no answer") from error


class _WorkerEnded(Exception):
    """A worker gave no reply. The message is empty after a timeout. `began`: the call may have had effects."""

    def __init__(self, reason: str = "", *, began: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.began = reason, began

    def to_result(self, tool: Tool, deadline: Deadline) -> ToolResult:
        if self.reason and self.began and not tool.repeatable:
            return interrupted_result(f"{tool.name}: {self.reason}")
        if self.reason:
            return ToolResult(False, f"{tool.name} failed: {self.reason}")
        suffix = "" if tool.repeatable else "; what it had done by then is done"
        message = f"it took longer than {round(deadline.seconds, 2):g} s and was ended{suffix}"
        return ToolResult(False, f"{tool.name}: {message}", outcome="timed_out")


class WorkerProcess:
    """One worker process inside its reaper."""

    def __init__(self, org: Organisation, memory_bytes: int, sources: Sources, agent: str = "") -> None:
        self._memory_bytes, self._sources, self.agent = memory_bytes, sources, agent
        texts = {file: source.decode("latin-1") for file, source in sources.items()}  # byte by byte
        self._unsent, self._has_validation = [dump_compact(texts) + b"\n"], False
        # "-P", or the organisation's folder were on the path
        command = [sys.executable, "-P", "-m", f"{__package__}.function_worker", str(memory_bytes)]
        search_path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path if folder is not None)
        environment = {**os.environ, "PYTHONPATH": search_path}
        try:
            self._process = SupervisedProcess(command, folder=org.base, environment=environment, has_errors=False)
        except OSError as error:
            raise ToolError(f"the process for functions cannot be started: {error}") from error
        self._has_ended = False
        # a process that reads nothing, or writes half a line, must not hold the engine
        for stream in (self._process.stdin, self._process.stdout):
            os.set_blocking(stream.fileno(), False)

    @property
    def is_alive(self) -> bool:
        """True if the worker accepts requests."""
        return not self._has_ended and not self._process.has_ended

    @property
    def has_unread_output(self) -> bool:
        """True if the worker wrote more than its reply. The next call would read the excess as its reply."""
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        return bool(poll.poll(0))

    def matches(self, memory_bytes: int, sources: Sources) -> bool:
        """Return True if the worker was started with this memory limit and with the current sources."""
        return self._memory_bytes == memory_bytes and self._sources is sources

    def send_request(
        self, request: bytes, deadline: Deadline, stop: threading.Event | None = None, *, needs_validation: bool = False
    ) -> bytes:
        """Return the reply line to a request. Raises `_WorkerEnded`, and `WorkAbandoned` on a stop.

        The deadline restarts when the worker is ready, because the start is not part of the function's time. The
        enclosing deadline of the turn limits the start too. `needs_validation`: load the argument validation first.
        """
        if needs_validation and not self._has_validation:
            self._unsent, self._has_validation = [*self._unsent, b'{"checks":true}\n'], True
        while self._unsent:
            start = (deadline.outer or NEVER).within(START_S)
            try:
                self._exchange(self._unsent.pop(0), start, stop)
            except _WorkerEnded as error:
                reason = error.reason or f"its process did not begin within {start.seconds:.3g} s"
                raise _WorkerEnded(reason, began=False) from error
        deadline.restart()
        if deadline.has_passed:
            raise _WorkerEnded("the turn's time was over before its process was ready", began=False)
        return self._exchange(request, deadline, stop)

    def _exchange(self, request: bytes, deadline: Deadline, stop: threading.Event | None) -> bytes:
        to_write, answer = memoryview(request), bytearray()
        write_to, read_from = self._process.stdin.fileno(), self._process.stdout.fileno()
        for seconds in wait_slices(deadline, stop):
            poll = select.poll()
            poll.register(read_from, select.POLLIN)
            if to_write:
                poll.register(write_to, select.POLLOUT)
            ready = {descriptor for descriptor, _ in poll.poll(1000 * seconds)}
            if write_to in ready:
                to_write = to_write[self._write_some(write_to, to_write) :]
            if read_from in ready:
                answer += self._read_some(read_from)
                if len(answer) > REPLY_LIMIT_BYTES:
                    raise _WorkerEnded(f"what it gave is more than {REPLY_LIMIT_BYTES} bytes")
                if answer.endswith(b"\n"):
                    return bytes(answer)
        if stop is not None and stop.is_set():
            raise WorkAbandoned
        raise _WorkerEnded

    def end(self) -> None:
        """End the worker and all its children."""
        self._has_ended = True
        self._process.close()

    def _write_some(self, descriptor: int, content: memoryview) -> int:
        try:
            return os.write(descriptor, content[:_PIECE_BYTES])
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _WorkerEnded(self._describe_end()) from error

    def _read_some(self, descriptor: int) -> bytes:
        try:
            piece = os.read(descriptor, _PIECE_BYTES)
        except BlockingIOError:
            return b""
        if not piece:
            raise _WorkerEnded(self._describe_end())
        return piece

    def _describe_end(self) -> str:
        """Return a description of the worker's end, as reported by the reaper."""
        status = self._process.read_report().strip()
        if not status.lstrip("-").isdigit():
            return f"its process ended{f': {status}' if status else ''}"
        if int(status) >= 0:
            return f"its process ended with exit status {status}"
        with contextlib.suppress(ValueError):
            return f"its process was ended by {signal.Signals(-int(status)).name}"
        return f"its process was ended by signal {-int(status)}"
