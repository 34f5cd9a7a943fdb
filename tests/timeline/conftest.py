"""Fixtures for the tests of the timeline."""

from __future__ import annotations

import shutil
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


@pytest.fixture(scope="session")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organisation with a past, made once: tests have copies."""
    ToolRegistry.register(Bell())
    base = busy_org(tmp_path_factory.mktemp("past") / "org")
    ToolRegistry.unregister("bell")
    return base


@pytest.fixture
def org(past: Path, base: Path) -> Iterator[Path]:
    """An organisation with a past."""
    ToolRegistry.register(Bell())
    yield Path(shutil.copytree(past, base, symlinks=True))
    ToolRegistry.unregister("bell")


@pytest.fixture
def repair(base: Path, capsys: pytest.CaptureFixture[str]) -> Repair:
    """`lemming repair` on the organisation in `base`."""

    def run_it(*words: str) -> Ran:
        return typed(capsys, base, "repair", *words)

    return run_it
