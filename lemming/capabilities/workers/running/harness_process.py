"""A harness as a process: inside its reaper, in the sandbox or without one, with its pipes and its end.

Outermost is the reaper, which kills every process when the engine closes the control pipe or dies; then bubblewrap; then
the relay, which starts the harness, passes signals on, and reports the exit status.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from lemming.capabilities.workers.running import relay, worker_sandbox
from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.errors import Unusable
from lemming.kernel.base.integers import parse_int, to_int
from lemming.libraries.processes.supervised_process import SupervisedProcess
from lemming.libraries.sandbox.sandbox_runner import PATH as SYSTEM_PATH

_SEARCH_TIMEOUT_S = 10.0


class HarnessProcess:
    """A started harness. `stdin`, `stdout`, `stderr`: the pipes. Call `close` at the end.

    Raises `Unusable` without a sandbox that works, unless `is_confined` is False.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        clone: Path,
        home: Path,
        environment: Mapping[str, str],
        readable: Sequence[Path] = (),
        socket: Path | None = None,
        is_confined: bool = True,
    ) -> None:
        self._home, self._is_confined, self._lock = home, is_confined, threading.Lock()
        if is_confined:
            has_sandbox, detail = worker_sandbox.get_worker_sandbox()
            if not has_sandbox:
                hint = 'install bubblewrap, or set workspace.sandbox to "none" and run `lemming trust`'
                raise Unusable(f"a worker must run in a sandbox: {detail}", where=command[0], hint=hint)
        path = worker_sandbox.build_path(command) if is_confined else os.environ.get("PATH", SYSTEM_PATH)
        fixed = {"HOME": str(home), "USER": "worker", "LOGNAME": "worker", "SHELL": "/bin/sh", "LANG": "C.UTF-8"}
        fixed |= {"TERM": "dumb", "PATH": path}
        (relay_control, self._signals), (self._report, relay_report) = os.pipe(), os.pipe()
        passed = [relay_control, relay_report]
        try:
            if is_confined:
                inner, seccomp = worker_sandbox.build_sandbox(
                    command, clone=clone, home=home, readable=readable, socket=socket,
                    control=relay_control, report=relay_report,
                )  # fmt: skip
                passed.append(seccomp)
            else:
                numbers = (str(relay_control), str(relay_report), "0", "")
                inner = [sys.executable, "-I", "-S", relay.__file__, *numbers, *command]
            self._program = SupervisedProcess(
                inner, folder=clone, environment={**environment, **fixed}, descriptors=passed
            )
        except OSError as error:
            os.close(self._signals)
            os.close(self._report)
            raise Unusable(f"a harness cannot be started: {error.strerror or error}", where=command[0]) from error
        finally:
            for descriptor in passed:
                os.close(descriptor)
        self.stdin, self.stdout, self.stderr = self._program.stdin, self._program.stdout, self._program.stderr
        self.wait = self._program.wait

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the harness itself; an ended harness gets none."""
        with self._lock, contextlib.suppress(OSError):
            os.write(self._signals, bytes([number]))

    def end(self) -> None:
        """End every process of the worker, and wait until none is left. Repeatable, also from another thread."""
        self._program.end()
        if not self._is_confined:  # a daemon may have killed the reaper first
            end_processes(self._home)

    def close(self) -> int:
        """End the worker, close the pipes, and return the exit status of the harness, negative for a signal.

        Raises `Unusable` if the harness could not start.
        """
        self.end()
        reaper_report = self._program.close()
        with self._lock:
            os.close(self._signals)
            self._signals = -1
        os.set_blocking(self._report, False)
        with open(self._report, "rb") as file:
            report = (file.read(1000) or b"").decode("utf-8", "replace")
        for text in (report, reaper_report):
            reason, is_start_error, _ = text.partition("\n")
            if is_start_error:
                raise Unusable(f"a harness cannot be started: {reason}", where="worker")
        status = parse_int(report, ge=-64, le=255)  # a worker may write anything into its report
        return -signal.SIGKILL if status is None else status


def end_processes(home: Path) -> int:
    """Kill the processes whose environment has this HOME, also daemons, until none is there. Return their number.

    Repeatable. Raises `TimeoutError` if processes are still there after ten seconds. Linux only: elsewhere 0.
    """
    marker, ended, deadline = f"HOME={home}".encode(), set[int](), Deadline(_SEARCH_TIMEOUT_S)
    # A process may start another between the listing and its end: the search ends when one finds nothing.
    while processes := _find_processes(marker):
        if deadline.has_passed:
            raise TimeoutError(f"processes of {home} must end, got {sorted(processes)} still there")
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        ended |= processes
    return len(ended)


def _find_processes(marker: bytes) -> set[int]:
    processes = set()
    for entry in Path("/proc").glob("[0-9]*") if os.path.isdir("/proc/1") else ():
        with contextlib.suppress(OSError):  # it ended, or is another user's
            process = to_int(entry.name)
            if marker in (entry / "environ").read_bytes().split(b"\0") and process != os.getpid():
                processes.add(process)
    return processes
