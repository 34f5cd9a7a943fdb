"""The processes that run an organisation's functions: each for one agent, a call at a time.

A process is started at the first call, and again after one that was ended. A keeper is around each: it ends
the process, with all that it started, when the engine lets go or dies.

What a function leaves behind in its process, such as a thread, reaches no other agent's call, and no later
answer of the same agent: each call has a number that its answer bears.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from lemming.capabilities.processes import keeper
from lemming.capabilities.toolbox.functions.body import Done
from lemming.capabilities.toolbox.functions.loading import Sources
from lemming.capabilities.toolbox.functions.wire import (
    REPLY_LIMIT_BYTES,
    done_in,
    load_request,
    sources_as_json,
)
from lemming.kernel.base.deadlines import NEVER, Deadline, LeftBehind, wait_slices
from lemming.kernel.base.errors import ConfigError, DiskError, Problem, ToolError
from lemming.kernel.base.jsontext import compact, parse
from lemming.kernel.org.config import Org
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import Tool, ToolResult, interrupted
from lemming.kernel.tools.context import CallEffects, ToolContext

AT_ONCE = 4
IDLE_AT_MOST = 8
"""Processes that wait for their agent's next call; the one that has waited longest is ended first."""
START_S = 60.0
"""How long a process may take to begin."""
_END_S = 10.0
_PIECE_BYTES = 1 << 16


_LOADED: dict[str, tuple[Sources, Sources]] = {}
"""What was last loaded without a problem in a process, by organisation: `run_once` opens it for each tick."""


class FunctionWorkers:
    """The processes of one organisation."""

    def __init__(self, org: Organisation, *, at_once: int | None = None) -> None:
        self._org = org
        self._idle: list[Worker] = []
        self._lock = threading.Lock()
        self._room = threading.Semaphore(AT_ONCE if at_once is None else at_once)
        self.sources: Sources = {}
        """What the files of tools hold, which processes load; set by who has looked at the files."""
        self._refused: tuple[tuple[Sources, Sources], tuple[Problem, ...]] = ({}, {}), ()

    def try_out(self, files: Sequence[str], sources: Sources, settings: Org) -> Sequence[Problem]:
        """Load files in a process before the engine does: one that hangs, or ends its process, ends no more.

        Returns a problem for each such file; the same code is not tried again. What is wrong otherwise the
        engine finds itself. Raises `ConfigError` where no process can be started.
        """
        tried = {file: sources[str(self._org.base / file)] for file in files}, sources
        if tried != self._refused[0]:
            is_known = _LOADED.get(str(self._org.base)) == tried
            self._refused = tried, () if is_known else tuple(self._held_up(files, sources, settings))
        if not self._refused[1]:
            _LOADED[str(self._org.base)] = tried
        return self._refused[1]

    def _held_up(self, files: Sequence[str], sources: Sources, settings: Org) -> Iterator[Problem]:
        worker: Worker | None = None
        try:
            for file in files:
                worker = worker or Worker(self._org, settings.tool_max_memory_bytes, sources)
                try:
                    request = compact(load_request(self._org.base, file)) + b"\n"
                    worker.ask(request, Deadline(settings.tool_timeout_s))
                except _Ended as error:
                    limit = f"its import took longer than {settings.tool_timeout_s:g} s (tool_timeout_s)"
                    hint = "do the work in the function, or take the file out of `tool_files`"
                    yield Problem(f"cannot be loaded: {error.why or limit}", file, hint=hint)
                    worker.end()
                    worker = None
        except ToolError as error:
            raise ConfigError(error.message, where="config/org.json", hint="tool_files needs it") from error
        finally:
            if worker:  # not kept: who only looks at the tools may never call one, nor close anything
                worker.end()

    def call(self, tool: Tool, request: dict[str, Any], context: ToolContext) -> Done:
        """Run a call; whatever happens to the process is the call's result.

        The tool's own time begins once its process is ready. The turn's time goes on: when it is over before
        a process is free, or has begun, the call is not made.

        Raises `LeftBehind` at a stop, `DiskError` where the disk refuses it.
        """
        # Not to be guessed: what an earlier call left in the process could else answer in its place.
        number = secrets.token_hex(16)
        line, checks = compact({**request, "number": number}) + b"\n", request["callee"] is None
        with self._free_place(context) as is_free:
            if not is_free:
                why = f"{tool.name} was not called: the turn's time was over before a process was free"
                return Done(ToolResult(False, why, outcome="skipped"), CallEffects())
            worker = self._taken(context.agent.name, context.settings)
            try:
                done = _answer_in(worker.ask(line, context.deadline, context.stop, checks=checks), number)
            except _Ended as error:
                worker.end()
                return Done(error.result(tool, context.deadline), CallEffects())
            # Its answer may still come, and must not be read as that of the next call.
            except BaseException:
                worker.end()
                raise
            self._put_back(worker, done)
            return done

    @contextlib.contextmanager
    def _free_place(self, context: ToolContext) -> Iterator[bool]:
        """Wait until a process may run, and hold its place in the block. False: the turn's time is over.

        Raises `LeftBehind` at a stop.
        """
        turn = context.deadline.outer or NEVER
        is_free = self._room.acquire(blocking=False) or any(
            self._room.acquire(timeout=seconds) for seconds in wait_slices(turn, context.stop, grace_s=0)
        )
        if not is_free and context.stop is not None and context.stop.is_set():
            raise LeftBehind
        try:
            yield is_free
        finally:
            if is_free:
                self._room.release()

    def close(self) -> None:
        """End the processes that are idle; one that is needed again is started again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def _taken(self, agent: str, settings: Org) -> Worker:
        with self._lock:
            while own := [worker for worker in self._idle if worker.agent == agent]:
                self._idle.remove(worker := own[-1])
                if worker.is_alive and worker.fits(settings.tool_max_memory_bytes, self.sources):
                    return worker
                worker.end()
        return Worker(self._org, settings.tool_max_memory_bytes, self.sources, agent)

    def _put_back(self, worker: Worker, done: Done) -> None:
        if done.needs_end or worker.has_unread_output:
            worker.end()
            return
        with self._lock:
            self._idle.append(worker)
            oldest = self._idle.pop(0) if len(self._idle) > IDLE_AT_MOST else None
        if oldest:
            oldest.end()


def _answer_in(line: bytes, number: str) -> Done:
    """Return what a call came to; raise `_Ended` for a line that is no answer to it.

    Raises `DiskError` where the disk refused the process, which says nothing about the call.
    """
    try:
        plain = parse(line, limit_bytes=REPLY_LIMIT_BYTES)
        if plain.pop("number") != number:
            raise _Ended("its process answered another call")
        if "disk" in plain:
            message, where, hint = plain["disk"]
            raise DiskError(message, where=where, hint=hint)
        return done_in(plain)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise _Ended("what its process gave is no answer") from error


class _Ended(Exception):
    """The process gave no answer; `why` is empty when it took too long.

    `began`: the call may have begun, so that nobody knows what it did.
    """

    def __init__(self, why: str = "", *, began: bool = True) -> None:
        super().__init__(why)
        self.why, self.began = why, began

    def result(self, tool: Tool, deadline: Deadline) -> ToolResult:
        if self.why and self.began and not tool.repeatable:
            return interrupted(f"{tool.name}: {self.why}")
        if self.why:
            return ToolResult(False, f"{tool.name} failed: {self.why}")
        more = "" if tool.repeatable else "; what it had done by then is done"
        why = f"it took longer than {round(deadline.seconds, 2):g} s and was ended{more}"
        return ToolResult(False, f"{tool.name}: {why}", outcome="timed_out")


class Worker:
    """One process, with its keeper around it; `_control` and `_report` are our ends of the keeper's."""

    def __init__(self, org: Organisation, memory_bytes: int, sources: Sources, agent: str = "") -> None:
        self._memory_bytes, self._sources, self.agent = memory_bytes, sources, agent
        self._unsent, self._checks = [compact(sources_as_json(sources)) + b"\n"], False
        held, control = os.pipe(), os.pipe()
        words = [
            sys.executable,
            "-P",  # or the organisation's folder were on the path
            "-m",
            f"{__package__}.worker",
            str(memory_bytes),
        ]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__, str(control[0]), str(held[1]), *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": _path()},
                cwd=org.base,
                pass_fds=(control[0], held[1]),
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            for descriptor in (held[0], control[1]):
                os.close(descriptor)
            raise ToolError(f"the process for functions cannot be started: {error}") from error
        finally:
            for descriptor in (held[1], control[0]):
                os.close(descriptor)
        self._control, self._report, self._is_over = control[1], held[0], False
        # a process that reads nothing, or writes half a line, must not hold the engine
        for stream in (self._process.stdin, self._process.stdout):
            assert stream, "a pipe"
            os.set_blocking(stream.fileno(), False)

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return not self._is_over and self._process.poll() is None

    @property
    def has_unread_output(self) -> bool:
        """Whether it wrote more than the answer to its call, which would be read as that of the next."""
        assert self._process.stdout, "a pipe"
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        return bool(poll.poll(0))

    def fits(self, memory_bytes: int, sources: Sources) -> bool:
        """Whether it was started with this limit, and with the code of now."""
        return self._memory_bytes == memory_bytes and self._sources is sources

    def ask(
        self, request: bytes, deadline: Deadline, stop: threading.Event | None = None, *, checks: bool = False
    ) -> bytes:
        """Return the line that answers a request. Raises `_Ended`, and `LeftBehind` at a stop.

        The deadline restarts when the process is ready: how long that takes is no matter of the function's.
        The turn's deadline, which it is within, bounds that as well. `checks`: what checks arguments must be
        loaded for it.
        """
        if checks and not self._checks:
            self._unsent, self._checks = [*self._unsent, b'{"checks":true}\n'], True
        while self._unsent:
            start = (deadline.outer or NEVER).within(START_S)
            try:
                self._exchange(self._unsent.pop(0), start, stop)
            except _Ended as error:
                why = error.why or f"its process did not begin within {start.seconds:.3g} s"
                raise _Ended(why, began=False) from error
        deadline.restart()
        if deadline.has_passed:
            raise _Ended("the turn's time was over before its process was ready", began=False)
        return self._exchange(request, deadline, stop)

    def _exchange(self, request: bytes, deadline: Deadline, stop: threading.Event | None) -> bytes:
        to_write, answer = memoryview(request), bytearray()
        assert self._process.stdin, "a pipe"
        assert self._process.stdout, "a pipe"
        write_to, read_from = self._process.stdin.fileno(), self._process.stdout.fileno()
        for seconds in wait_slices(deadline, stop):
            poll = select.poll()
            poll.register(read_from, select.POLLIN)
            if to_write:
                poll.register(write_to, select.POLLOUT)
            ready = {descriptor for descriptor, _ in poll.poll(1000 * seconds)}
            if write_to in ready:
                to_write = to_write[self._wrote(write_to, to_write) :]
            if read_from in ready:
                answer += self._read(read_from)
                if len(answer) > REPLY_LIMIT_BYTES:
                    raise _Ended(f"what it gave is more than {REPLY_LIMIT_BYTES} bytes")
                if answer.endswith(b"\n"):
                    return bytes(answer)
        if stop is not None and stop.is_set():
            raise LeftBehind
        raise _Ended

    def end(self) -> None:
        """End it, with all that it started."""
        if self._is_over:
            return
        self._is_over = True
        os.close(self._control)  # upon this the keeper ends it
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                assert stream, "a pipe"
                stream.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._report)

    def _wrote(self, descriptor: int, content: memoryview) -> int:
        try:
            return os.write(descriptor, content[:_PIECE_BYTES])
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _Ended(self._how_it_ended()) from error

    def _read(self, descriptor: int) -> bytes:
        try:
            piece = os.read(descriptor, _PIECE_BYTES)
        except BlockingIOError:
            return b""
        if not piece:
            raise _Ended(self._how_it_ended())
        return piece

    def _how_it_ended(self) -> str:
        """Return how the process ended, as its keeper tells."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        os.set_blocking(self._report, False)
        try:
            status = os.read(self._report, 4096).decode("utf-8", "replace").strip()
        except BlockingIOError:
            status = ""
        if not status.lstrip("-").isdigit():
            return f"its process ended{f': {status}' if status else ''}"
        if int(status) >= 0:
            return f"its process ended with exit status {status}"
        with contextlib.suppress(ValueError):
            return f"its process was ended by {signal.Signals(-int(status)).name}"
        return f"its process was ended by signal {-int(status)}"


def _path() -> str:
    """Return where the process finds modules: where this one does."""
    return os.pathsep.join(os.path.abspath(folder) for folder in sys.path if folder is not None)
