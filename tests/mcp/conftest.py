"""These tests need the extra `mcp`, which takes its time to import: not before it is used."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from patience import PATIENCE_S

if find_spec("mcp") is None:
    pytest.skip("could not import 'mcp'", allow_module_level=True)


@pytest.fixture(autouse=True)
def _busy_machine() -> Iterator[None]:
    """Wait for a server as long as it needs to list its tools, unless a test says otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lemming.capabilities.mcp.server_sessions.PATIENCE_S", PATIENCE_S)
        yield
