"""What the tests of `shell` share: a sandbox that works here, and what runs or stands outside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import pytest

from lemming.kernel.org.config import OrgSettings
from lemming.libraries.sandbox.sandbox_runner import get_sandbox_status
from lemming.libraries.sandbox.sandbox_settings import ShellSettings

SECRET = "sk-do-not-show"
PYTHON = "/usr/bin/python3"
needs_python = pytest.mark.skipif(not os.path.exists(PYTHON), reason=f"the commands here need {PYTHON}")
Sandbox = Literal["bwrap", "landlock", "none"]


def org_with(sandbox: Sandbox, **settings: Any) -> OrgSettings:
    """Return settings with a sandbox; skip the test where it does not work."""
    org = OrgSettings(extensions={"shell": ShellSettings(sandbox=sandbox, **settings)})
    name, detail = get_sandbox_status(org)
    if name == "off":
        pytest.skip(f"no {sandbox} here: {detail}")
    return org


def processes(marker: str) -> list[int]:
    """Return the processes that have the marker in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:1] == [b"sleep"] and marker.encode() in words:
            found.append(int(process.name))
    return found


def snapshot(base: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return mode, time and content of every file outside the workspace of alpha."""
    return {
        str(path): (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(base.rglob("*"))
        if "alpha/workspace" not in str(path)
    }
