"""Fixtures for the tests of the timeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broken import Repair
from recorded import Bell, busy_org
from terminal import Ran
from typed import typed

from lemming.kernel.tools import ToolRegistry


@pytest.fixture
def again(tmp_path: Path) -> Path:
    """A folder for an organisation that is made again."""
    return tmp_path / "again"


@pytest.fixture
def org(base: Path) -> Iterator[Path]:
    """An organisation with a past."""
    ToolRegistry.register(Bell())
    yield busy_org(base)
    ToolRegistry.unregister("bell")


@pytest.fixture
def repair(base: Path, capsys: pytest.CaptureFixture[str]) -> Repair:
    """`lemming repair` on the organisation in `base`."""

    def run_it(*words: str) -> Ran:
        return typed(capsys, base, "repair", *words)

    return run_it
