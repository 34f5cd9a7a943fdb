"""Signals that ask the engine to end: the first ends it after the turns under way, the second at once.

SIGHUP never counts as the second: a terminal that is closed sends it more than once, from the kernel and from
the shell, and service managers send it along with SIGTERM. A SIGHUP that is ignored (`nohup`) stays ignored.

The kernel's signal writes a byte to a pipe, also while a model computes in native code; a thread reads it.
A signal handler must not set a `threading.Event` itself: it may interrupt the very thread that holds the
event's lock.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
_FIRST = b"stopping after the turns under way; once more ends at once, and nothing is lost\n"


@dataclass
class StopSwitch:
    """`stop` is set when the engine is to end; `signal` is the number that asked for it, 0 if none did."""

    stop: threading.Event = field(default_factory=threading.Event)
    signal: int = 0

    @property
    def exit_status(self) -> int:
        """What a process that a signal ended reports."""
        return 128 + self.signal


@contextlib.contextmanager
def stop_on_signals(*, quiet: bool = False) -> Iterator[StopSwitch]:
    """Turn `SIGNALS` into a switch for the length of the block. Main thread only."""
    switch = StopSwitch()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signals = [number for number in SIGNALS if not _is_ignored(number)]
    # First the pipe: a signal that came between the two would leave no byte, and stop nothing.
    former_pipe = signal.set_wakeup_fd(writer)
    former = {number: signal.signal(number, _leave_it_to_the_pipe) for number in signals}
    watcher = threading.Thread(
        target=_watch, args=(reader, switch, quiet), name="lemming-signals", daemon=True
    )
    watcher.start()
    try:
        yield switch
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(former_pipe)
        os.close(writer)
        watcher.join()
        os.close(reader)


def end_while_starting() -> None:
    """Have the signals that end a service end this process with status 0 before `stop_on_signals` begins.

    Nothing has been begun then. Main thread only.
    """
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if not _is_ignored(number):
            signal.signal(number, lambda *_: os._exit(0))


def _is_ignored(number: int) -> bool:
    return number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


def _leave_it_to_the_pipe(*_: object) -> None:
    """Stand in for the default action, which would end the process."""


def _watch(reader: int, switch: StopSwitch, quiet: bool) -> None:
    while received := os.read(reader, 1):
        number = received[0]
        if number not in SIGNALS:
            continue
        if switch.signal and number == signal.SIGHUP:
            continue
        if switch.signal:
            os._exit(128 + number)  # the journal holds everything that was paid for
        switch.signal = number
        switch.stop.set()
        if not quiet:
            with contextlib.suppress(OSError):
                os.write(2, b"\n" * os.isatty(2) + _FIRST)  # a terminal has just shown ^C
