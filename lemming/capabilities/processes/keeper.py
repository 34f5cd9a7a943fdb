"""The keeper of a program: runs it, and ends it with all that it started, daemons too.

A program of its own, started as `python -I -S keeper.py CONTROL REPORT PROGRAM ARGUMENTS...`, standard
library only. The program gets the keeper's environment, folder, input and outputs. `CONTROL` is a descriptor:
when it closes (the engine lets go, or is dead), everything is ended. `REPORT` is one too: it gets the
program's exit status as a number, negative for a signal, or why the program cannot be started.
Beyond Linux only the program's own process group is ended.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import NoReturn


def main() -> None:
    """Run the program until it ends or the engine lets go, then end everything below."""
    from lemming.capabilities.processes import children as processes

    control, report, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    for descriptor in (control, report):
        # The program must hold neither: it could pass for the engine, or for the keeper's report.
        os.set_inheritable(descriptor, False)
    processes.adopt_orphans()
    wake = processes.wake_at_each_end()
    child = os.fork()
    if child == 0:
        _become(argv, report)
    for descriptor in (0, 1, 2):  # or the engine would wait for us to close them
        os.close(descriptor)
    try:
        status = _wait(child, control, wake)
    finally:
        processes.end_all(child, wake)
    if status is not None:
        os.write(report, str(os.waitstatus_to_exitcode(status)).encode())


def _become(argv: list[str], report: int) -> NoReturn:
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these; the program must not
            signal.signal(number, signal.SIG_DFL)
        os.execvp(argv[0], argv)  # noqa: S606 - the words are the operator's own
    except (OSError, ValueError) as error:
        os.write(report, (getattr(error, "strerror", None) or str(error)).encode() + b"\n")
    os._exit(127)


def _wait(child: int, control: int, wake: int) -> int | None:
    """Return the status of the program, or None when the engine let go first."""
    from lemming.capabilities.processes import children as processes

    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        status = processes.reap(child)
        if status is not None:
            return status
        ready = [descriptor for descriptor, _ in poll.poll()]
        if control in ready:
            return None
        os.read(wake, 4096)


if __name__ == "__main__":
    # At the end, so that nothing installed beside the package can pose as the standard library.
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.append(os.path.dirname(package))
    main()
