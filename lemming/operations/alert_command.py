"""Run a program named in a setting, with a time limit, facts as input, and without the engine's keys."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from lemming.kernel.base.redaction.secrets import redacted_excerpt

_STDERR_BYTES, _STDERR_WAIT_S = 4096, 0.5
_INHERITED_VARIABLES = (
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

    `stdin` is written to the program's standard input. The environment holds common variables (PATH, HOME,
    ..., XDG_*) and `variables`. After `limit_s` seconds
    the program and its process group are killed. Background processes left by the program continue.
    `on_start` is called once the program runs, or
    cannot be started.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**_build_environment(), **variables},
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
        _kill(process)
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


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _build_environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if name in _INHERITED_VARIABLES or name.startswith("XDG_")
    }
