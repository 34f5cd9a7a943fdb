"""Fixtures for the whole suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from lemming.fs import AppendFile
from lemming.readings import learn_stamps


@pytest.fixture(autouse=True)
def _no_state_of_the_users(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """An empty folder for an organisation."""
    return tmp_path / "org"


@pytest.fixture(params=["coarse stamps", "the disk's own stamps"])
def stamps(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Run a test with stamps that cannot tell changes apart, and with those that the disk here has."""
    learn_stamps(tmp_path.stat)
    if request.param == "the disk's own stamps":
        with AppendFile(tmp_path, "stamps") as file:
            learn_stamps(file.restamp)
