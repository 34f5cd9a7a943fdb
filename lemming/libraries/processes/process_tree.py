"""Find, count and kill the descendants of this process, including processes that try to escape.

For the sandbox launcher and the reaper. Both adopt orphans: a process without its parent becomes their child.
Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import sys
import time
from typing import NamedTuple

_KILL_TIMEOUT_S = 5.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessStat(NamedTuple):
    """A line of `/proc/<id>/stat`. `memory_bytes` counts shared memory in full."""

    id: int
    parent: int
    threads: int
    memory_bytes: int


def become_subreaper() -> None:
    """Become the parent of every descendant after its own parent ends (`PR_SET_CHILD_SUBREAPER`), on Linux."""
    if sys.platform != "linux":
        return
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(36, *map(ctypes.c_ulong, (1, 0, 0, 0))) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl PR_SET_CHILD_SUBREAPER: {os.strerror(number)}")


def open_exit_notifier() -> int:
    """Return a descriptor that becomes readable when a child ends."""
    wake, alarm = os.pipe()
    os.set_blocking(alarm, False)  # a full pipe must not hold up the signal's handler
    signal.set_wakeup_fd(alarm)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wake


def reap_zombies(child: int) -> int | None:
    """Collect all ended children. Return the status of `child` if the child is among them, else None."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                status = ended[1]
    return status


def kill_descendants(child: int, wake: int) -> None:
    """Kill all descendants of this process, including orphans and daemons.

    Return after the last one has ended.

    Outside Linux, descendants cannot be followed: only the child's process group is killed.
    """
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    with contextlib.suppress(ChildProcessError, PermissionError):
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # not another's by now
        os.kill(child, signal.SIGKILL)  # first of a process namespace, it takes all others with it, at once
    while time.monotonic() < deadline:
        for process in list_descendants():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.id, signal.SIGKILL)
        if sys.platform != "linux":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        if poll.poll(10):
            os.read(wake, 4096)


def list_descendants() -> list[ProcessStat]:
    """Return all descendants of this process, parents first, to ensure no process sees its children die."""
    children: dict[int, list[ProcessStat]] = {}
    for name in _list_pids():
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the name before it may hold anything
            process = ProcessStat(int(name), int(fields[1]), int(fields[17]), int(fields[21]) * _PAGE_BYTES)
            children.setdefault(process.parent, []).append(process)
    processes = children.get(os.getpid(), [])
    for process in processes:  # which grows as it goes
        processes.extend(children.get(process.id, []))
    return processes


def memory_bytes(process: ProcessStat) -> int:
    """Return the memory of a process in bytes, with its share of shared memory, on Linux. An ended one has none."""
    try:
        with open(f"/proc/{process.id}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) << 10
    except ProcessLookupError:
        return 0
    except OSError:
        if not os.path.exists(f"/proc/{process.id}"):
            return 0
    return process.memory_bytes


def deleted_open_bytes(processes: list[ProcessStat]) -> int:
    """Return the total size of open files without a name, which no folder scan can find."""
    sizes = {}
    for process in processes:
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"/proc/{process.id}/fd"):
                with contextlib.suppress(OSError):
                    status = os.stat(f"/proc/{process.id}/fd/{descriptor}")
                    if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                        sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def count_user_threads() -> int:
    """Return the number of this user's threads, the unit of the process limit."""
    count = 0
    for name in _list_pids():
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == os.geteuid():
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _list_pids() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()] if os.path.isdir("/proc") else []
