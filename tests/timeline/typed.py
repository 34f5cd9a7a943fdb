"""Commands typed into a terminal, and tools that reach outside, for the tests of the timeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from terminal import Ran

from lemming.cli import run
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.testing import Crash


def typed(capsys: pytest.CaptureFixture[str], base: Path, *words: str) -> Ran:
    """Run one command on an organisation."""
    capsys.readouterr()
    status = run(["-C", str(base), *words])
    printed = capsys.readouterr()
    return Ran(status, printed.out, printed.err)


class Bell(Tool):
    """A tool with an effect outside the folder. `dies`: the process ends while it runs."""

    name = "bell"
    description = "Rings a bell."
    dies = False

    def execute(self, agent_name: str, base_path: Path, **kwargs: Any) -> ToolResult:
        """Ring."""
        if self.dies:
            raise Crash
        return ToolResult(True, "rung")


@contextmanager
def bell(*, dies: bool) -> Iterator[None]:
    """Register the bell for as long as the block runs."""
    ringing = Bell()
    ringing.dies = dies
    ToolRegistry.register(ringing)
    try:
        yield
    finally:
        ringing.dies = False
