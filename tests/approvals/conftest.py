"""Fixtures for the tests of approvals."""

from __future__ import annotations

import pytest
from approvals_org import Ring

from lemming.kernel.tools import ToolRegistry


@pytest.fixture(autouse=True)
def _bell() -> None:
    Ring.rung.clear()
    ToolRegistry.register(Ring())
