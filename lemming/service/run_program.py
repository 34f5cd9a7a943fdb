"""One run of a program that a setting names, bounded in time, with facts and without the engine's keys."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from lemming.kernel.base.redaction.secrets import excerpt

_STDERR_BYTES = 4096
_PASSED_ON = (
    *("PATH", "HOME", "LANG", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ"),
    *("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS"),
)


def run_command(
    command: list[str],
    *,
    given: bytes,
    variables: dict[str, str],
    cwd: Path,
    limit_s: float,
    once_started: Callable[[], None],
) -> str:
    """Run a program to its end and return what went wrong, empty when nothing did.

    `given` is on its standard input. Of the environment it has what programs commonly need (PATH, HOME, ...,
    XDG_*), and `variables`. After `limit_s` it is killed, with all of its process group. `once_started` is
    called when it runs, or cannot be started.
    """
    try:
        running = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**_environment(), **variables},
            cwd=cwd,
            start_new_session=True,  # a group that can be killed whole
        )
    except (OSError, ValueError) as error:
        once_started()
        return f"{command[0]} cannot be started: {getattr(error, 'strerror', None) or error}"
    with running:
        timer = threading.Timer(limit_s, _kill, [running])
        timer.daemon = True
        timer.start()
        once_started()
        complaint = _converse(running, given)
        status = running.wait()
        is_late = timer.finished.is_set()
        timer.cancel()
    if is_late:
        return f"{command[0]} took longer than {limit_s:g} s and was killed"
    last = (complaint.decode("utf-8", "replace").strip().splitlines() or ["no message"])[-1]
    return f"{command[0]} ended with {status}: {excerpt(last)}" if status else ""


def _converse(running: subprocess.Popen[bytes], given: bytes) -> bytes:
    """Give the program its input and return the beginning of its complaints; whoever says more is cut off."""
    assert running.stdin
    assert running.stderr
    with contextlib.suppress(BrokenPipeError), running.stdin:
        running.stdin.write(given)
    complaint = running.stderr.read(_STDERR_BYTES)
    running.stderr.close()
    return complaint


def _kill(running: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("XDG_")
    }
