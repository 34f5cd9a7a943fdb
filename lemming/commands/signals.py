"""Stop signals of the engine: the first stops the engine after the running turns, the second immediately.

SIGHUP never counts as the second signal: a closed terminal causes several SIGHUPs, from the kernel and from
the shell, and service managers send SIGHUP along with SIGTERM. An ignored SIGHUP (`nohup`) stays ignored.

The kernel writes a byte to a pipe for each signal, even while a model computes in native code; a thread reads
the pipe. A signal handler must not set a `threading.Event` itself: the handler may interrupt the thread that
holds the event's lock.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
_FIRST_SIGNAL_TEXT = b"stopping after the running turns; a second signal stops immediately, and nothing is lost\n"


@dataclass
class StopSwitch:
    """State of the stop request. `stop` is set when the engine must stop; `signal` is the signal number, or 0."""

    stop: threading.Event = field(default_factory=threading.Event)
    signal: int = 0

    @property
    def exit_status(self) -> int:
        """The exit status of a process stopped by this signal."""
        return 128 + self.signal


@contextlib.contextmanager
def stop_on_signals(*, quiet: bool = False) -> Iterator[StopSwitch]:
    """Convert `SIGNALS` to a stop switch for the length of the block. Main thread only."""
    switch = StopSwitch()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signals = [number for number in SIGNALS if not _is_ignored(number)]
    # First the pipe: a signal that came between the two would leave no byte, and stop nothing.
    former_pipe = signal.set_wakeup_fd(writer)
    former = {number: signal.signal(number, _ignore_in_python) for number in signals}
    watcher = threading.Thread(target=_watch_signals, args=(reader, switch, quiet), name="lemming-signals", daemon=True)
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


def exit_on_signals_at_startup() -> None:
    """Make stop signals exit with status 0 until `stop_on_signals` takes over: no work has begun. Main thread only."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if not _is_ignored(number):
            signal.signal(number, lambda *_: os._exit(0))


def _is_ignored(number: int) -> bool:
    return number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


def _ignore_in_python(*_: object) -> None:
    """Replace the default signal action, which would terminate the process; the pipe receives the signal."""


def _watch_signals(reader: int, switch: StopSwitch, quiet: bool) -> None:
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
                os.write(2, b"\n" * os.isatty(2) + _FIRST_SIGNAL_TEXT)  # a terminal has just shown ^C
