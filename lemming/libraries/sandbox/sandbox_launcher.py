"""The sandbox launcher of the shell tool: runs one command in a sandbox and kills all leftover processes.

A separate process, started as `python -I -S sandbox_launcher.py` with an empty environment, standard library
only.

    stdin    one line of JSON, a `SandboxCommand`. Stays open; closing stdin ends the command.
    stdout   one line of JSON, a `LaunchResult`
    stderr   the output of the command
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
_CHECK_EVERY_S = 0.1
_MAX_COUNT_INTERVAL_S = 0.5
_PAUSE_FACTOR = 10  # a slow check is followed by a pause this many times as long


class SandboxCommand(NamedTuple):
    """The command to run, and its limits. `argv` is the shell, or bubblewrap around the shell.

    `max_memory_bytes` limits all processes together. `max_usage` is the `quota.FolderSize` of the workspace.
    `namespaces` is False only in tests of the other layers.
    """

    mode: Mode
    argv: list[str]
    environment: dict[str, str]
    workspace: str | None
    timeout_s: float
    max_memory_bytes: int
    max_usage: tuple[int, ...]
    namespaces: bool = True


class LaunchResult(NamedTuple):
    """The end of a command: normal, at a limit, or before the start (`refused`), with the sandbox in use
    (`walls`).

    `limit` describes the contents of an oversized workspace.
    """

    ended: Ended
    status: int = 0
    walls: str = ""
    limit: str = ""


class SandboxSetupFailed(Exception):
    """Raised if the sandbox cannot be set up. No command was run."""


def main() -> None:
    """Read a command, run it in the sandbox, and print the result."""
    try:
        result = run_command(SandboxCommand(**json.loads(sys.stdin.buffer.readline())))
    except (OSError, SandboxSetupFailed) as error:
        result = LaunchResult("refused", walls=str(error))
    print(json.dumps(result._asdict()), flush=True)


def run_command(command: SandboxCommand) -> LaunchResult:
    """Run the command to its end or to a limit, and kill all processes started by the command."""
    from lemming.kernel.files import quota
    from lemming.libraries.processes import process_tree as processes

    wake = processes.open_exit_notifier()
    is_read_only = _set_up_launcher(command)
    failure, report = os.pipe()
    child = os.fork()
    if child == 0:
        _exec_command(command, is_read_only, report)
    os.close(report)
    with contextlib.suppress(OSError):  # root's processes are limited by the count here alone
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    try:
        if reason := os.read(failure, 4096):
            raise SandboxSetupFailed(reason.decode())
        ended, status = _supervise(child, wake, command)
    finally:
        processes.kill_descendants(child, wake)
    sandbox = _describe_sandbox(command, is_read_only)
    if command.workspace is not None:
        limit = quota.measure(command.workspace).exceeded_limit(quota.FolderSize(*command.max_usage))
        if limit:
            return LaunchResult("disk", status, sandbox, limit)
    return LaunchResult(ended, status, sandbox, "files without a name" if ended == "disk" else "")


# --- before the command --------------------------------------------------------------------------


def _set_up_launcher(command: SandboxCommand) -> bool:
    """Set up the launcher itself. Return True if everything except the workspace is now read-only."""
    if sys.platform != "linux":
        return False
    from lemming.libraries.processes import process_tree as processes
    from lemming.libraries.sandbox import sandbox_policy

    # Daemons of the command become children of the launcher, which kills them at the end.
    processes.become_subreaper()
    if os.geteuid() == 0 and command.workspace is not None:
        # Root ignores file modes and the limit on processes: the command runs as the owner of the workspace.
        owner = os.stat(command.workspace)
        if owner.st_uid != 0:
            sandbox_policy.switch_user(owner.st_uid, owner.st_gid)
    if os.geteuid() != 0:  # root is exempt: `_supervise` counts instead
        # The kernel counts all threads of the user, not this command's alone.
        _set_limit(resource.RLIMIT_NPROC, processes.count_user_threads() + PROCESS_LIMIT)
    if command.mode == "bwrap" and os.geteuid() == 0:
        try:
            sandbox_policy.protect_devices(command.workspace)
        except OSError as error:
            raise SandboxSetupFailed(f"root cannot be confined here ({error}): run as another user") from error
    if command.mode != "landlock":
        return False
    abi = sandbox_policy.get_landlock_abi()
    if abi == 0:
        raise SandboxSetupFailed("this kernel has no Landlock, or it is switched off")
    is_read_only = command.namespaces and sandbox_policy.enter_namespaces(command.workspace)
    if not is_read_only and abi < 3:  # before ABI 3 Landlock lets a command truncate what it may read
        raise SandboxSetupFailed(f"Landlock ABI {abi} needs namespaces beside it, and this system allows none")
    return is_read_only


def _exec_command(command: SandboxCommand, is_read_only: bool, report: int) -> NoReturn:
    try:
        os.setsid()
        _redirect_streams(command)
        _apply_limits(command)
        if sys.platform == "linux":
            _enter_sandbox(command, is_read_only)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these; a command must not
            signal.signal(number, signal.SIG_DFL)
        os.execve(command.argv[0], command.argv, command.environment)  # noqa: S606 - the shell is argv[0]
    except Exception as error:  # noqa: BLE001 - reported to the parent through the pipe
        os.write(report, f"{type(error).__name__}: {error}".encode())
    os._exit(127)


def _redirect_streams(command: SandboxCommand) -> None:
    """Give the command an empty input, one output pipe, its working folder, and a temporary folder."""
    null_device = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_device, 0)
    os.dup2(2, 1)  # stdout is for the result
    os.chdir(command.workspace or "/")
    if command.workspace is not None:
        with contextlib.suppress(OSError):  # it exists, or a command broke it and can repair it
            os.mkdir(TEMPORARY)


def _apply_limits(command: SandboxCommand) -> None:
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_CPU, int(command.timeout_s) + 1)
    _set_limit(resource.RLIMIT_FSIZE, FILE_SIZE_LIMIT)
    _set_limit(resource.RLIMIT_AS, command.max_memory_bytes)  # of each; together: `_find_exceeded_limit`
    _set_limit(resource.RLIMIT_NOFILE, DESCRIPTOR_LIMIT)


def _set_limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    new_limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (new_limit, new_limit))


def _enter_sandbox(command: SandboxCommand, is_read_only: bool) -> None:
    from lemming.libraries.sandbox import sandbox_policy
    from lemming.libraries.sandbox.seccomp import build_filter

    sandbox_policy.die_with_parent()
    if command.mode == "bwrap":
        os.dup2(sandbox_policy.pipe_seccomp_program(), SECCOMP_DESCRIPTOR)
    elif command.mode == "landlock":
        sandbox_policy.drop_capabilities()
        sandbox_policy.set_no_new_privileges()
        sandbox_policy.enter_landlock(command.workspace)
        also_signals = not is_read_only and sandbox_policy.get_landlock_abi() < sandbox_policy.ABI_OF_SIGNALS
        sandbox_policy.enter_seccomp(
            build_filter(os.uname().machine, also_metadata=not is_read_only, also_signals=also_signals)
        )


def _describe_sandbox(command: SandboxCommand, is_read_only: bool) -> str:
    if command.mode == "none":
        return "no walls"
    if command.mode == "bwrap":
        return "bubblewrap and seccomp"
    from lemming.libraries.sandbox import sandbox_policy

    abi = sandbox_policy.get_landlock_abi()
    denied_calls = "chmod, chown and utime" if abi >= sandbox_policy.ABI_OF_SIGNALS else "chmod, chown, utime and kill"
    remainder = "namespaces" if is_read_only else f"no namespaces here, so {denied_calls} are refused"
    return f"Landlock ABI {abi}, seccomp, {remainder}"


# --- while it runs -------------------------------------------------------------------------------


def _supervise(child: int, wake: int, command: SandboxCommand) -> tuple[Ended, int]:
    """Wait for the command's end, the deadline, a limit, or a closed stdin."""
    from lemming.libraries.processes import process_tree as processes

    began = time.monotonic()
    deadline, next_count, next_check = began + command.timeout_s, *(2 * [began + _CHECK_EVERY_S])
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while (current_time := time.monotonic()) < deadline:
        status = processes.reap_zombies(child)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            return ("exit", code) if code >= 0 else ("signal", -code)
        if current_time >= next_count:
            if _has_too_many_processes():
                return "processes", 0
            next_count = _next_count_time(current_time)
        if current_time >= next_check:
            if limit := _find_exceeded_limit(command):
                return limit, 0
            next_check = _next_check_time(current_time)
        pause = min(deadline, next_count, next_check) - time.monotonic()
        ready = [file for file, _ in poll.poll(1000 * max(0.0, pause))]
        # The engine closed stdin, or died: the command must not outlive it.
        if 0 in ready:
            return "cancelled", 0
        if wake in ready:
            os.read(wake, 4096)
    return "timeout", 0


def _next_check_time(began: float) -> float:
    """Return the time of the next check, given the start of the check just done."""
    finished = time.monotonic()
    return finished + max(_CHECK_EVERY_S, _PAUSE_FACTOR * (finished - began))


def _next_count_time(began: float) -> float:
    """Return the time of the next process count. Counts come early, since slow counts hint at growth."""
    return min(_next_check_time(began), time.monotonic() + _MAX_COUNT_INTERVAL_S)


def _has_too_many_processes() -> bool:
    from lemming.libraries.processes import process_tree as processes

    return sum(process.threads for process in processes.list_descendants()) > PROCESS_LIMIT


def _find_exceeded_limit(command: SandboxCommand) -> Ended | None:
    """Check memory and workspace. Return the exceeded limit, or None.

    Measuring the memory of many processes takes seconds, enough time to double them. Processes are therefore
    counted in between.
    """
    from lemming.kernel.files import quota
    from lemming.libraries.processes import process_tree as processes

    descendants = processes.list_descendants()
    if sum(process.memory_bytes for process in descendants) > command.max_memory_bytes:
        used_bytes, next_count = 0, time.monotonic() + _CHECK_EVERY_S
        for process in descendants:
            used_bytes += processes.memory_bytes(process)
            if used_bytes > command.max_memory_bytes:
                return "memory"
            if (current_time := time.monotonic()) >= next_count:
                if _has_too_many_processes():
                    return "processes"
                next_count = _next_count_time(current_time)
    if command.workspace is not None:
        usage = quota.measure(command.workspace)
        usage = usage._replace(size_bytes=usage.size_bytes + processes.deleted_open_bytes(descendants))
        if usage.exceeded_limit(quota.FolderSize(*command.max_usage)):
            return "disk"
    return None


if __name__ == "__main__":
    # At the end, so that nothing installed beside the package can pose as the standard library.
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.append(os.path.dirname(package))
    main()
