"""The processes below this one: found, counted and ended, whatever they did to get away.

For the launchers `confine` and `keeper`, which adopt orphans: whoever leaves its parent comes to them.
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

_SWEEP_S = 5.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Process(NamedTuple):
    """A line of `/proc/<id>/stat`; `memory_bytes` counts what it shares with others in full."""

    id: int
    parent: int
    threads: int
    memory_bytes: int


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends (`PR_SET_CHILD_SUBREAPER`), on Linux."""
    if sys.platform != "linux":
        return
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(36, *map(ctypes.c_ulong, (1, 0, 0, 0))) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl PR_SET_CHILD_SUBREAPER: {os.strerror(number)}")


def wake_at_each_end() -> int:
    """Return a descriptor that becomes readable when a child ends."""
    wake, alarm = os.pipe()
    os.set_blocking(alarm, False)  # a full pipe must not hold up the signal's handler
    signal.set_wakeup_fd(alarm)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wake


def reap(child: int) -> int | None:
    """Bury all who have ended; return the status of `child` if it is among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                found = ended[1]
    return found


def end_all(child: int, wake: int) -> None:
    """End everything below this process, orphans and daemons too. Returns when nobody is left.

    Beyond Linux nobody can be followed: there it is the child's own group.
    """
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    give_up = time.monotonic() + _SWEEP_S
    with contextlib.suppress(ChildProcessError, PermissionError):
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # not another's by now
        os.kill(child, signal.SIGKILL)  # first of a process namespace, it takes all others with it, at once
    while time.monotonic() < give_up:
        for process in descendants():
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


def descendants() -> list[Process]:
    """Return all processes below this one, parents first, so that none sees its children die."""
    children: dict[int, list[Process]] = {}
    for name in _names():
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the name before it may hold anything
            process = Process(int(name), int(fields[1]), int(fields[17]), int(fields[21]) * _PAGE_BYTES)
            children.setdefault(process.parent, []).append(process)
    found = children.get(os.getpid(), [])
    for process in found:  # which grows as it goes
        found.extend(children.get(process.id, []))
    return found


def memory_of(process: Process) -> int:
    """Return the memory of a process, its part only of what it shares with others, where Linux tells.

    One that has ended since it was found takes none.
    """
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


def unlinked_bytes(processes: list[Process]) -> int:
    """Return the size of open files that have no name any more, which no look into folders finds."""
    found = {}
    for process in processes:
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"/proc/{process.id}/fd"):
                with contextlib.suppress(OSError):
                    status = os.stat(f"/proc/{process.id}/fd/{descriptor}")
                    if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                        found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def threads_of_user() -> int:
    """Return how many threads this user has, which is what the limit on processes counts."""
    count = 0
    for name in _names():
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == os.geteuid():
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _names() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()] if os.path.isdir("/proc") else []
