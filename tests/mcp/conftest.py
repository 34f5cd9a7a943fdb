"""These tests need the extra `mcp`, which takes its time to import: not before it is used."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("mcp") is None:
    pytest.skip("could not import 'mcp'", allow_module_level=True)
