"""Fixtures for the whole suite."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """An empty folder for an organisation."""
    return tmp_path / "org"
