"""Fixtures for the tests of views."""

from __future__ import annotations

from pathlib import Path

import pytest
from looked_at import newsdesk, ran


@pytest.fixture(scope="package")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organisation after four ticks, which no test changes."""
    return ran(newsdesk(tmp_path_factory.mktemp("desk") / "org"), 4)
