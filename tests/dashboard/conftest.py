"""Fixtures for the tests of the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from terminal import Lemming, typed_at


@pytest.fixture
def lemming(base: Path, capsys: pytest.CaptureFixture[str]) -> Lemming:
    """A `lemming` that works on the organisation in `base`."""
    return typed_at(base, capsys)
