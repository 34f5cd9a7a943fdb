"""Fixtures for the tests of `shell`; other modules have desks of their own."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from sandboxed import SECRET, Sandbox, org_with
from tool_desk import Desk

from lemming.capabilities.toolbox.functions.worker_pool import FunctionWorkers


@pytest.fixture(params=["bwrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Return the name of each sandbox that works here."""
    org_with(request.param)
    return cast(Sandbox, request.param)


@pytest.fixture
def desk(tmp_path: Path, sandbox: Sandbox) -> Desk:
    """Return a desk in an organisation that has something to hide."""
    desk = Desk(tmp_path / "org", org=org_with(sandbox, timeout_s=20))
    desk.write("config/credits.json", SECRET)
    desk.write("shared/common.txt", SECRET)
    desk.write("agents/beta/workspace/private.txt", SECRET)
    desk.write("../outside/secret.txt", SECRET)
    return desk


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load files of tools without a process that tries them first, which takes as long as one for calls.

    What that is for: test_tool_files.
    """
    monkeypatch.setattr(FunctionWorkers, "load_in_worker", lambda *_: ())
