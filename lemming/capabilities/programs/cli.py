"""A program as a model: the prompt goes to its standard input, its standard output is the answer."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, NamedTuple

from lemming.capabilities.processes import keeper
from lemming.kernel.base.deadlines import Deadline
from lemming.kernel.base.errors import Unavailable, Unusable
from lemming.kernel.base.redaction.secrets import excerpt
from lemming.kernel.llm import calls
from lemming.kernel.providers import Backend, Message, Reply, Request

OUTPUT_LIMIT_BYTES = 1 << 20
_STDERR_TAIL_BYTES = 4096
_CHECK_INTERVAL_S = 0.1
_GRACE_S = 10.0
_PASSED_ON = ("PATH", "HOME", "LANG", "USER", "SHELL", "TERM", "TMPDIR")


class _Kept(NamedTuple):
    """A program with its keeper around it; the descriptors are the engine's ends of the keeper's."""

    process: subprocess.Popen[bytes]
    control: int
    report: int


class CliProvider(Backend):
    """Runs `command`, a list of words in which `{model}` stands for the model's name; no shell is involved.

    The program gets PATH, HOME, LANG, USER, SHELL, TERM, TMPDIR, XDG_* and the variables named in `env`
    from the environment, and nothing else: no provider's key unless it is named. It runs in `cwd` (a
    folder in the organisation or an absolute path), by default in a folder of its own, empty and removed
    afterwards: it takes neither the organisation for its own project nor what others left somewhere for
    its own files. At its end and at the deadline
    it is killed together with every process it has started, daemons too (on Linux; elsewhere those of its
    process group), and so it is when the engine dies.
    """

    keeps_deadline = True

    def __init__(
        self,
        *,
        command: list[str],
        env: list[str] | None = None,
        cwd: str | None = None,
        base: Path | None = None,
    ) -> None:
        self._command, self._env = command, env or []
        self._cwd = (base or Path()) / cwd if cwd else None

    def complete(self, request: Request) -> Reply:
        """Return what the program printed; beyond 1 MiB it is cut, with finish "length".

        Raises `Unavailable` with the last line of its errors when it fails, `TimedOut`, and
        `Unusable` when it cannot be started.
        """
        if self._cwd is not None:
            return self._answer(request, self._cwd)
        with tempfile.TemporaryDirectory(prefix="lemming-", ignore_cleanup_errors=True) as folder:
            return self._answer(request, Path(folder))

    def _answer(self, request: Request, folder: Path) -> Reply:
        deadline = Deadline(request.deadline_s)
        kept = self._start(request.model_name, folder)
        try:
            output, complaint = _converse(kept.process, _plain(request.messages).encode(), deadline)
            if len(output) <= OUTPUT_LIMIT_BYTES:
                kept.process.wait(deadline.remaining())
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            raise calls.timed_out(request.deadline_s) from error
        finally:
            report = _end(kept)
        text = output[:OUTPUT_LIMIT_BYTES].decode("utf-8", "replace").strip()
        if len(output) > OUTPUT_LIMIT_BYTES:
            return Reply(text=text, finish="length", model=request.model_name)
        status = self._status_in(report)
        if status != 0:
            lines = complaint.decode("utf-8", "replace").strip().splitlines() or ["no message"]
            raise Unavailable(f"ended with {_status(status)}: {excerpt(lines[-1])}", where=self._name)
        return Reply(text=text, model=request.model_name)

    @property
    def _name(self) -> str:
        return f"cli {self._command[0] if self._command else ''}".strip()

    def _start(self, model_name: str, folder: Path) -> _Kept:
        if not self._command:
            raise Unusable("the command is empty", where="cli", hint='set options.command to ["program"]')
        if not folder.is_dir():
            raise Unusable(f"no folder {folder}", where=self._name, hint="check options.cwd")
        held, control = os.pipe(), os.pipe()
        words = [word.replace("{model}", model_name) for word in self._command]
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__, str(control[0]), str(held[1]), *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment(),
                cwd=folder,
                pass_fds=(control[0], held[1]),
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            for descriptor in (held[0], control[1]):
                os.close(descriptor)
            raise self._unstarted(str(getattr(error, "strerror", None) or error)) from error
        finally:
            for descriptor in (held[1], control[0]):
                os.close(descriptor)
        return _Kept(process, control=control[1], report=held[0])

    def _status_in(self, report: str) -> int:
        """Return the exit status that the keeper reports; raise when there is none."""
        why, is_unstarted, status = report.rpartition("\n")
        if is_unstarted:
            raise self._unstarted(why)
        if not status:
            raise Unavailable("ended together with its keeper", where=self._name)
        return int(status)

    def _unstarted(self, why: str) -> Unusable:
        hint = f"install {self._command[0]}, or correct options.command in config/models.json"
        return Unusable(f"cannot be started: {why}", where=self._name, hint=hint)

    def _environment(self) -> dict[str, str]:
        wanted = {*_PASSED_ON, *self._env}
        return {
            name: value for name, value in os.environ.items() if name in wanted or name.startswith("XDG_")
        }


def _plain(messages: list[Message]) -> str:
    """Return a conversation as one text, the model's own earlier answers marked as such; empty for none."""
    if not messages:
        return ""
    headings = {"assistant": "Your answer was:\n"}
    return "\n\n".join(headings.get(message["role"], "") + message["content"] for message in messages) + "\n"


def _converse(process: subprocess.Popen[bytes], prompt: bytes, deadline: Deadline) -> tuple[bytes, bytes]:
    """Feed the program and collect its output and the end of its errors until it closes both or ends.

    More than `OUTPUT_LIMIT_BYTES` of output ends the conversation. Raises `TimeoutError` at the deadline.
    """
    stdin, stdout, stderr = _pipes(process)
    output, complaint, to_write = bytearray(), bytearray(), memoryview(prompt)
    with selectors.DefaultSelector() as selector:
        selector.register(stdin, selectors.EVENT_WRITE)
        selector.register(stdout, selectors.EVENT_READ)
        selector.register(stderr, selectors.EVENT_READ)
        while {stdout, stderr} & {key.fileobj for key in selector.get_map().values()}:
            if deadline.has_passed:
                raise TimeoutError
            has_ended = process.poll() is not None
            ready = selector.select(0 if has_ended else min(deadline.remaining(), _CHECK_INTERVAL_S))
            if has_ended and not ready:
                break  # a process it left behind holds the pipes
            for key, _ in ready:
                if key.fileobj is stdin:
                    to_write = to_write[_write(stdin, to_write) :]
                    if not to_write:
                        selector.unregister(stdin)
                        stdin.close()
                elif chunk := os.read(key.fd, 1 << 16):
                    (output if key.fileobj is stdout else complaint).extend(chunk)
                    del complaint[:-_STDERR_TAIL_BYTES]
                    if len(output) > OUTPUT_LIMIT_BYTES:
                        return bytes(output), bytes(complaint)
                else:
                    selector.unregister(key.fileobj)
    return bytes(output), bytes(complaint)


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    # the others are read when something is there; a write waits for room even then
    os.set_blocking(process.stdin.fileno(), False)
    return process.stdin, process.stdout, process.stderr


def _write(stdin: IO[bytes], rest: memoryview) -> int:
    """Return how much was written; a program that does not read its input has got all it wants."""
    try:
        return os.write(stdin.fileno(), rest)
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(rest)  # it need not read all


def _end(kept: _Kept) -> str:
    """Have the keeper end what is left of the program; return its report and give everything back."""
    process = kept.process
    os.close(kept.control)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    with open(kept.report, "rb") as report:
        return report.read(1000).decode("utf-8", "replace")


def _status(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"
