"""A mark for tests beside the kernel's that use capabilities, which may be absent (`test_taken_out.py`)."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def uses(*names: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test where the folder of one of these capabilities is absent."""
    absent = [name for name in names if find_spec(f"lemming.capabilities.{name}") is None]
    return pytest.mark.skipif(bool(absent), reason=f"uses {', '.join(absent)}")
