"""The screen of turns, jobs and entries that the clock starts."""

from __future__ import annotations

from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.libraries.everyday_times import format_moment, format_remaining_time
from lemming.queries.screens.screen import Column, Screen

COMING = Screen(
    "coming",
    kind="coming",
    title="Coming by the clock",
    columns=(
        Column(
            "at", "AT", "Time of the turn, job or entry.", value=lambda event: timestamp(event.at),
            text=lambda event: format_moment(event.at),
        ),
        Column("", "IN", "Time until then.", text=lambda event: format_remaining_time(event.at, SystemClock().now())),
        Column("agent", "AGENT", "Agent that it is for.", shown="agent"),
        Column("what", "WHAT", "What happens then.", value=lambda event: event.description),
    ),
)  # fmt: skip
