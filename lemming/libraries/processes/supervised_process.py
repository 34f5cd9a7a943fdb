"""A program inside a reaper, which ends the program with all its processes on request or with the engine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from lemming.libraries.processes import reaper

_GRACE_S = 10.0
_REPORT_BYTES = 1000


class SupervisedProcess:
    """A started program. `stdin`, `stdout`, `stderr`: the pipes; without `has_errors` errors are dropped.

    `descriptors`: further ones to inherit. Call `close` at the end. Raises `OSError` or `ValueError` if the
    reaper cannot be started; a program that cannot be started is told by its report.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        descriptors: Sequence[int] = (),
        has_errors: bool = True,
    ) -> None:
        (control, self._control), (self._report, report) = os.pipe(), os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", reaper.__file__, str(control), str(report), *command],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if has_errors else subprocess.DEVNULL,
                cwd=folder, env=dict(environment), pass_fds=(control, report, *descriptors),
                start_new_session=True, bufsize=0,
            )  # fmt: skip
        except (OSError, ValueError):
            os.close(self._control)
            os.close(self._report)
            raise
        finally:
            os.close(control)
            os.close(report)
        os.set_blocking(self._report, False)
        self._lock, self._report_text = threading.Lock(), b""
        self.stdin: IO[bytes] = cast(Any, self._process.stdin)
        self.stdout: IO[bytes] = cast(Any, self._process.stdout)
        self.stderr: IO[bytes] = cast(Any, self._process.stderr)

    @property
    def has_ended(self) -> bool:
        """True if no process of the program is left."""
        return self._process.poll() is not None

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of every process of the program. Return False if some are still there."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> None:
        """End every process of the program, and wait until none is left. Repeatable, also from another thread."""
        with self._lock:
            if self._control >= 0:
                os.close(self._control)
                self._control = -1
        if not self.wait(_GRACE_S):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def read_report(self) -> str:
        """Return the exit status as a number, or the reason that the program could not start and a line end."""
        self.wait(_GRACE_S)
        with self._lock, contextlib.suppress(BlockingIOError):
            self._report_text += os.read(self._report, _REPORT_BYTES) if self._report >= 0 else b""
        return self._report_text.decode("utf-8", "replace")

    def close(self) -> str:
        """End the program, close the pipes, and return the report. Repeatable."""
        self.end()
        for pipe in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):  # bytes that the program did not take
                if pipe is not None:
                    pipe.close()
        report = self.read_report()
        with self._lock:
            if self._report >= 0:
                os.close(self._report)
                self._report = -1
        return report
