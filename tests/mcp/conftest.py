"""These tests need the extra `mcp`."""

from __future__ import annotations

import pytest

pytest.importorskip("mcp")
