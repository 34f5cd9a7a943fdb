"""The launcher of an MCP server's program: passes its words on, bounds them, and ends it with the engine.

A program of its own, started as `python -I -S launcher.py ENGINE LIMIT PROGRAM ARGUMENTS...`, standard
library only. The program reads what the launcher was given as standard input. A line of its output longer
than `LIMIT` bytes ends it: a message is one line, and the engine keeps it in memory. The end of its errors is
printed once it has ended. It is ended with all that it started when the process `ENGINE` is gone, and at
SIGTERM. Beyond Linux only the program's own process group is ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from typing import NoReturn

_TAIL_BYTES = 2048
_LOOK_MS = 2000  # so late the engine's end is noticed where no pidfd tells


def main() -> None:
    """Run the program until it ends, says too much, or nobody listens any more."""
    from lemming.capabilities.processes import children as processes

    engine, limit, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    processes.adopt_orphans()
    wake = processes.wake_at_each_end()
    over = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(over[1], b"."))
    output, errors = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        _become(argv, output[1], errors[1])
    for descriptor in (0, output[1], errors[1]):
        os.close(descriptor)
    tail = b""
    try:
        tail = _pass_on(output[0], errors[0], over[0], engine, limit)
    finally:
        processes.end_all(child, wake)
        with contextlib.suppress(OSError):  # whoever listened may be gone
            os.write(2, tail[-_TAIL_BYTES:])


def _become(argv: list[str], output: int, errors: int) -> NoReturn:
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


def _pass_on(output: int, errors: int, over: int, engine: int, limit: int) -> bytes:
    """Pass output on until it ends; return the end of the errors, and why it was ended if it was."""
    poll = select.poll()
    for descriptor in (output, errors, over):
        poll.register(descriptor, select.POLLIN)
    gone = _watch(engine)
    if gone is not None:
        poll.register(gone, select.POLLIN)
    tail, line = b"", 0
    while os.getppid() == engine:
        ready = [descriptor for descriptor, _ in poll.poll(_LOOK_MS)]
        if over in ready or gone in ready:
            return tail
        if errors in ready:
            chunk = os.read(errors, 1 << 16)
            tail = (tail + chunk)[-_TAIL_BYTES:]
            if not chunk:
                poll.unregister(errors)
        if output in ready:
            chunk = os.read(output, 1 << 16)
            if not chunk:
                return tail + _rest(errors)
            before, end, after = chunk.rpartition(b"\n")
            # The lines between are shorter than a chunk, which no limit is.
            longest = max(line + len(before.partition(b"\n")[0]), len(after)) if end else line + len(chunk)
            line = len(after) if end else line + len(chunk)
            if longest > limit:
                return tail + f"\na message longer than {limit} bytes: ended\n".encode()
            _write_all(chunk)
    return tail


def _rest(errors: int) -> bytes:
    """Return what was said last, by a program that has closed its output."""
    os.set_blocking(errors, False)
    with contextlib.suppress(OSError):
        return os.read(errors, 1 << 16)
    return b""


def _watch(process: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends; None where there are none."""
    with contextlib.suppress(AttributeError, OSError):
        return os.pidfd_open(process)
    return None


def _write_all(chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    # At the end, so that nothing installed beside the package can pose as the standard library.
    above = os.path.abspath(__file__)
    for _ in range(4):
        above = os.path.dirname(above)
    sys.path.append(above)
    main()
