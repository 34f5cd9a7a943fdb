"""The launcher of the shell tool: runs one command behind walls and leaves nothing of it behind.

A program of its own, started as `python -I -S confine.py` with an empty environment, standard library only.

    stdin    one line of JSON, an `Order`; it stays open, and when it closes, the command is ended
    stdout   one line of JSON, a `Verdict`
    stderr   whatever the command prints
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Literal, NamedTuple, NoReturn

Mode = Literal["bwrap", "landlock", "none"]
Ended = Literal["exit", "signal", "timeout", "processes", "memory", "disk", "cancelled", "refused"]

FILE_SIZE_LIMIT = 64 << 20
PROCESS_LIMIT = 256
DESCRIPTOR_LIMIT = 1024
TEMPORARY = ".tmp"
SECCOMP_DESCRIPTOR = 20  # where bwrap finds the filter
_LOOK_EVERY_S = 0.1
_COUNT_AT_LEAST_EVERY_S = 0.5
_LOOK_SHARE = 10  # a look that takes long is followed by a pause this many times as long


class Order(NamedTuple):
    """What to run and how. `argv` is the shell, or bubblewrap around it.

    `max_memory_bytes` is for all its processes together, `max_usage` the `quota.FolderSize` of the workspace.
    `namespaces` is false only where a test wants to see what the other walls hold by themselves.
    """

    mode: Mode
    argv: list[str]
    environment: dict[str, str]
    workspace: str | None
    timeout_s: float
    max_memory_bytes: int
    max_usage: tuple[int, ...]
    namespaces: bool = True


class Verdict(NamedTuple):
    """How it ended: by itself, at a limit, or not begun at all (`refused`); and what stood around it.

    `limit` says of a workspace that holds too much what it holds.
    """

    ended: Ended
    status: int = 0
    walls: str = ""
    limit: str = ""


class Refused(Exception):
    """The walls could not be built; nothing was run."""


def main() -> None:
    """Take the order, run it, give the verdict."""
    try:
        verdict = carry_out(Order(**json.loads(sys.stdin.buffer.readline())))
    except (OSError, Refused) as error:
        verdict = Verdict("refused", walls=str(error))
    print(json.dumps(verdict._asdict()), flush=True)


def carry_out(order: Order) -> Verdict:
    """Run the command to its end, or to a limit's, and end everything it started."""
    from lemming.capabilities.processes import children as processes
    from lemming.kernel.files import quota

    wake = processes.wake_at_each_end()
    is_read_only = _prepare(order)
    failure, report = os.pipe()
    child = os.fork()
    if child == 0:
        _become_the_command(order, is_read_only, report)
    os.close(report)
    with contextlib.suppress(OSError):  # for root, whose processes have no limit but the one kept here
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    try:
        if why := os.read(failure, 4096):
            raise Refused(why.decode())
        ended, status = _watch(child, wake, order)
    finally:
        processes.end_all(child, wake)
    walls = _describe(order, is_read_only)
    if order.workspace is not None:
        limit = quota.measure(order.workspace).beyond(quota.FolderSize(*order.max_usage))
        if limit:
            return Verdict("disk", status, walls, limit)
    return Verdict(ended, status, walls, "files without a name" if ended == "disk" else "")


# --- before the command --------------------------------------------------------------------------


def _prepare(order: Order) -> bool:
    """Do what the launcher itself must do; return whether all but the workspace is read-only now."""
    if sys.platform != "linux":
        return False
    from lemming.capabilities.processes import children as processes
    from lemming.capabilities.sandbox import walls

    processes.adopt_orphans()
    if os.geteuid() == 0 and order.workspace is not None:
        owner = os.stat(order.workspace)
        if owner.st_uid != 0:
            walls.become(owner.st_uid, owner.st_gid)
    if os.geteuid() != 0:  # root is exempt: `_watch` counts instead
        # The kernel counts all threads of the user, not this command's alone.
        _set_limit(resource.RLIMIT_NPROC, processes.threads_of_user() + PROCESS_LIMIT)
    if order.mode == "bwrap" and os.geteuid() == 0:
        try:
            walls.protect_devices(order.workspace)
        except OSError as error:
            raise Refused(f"root cannot be confined here ({error}): run as another user") from error
    if order.mode != "landlock":
        return False
    abi = walls.landlock_abi()
    if abi == 0:
        raise Refused("this kernel has no Landlock, or it is switched off")
    is_read_only = order.namespaces and walls.enter_namespaces(order.workspace)
    if not is_read_only and abi < 3:  # it would let a command truncate what it may read
        raise Refused(f"Landlock ABI {abi} needs namespaces beside it, and this system allows none")
    return is_read_only


def _become_the_command(order: Order, is_read_only: bool, report: int) -> NoReturn:
    try:
        os.setsid()
        _wire(order)
        _limit(order)
        if sys.platform == "linux":
            _build_walls(order, is_read_only)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these; a command must not
            signal.signal(number, signal.SIG_DFL)
        os.execve(order.argv[0], order.argv, order.environment)  # noqa: S606 - the shell is argv[0]
    except Exception as error:  # noqa: BLE001 - the edge of a process: its parent tells
        os.write(report, f"{type(error).__name__}: {error}".encode())
    os._exit(127)


def _wire(order: Order) -> None:
    """Give the command nothing to read, one pipe to write to, its folder, and one for temporary files."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # stdout is for the verdict
    os.chdir(order.workspace or "/")
    if order.workspace is not None:
        with contextlib.suppress(OSError):  # it is there, or a command has spoilt it and can put it right
            os.mkdir(TEMPORARY)


def _limit(order: Order) -> None:
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_CPU, int(order.timeout_s) + 1)
    _set_limit(resource.RLIMIT_FSIZE, FILE_SIZE_LIMIT)
    _set_limit(resource.RLIMIT_AS, order.max_memory_bytes)  # of each; together: `_limit_reached`
    _set_limit(resource.RLIMIT_NOFILE, DESCRIPTOR_LIMIT)


def _set_limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (wanted, wanted))


def _build_walls(order: Order, is_read_only: bool) -> None:
    from lemming.capabilities.sandbox import walls

    walls.die_with_parent()
    if order.mode == "bwrap":
        _hand_over(walls.seccomp_program(also_metadata=False))
    elif order.mode == "landlock":
        walls.drop_capabilities()
        walls.gain_nothing()
        walls.enter_landlock(order.workspace)
        also_signals = not is_read_only and walls.landlock_abi() < walls.ABI_OF_SIGNALS
        walls.enter_seccomp(walls.seccomp_program(also_metadata=not is_read_only, also_signals=also_signals))


def _hand_over(program: bytes) -> None:
    outlet, inlet = os.pipe()
    os.write(inlet, program)
    os.close(inlet)
    os.dup2(outlet, SECCOMP_DESCRIPTOR)


def _describe(order: Order, is_read_only: bool) -> str:
    if order.mode == "none":
        return "no walls"
    if order.mode == "bwrap":
        return "bubblewrap and seccomp"
    from lemming.capabilities.sandbox import walls

    abi = walls.landlock_abi()
    refused = "chmod, chown and utime" if abi >= walls.ABI_OF_SIGNALS else "chmod, chown, utime and kill"
    rest = "namespaces" if is_read_only else f"no namespaces here, so {refused} are refused"
    return f"Landlock ABI {abi}, seccomp, {rest}"


# --- while it runs -------------------------------------------------------------------------------


def _watch(child: int, wake: int, order: Order) -> tuple[Ended, int]:
    """Wait for the command's end, the deadline, a limit, or the end of whoever ordered it."""
    from lemming.capabilities.processes import children as processes

    began = time.monotonic()
    deadline, next_count, next_look = began + order.timeout_s, *(2 * [began + _LOOK_EVERY_S])
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while (now := time.monotonic()) < deadline:
        status = processes.reap(child)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            return ("exit", code) if code >= 0 else ("signal", -code)
        if now >= next_count:
            if _are_too_many():
                return "processes", 0
            next_count = _next_count_after(now)
        if now >= next_look:
            if limit := _limit_reached(order):
                return limit, 0
            next_look = _next_after(now)
        pause = min(deadline, next_count, next_look) - time.monotonic()
        ready = [file for file, _ in poll.poll(1000 * max(0.0, pause))]
        if 0 in ready:
            return "cancelled", 0
        if wake in ready:
            os.read(wake, 4096)
    return "timeout", 0


def _next_after(began: float) -> float:
    """Return when to do again what began at a time and is done now."""
    done = time.monotonic()
    return done + max(_LOOK_EVERY_S, _LOOK_SHARE * (done - began))


def _next_count_after(began: float) -> float:
    """Return when to count processes again: soon, for a count takes longest where they double."""
    return min(_next_after(began), time.monotonic() + _COUNT_AT_LEAST_EVERY_S)


def _are_too_many() -> bool:
    from lemming.capabilities.processes import children as processes

    return sum(process.threads for process in processes.descendants()) > PROCESS_LIMIT


def _limit_reached(order: Order) -> Ended | None:
    """Look at the memory and at the workspace; return the limit at which the command is ended, if any.

    To tell the memory of many takes seconds, in which they can double: they are counted meanwhile.
    """
    from lemming.capabilities.processes import children as processes
    from lemming.kernel.files import quota

    found = processes.descendants()
    if sum(process.memory_bytes for process in found) > order.max_memory_bytes:
        taken, next_count = 0, time.monotonic() + _LOOK_EVERY_S
        for process in found:
            taken += processes.memory_of(process)
            if taken > order.max_memory_bytes:
                return "memory"
            if (now := time.monotonic()) >= next_count:
                if _are_too_many():
                    return "processes"
                next_count = _next_count_after(now)
    if order.workspace is not None:
        usage = quota.measure(order.workspace)
        usage = usage._replace(size_bytes=usage.size_bytes + processes.unlinked_bytes(found))
        if usage.beyond(quota.FolderSize(*order.max_usage)):
            return "disk"
    return None


if __name__ == "__main__":
    # At the end, so that nothing installed beside the package can pose as the standard library.
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.append(os.path.dirname(package))
    main()
