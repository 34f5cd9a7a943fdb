"""How long tests wait for what has to happen: longer than any machine takes."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 300.0
PATIENCE_MS = 300_000


def until(has_happened: Callable[[], object]) -> None:
    """Wait for what another program does, and tells nobody of."""
    ends = time.monotonic() + PATIENCE_S
    while not has_happened():
        assert time.monotonic() < ends, "it never happened"
        time.sleep(0.01)
