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

_STDERR_BYTES, _LAST_WORDS_S = 4096, 0.5
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
    XDG_*), and `variables`. After `limit_s` it is killed, with all of its process group. What it leaves
    in the background when it ends goes on. `once_started` is called when it runs, or cannot be started.
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
    complaints: list[bytes] = []
    talk = threading.Thread(target=_converse, args=(running, given, complaints), daemon=True)
    talk.start()
    once_started()
    try:
        status = running.wait(limit_s)
    except subprocess.TimeoutExpired:
        _kill(running)
        running.wait()
        return f"{command[0]} took longer than {limit_s:g} s and was killed"
    finally:
        talk.join(_LAST_WORDS_S)  # a child of the program may hold the stream open for days
    last = (b"".join(complaints).decode("utf-8", "replace").strip().splitlines() or ["no message"])[-1]
    return f"{command[0]} ended with {status}: {excerpt(last)}" if status else ""


def _converse(running: subprocess.Popen[bytes], given: bytes, complaints: list[bytes]) -> None:
    """Give the program its input and take in the beginning of its complaints; one that says more is cut off.

    When it has ended, the rest is read and dropped: what it left in the background may write there for days.
    """
    assert running.stdin
    assert running.stderr
    with contextlib.suppress(OSError), running.stdin:
        running.stdin.write(given)
    with running.stderr:
        left = _STDERR_BYTES
        while piece := os.read(running.stderr.fileno(), _STDERR_BYTES):
            complaints += [piece[:left]] if left else []
            left = max(0, left - len(piece))
            if not left and running.poll() is None:
                return


def _kill(running: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("XDG_")
    }
