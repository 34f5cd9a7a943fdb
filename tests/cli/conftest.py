"""Fixtures for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal import Lemming, Ran, typed_at

from lemming.cli import run


@pytest.fixture(autouse=True)
def _plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEMMING_ROOT", "LEMMING_DEBUG", "FORCE_COLOR", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def lemming(base: Path, capsys: pytest.CaptureFixture[str]) -> Lemming:
    """A `lemming` that works on the organisation in `base`."""
    return typed_at(base, capsys)


@pytest.fixture
def bare(capsys: pytest.CaptureFixture[str]) -> Lemming:
    """A `lemming` that is not told where the organisation is."""

    def run_it(*words: str) -> Ran:
        status = run(list(words))
        printed = capsys.readouterr()
        return Ran(status, printed.out, printed.err)

    return run_it
