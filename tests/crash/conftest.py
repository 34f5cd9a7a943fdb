"""The table of docs/durability.md, printed at the end of a run of all crash points."""

from __future__ import annotations

import pytest
from trial import EVERYTHING, TALLIES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not EVERYTHING or not TALLIES:
        return
    write = terminalreporter.write_line
    write("| the world ends | `durability` | points | other files | calls repeated | at most, by one end |")
    write("| --- | --- | ---: | ---: | ---: | ---: |")
    for label, tally in TALLIES.items():
        end, durability = label.rsplit(", ", 1)
        write(
            f"| {end} | `{durability}` | {tally.points} | {len(tally.problems)} | {tally.repeated} "
            f"| {tally.most_repeated} |"
        )
    total = sum(tally.points for tally in TALLIES.values())
    write(f"| all | | {total} | {sum(len(tally.problems) for tally in TALLIES.values())} | | |")
