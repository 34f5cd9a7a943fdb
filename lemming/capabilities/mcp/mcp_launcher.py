"""Launcher of an MCP server's program: forwards and limits its output, and ends the program with the engine.

A separate program, started as `python -I -S mcp_launcher.py ENGINE LIMIT PROGRAM ARGUMENTS...`, standard library
only. The program inherits the launcher's standard input. An output line longer than `LIMIT` bytes ends the
program: a message is a line, and the engine keeps each line in memory. The end of the error output is printed
after the program has ended. The program and all its children are ended when the process `ENGINE` is gone, and
at SIGTERM. Outside Linux only the program's own process group is ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from typing import NoReturn

_TAIL_BYTES = 2048
_POLL_MS = 2000  # so late the engine's end is noticed where no pidfd tells


def main() -> None:
    """Run the program until the program ends, exceeds the limit, or loses its reader."""
    from lemming.libraries.processes import process_tree as processes

    engine, limit, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    processes.become_subreaper()
    wake = processes.open_exit_notifier()
    over = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(over[1], b"."))
    output, errors = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        _exec_program(argv, output[1], errors[1])
    for descriptor in (0, output[1], errors[1]):
        os.close(descriptor)
    tail = b""
    try:
        tail = _forward_output(output[0], errors[0], over[0], engine, limit)
    finally:
        processes.kill_descendants(child, wake)
        with contextlib.suppress(OSError):  # the reader may have ended
            os.write(2, tail[-_TAIL_BYTES:])


def _exec_program(argv: list[str], output: int, errors: int) -> NoReturn:
    try:
        os.dup2(output, 1)
        os.dup2(errors, 2)
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these; the program must not
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.execvp(argv[0], argv)  # noqa: S606 - the words are the operator's own
    except (OSError, ValueError) as error:
        os.write(2, f"cannot start {argv[0]}: {getattr(error, 'strerror', None) or error}\n".encode())
    os._exit(127)


def _forward_output(output: int, errors: int, over: int, engine: int, limit: int) -> bytes:
    """Forward output to its end. Return the end of the errors, with the reason if the launcher ended the program."""
    poll = select.poll()
    for descriptor in (output, errors, over):
        poll.register(descriptor, select.POLLIN)
    engine_fd = _open_pidfd(engine)
    if engine_fd is not None:
        poll.register(engine_fd, select.POLLIN)
    tail, line = b"", 0
    while os.getppid() == engine:
        ready_fds = [descriptor for descriptor, _ in poll.poll(_POLL_MS)]
        if over in ready_fds or engine_fd in ready_fds:
            return tail
        if errors in ready_fds:
            chunk = os.read(errors, 1 << 16)
            tail = (tail + chunk)[-_TAIL_BYTES:]
            if not chunk:
                poll.unregister(errors)
        if output in ready_fds:
            chunk = os.read(output, 1 << 16)
            if not chunk:
                return tail + _drain_errors(errors)
            line_end, end, line_start = chunk.rpartition(b"\n")
            # The lines between are shorter than a chunk, which no limit is.
            longest = max(line + len(line_end.partition(b"\n")[0]), len(line_start)) if end else line + len(chunk)
            line = len(line_start) if end else line + len(chunk)
            if longest > limit:
                return tail + f"\na message longer than {limit} bytes: ended\n".encode()
            _write_all(chunk)
    return tail


def _drain_errors(errors: int) -> bytes:
    """Return the remaining error output of a program with closed output."""
    os.set_blocking(errors, False)
    with contextlib.suppress(OSError):
        return os.read(errors, 1 << 16)
    return b""


def _open_pidfd(process: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends, or None if unsupported."""
    with contextlib.suppress(AttributeError, OSError):
        return os.pidfd_open(process)
    return None


def _write_all(chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    # At the end, so that nothing installed beside the package can pose as the standard library.
    package_root = os.path.abspath(__file__)
    for _ in range(4):
        package_root = os.path.dirname(package_root)
    sys.path.append(package_root)
    main()
