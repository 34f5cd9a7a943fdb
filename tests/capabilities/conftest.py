"""Fixtures for the tests of capabilities."""

from __future__ import annotations

from pathlib import Path

import pytest
from quota_site import install


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the example is installed."""
    return install(tmp_path_factory.mktemp("installed") / "site")
