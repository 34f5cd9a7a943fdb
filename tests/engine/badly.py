"""Ways to put what does not belong there into an organisation, and to run it all the same."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lemming.engine import load_tick, run_once
from lemming.testing import FrozenClock, resume

GOOD = json.dumps(resume("beta"), indent=2)
NAME_RULE = "a name has 1 to 63 characters a-z, 0-9, _ and -, and starts with a letter or digit"
Content = bytes | str | Callable[[Path], object]


def put(path: Path, content: Content) -> None:
    """Put bytes, text, or whatever the function makes at a path, in place of what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file():
        path.unlink()
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def run_with(org: Path, file: str, content: Content) -> dict[str, str]:
    """Run a tick with this content in a file; return why turns failed. Ada and zed must have had theirs."""
    put(org / file, content)
    report = run_once(org, clock=FrozenClock())
    assert {"ada", "zed"} <= {turn.agent for turn in report.by_status("done")}
    assert load_tick(org) == report.tick + 1
    return {turn.agent: turn.reason for turn in report.by_status("failed")}


def a_device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root may make a device")


def a_link_to(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


RESUME = "agents/beta/resume.json"
