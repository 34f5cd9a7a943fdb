"""`--ticks` and `--follow`: which journals a command goes through, and whether it waits for more."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from lemming.commands.options import option
from lemming.commands.stopping import stop_on_signals
from lemming.org.organisation import Organisation
from lemming.telemetry.readings import from_now_on, readings
from lemming.timeline import TickSpan, journals_of, span_of

if TYPE_CHECKING:
    from lemming.journal.file import JournalContents

Ticks = Annotated[str | None, option("--ticks TICKS", "One tick (7), or several: 3..9, 3.., ..9.")]
Follow = Annotated[
    bool, option("-f --follow", "Wait for those to come; alone, for no others. Ctrl-C ends it.")
]


@contextlib.contextmanager
def journals_meant(
    base: Organisation, ticks: str | None, *, follow: bool
) -> Iterator[tuple[Iterator[tuple[int, JournalContents]], threading.Event]]:
    """Give the journals that a person means, in their order, and what is set when they are to end.

    Without `ticks` all of them, with `follow` those from now on. Raises `UsageError` where there are none.
    """
    if not follow:
        journals_of(base, ticks)
        yield readings(base, span_of(ticks) if ticks else TickSpan(0)), threading.Event()
        return
    span = span_of(ticks) if ticks else from_now_on(base)
    with stop_on_signals(quiet=True) as switch:
        yield readings(base, span, stop=switch.stop), switch.stop
