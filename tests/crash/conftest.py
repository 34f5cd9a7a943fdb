"""The tables of docs/durability.md, printed at the end of a run of all crash points."""

from __future__ import annotations

import pytest
from results import tables


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in tables():
        terminalreporter.write_line(line)
