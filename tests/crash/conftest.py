"""The table of docs/durability.md, printed at the end of a run of all crash points."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from trial import EVERYTHING, TALLIES, Tally

SENT = "tallies"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send what this process has tried to the one that prints, where tests run in several."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[SENT] = {label: asdict(tally) for label, tally in TALLIES.items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what another process has tried."""
    for label, tally in getattr(node, "workeroutput", {}).get(SENT, {}).items():
        TALLIES[label] = TALLIES.get(label, Tally()) + Tally(**tally)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not EVERYTHING or not TALLIES:
        return
    write = terminalreporter.write_line
    write("| the world ends | `durability` | points | other files | calls repeated | at most, by one end |")
    write("| --- | --- | ---: | ---: | ---: | ---: |")
    for label, tally in sorted(TALLIES.items()):
        end, durability = label.rsplit(", ", 1)
        write(
            f"| {end} | `{durability}` | {tally.points} | {len(tally.problems)} | {tally.repeated} "
            f"| {tally.most_repeated} |"
        )
    total = sum(tally.points for tally in TALLIES.values())
    write(f"| all | | {total} | {sum(len(tally.problems) for tally in TALLIES.values())} | | |")
