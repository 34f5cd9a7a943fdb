"""The reaper of a program: runs the program, then kills all processes started by the program, including
daemons.

A separate process, started as `python -I -S reaper.py CONTROL REPORT PROGRAM ARGUMENTS...`, standard library
only. The program inherits the reaper's environment, folder, input and outputs. `CONTROL` is a descriptor:
when this descriptor closes (on request, or because the engine died), the reaper kills everything. `REPORT` is
a descriptor for the program's exit status as a number (negative for a signal), or for the reason the program
could not start. Outside Linux, the reaper kills only the program's own process group.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import NoReturn


def main() -> None:
    """Run the program until the program ends or the control descriptor closes, then kill all descendants."""
    from lemming.libraries.processes import process_tree as processes

    control, report, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    for descriptor in (control, report):
        # The program must hold neither: it could pass for the engine, or for the keeper's report.
        os.set_inheritable(descriptor, False)
    processes.become_subreaper()
    wake = processes.open_exit_notifier()
    child = os.fork()
    if child == 0:
        _exec_program(argv, report)
    for descriptor in (0, 1, 2):  # or the engine would wait for us to close them
        os.close(descriptor)
    try:
        status = _wait_for_exit(child, control, wake)
    finally:
        processes.kill_descendants(child, wake)
    if status is not None:
        os.write(report, str(os.waitstatus_to_exitcode(status)).encode())


def _exec_program(argv: list[str], report: int) -> NoReturn:
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these; the program must not
            signal.signal(number, signal.SIG_DFL)
        os.execvp(argv[0], argv)  # noqa: S606 - the words are the operator's own
    except (OSError, ValueError) as error:
        os.write(report, (getattr(error, "strerror", None) or str(error)).encode() + b"\n")
    os._exit(127)


def _wait_for_exit(child: int, control: int, wake: int) -> int | None:
    """Return the exit status of the program, or None if the control descriptor closed first."""
    from lemming.libraries.processes import process_tree as processes

    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        status = processes.reap_zombies(child)
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
