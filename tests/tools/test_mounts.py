"""No mount opens what is the engine's, whatever name it gives it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tool_desk import Desk

from lemming.kernel.access.agent_files import get_mount_id, get_mount_origin
from lemming.kernel.base.errors import DiskError

# What is mounted where (from the organisation's folder and beside it), and a path there that is closed.
OTHER_NAMES = [
    (".", "../other", "../other/agents/beta/outbox/x.json"),
    (".", "../other", "../other/agents/beta/memory/x.json"),
    (".", "../other", "../other/tick.json"),
    (".", "../other", "../other/config/new/x.json"),
    ("agents", "../other", "../other/beta/outbox/x.json"),
    ("agents/beta", "../other", "../other/outbox/x.json"),
    ("agents/beta", "../other", "../other/turns.jsonl"),
    ("agents/beta", "../other", "../other/new/x.json"),
    ("agents/beta/outbox", "../other", "../other/x.json"),
    ("agents/beta/outbox", "../other", "../other/new/x.json"),
    ("agents/beta/memory/archive", "../other", "../other/x.json"),
    ("agents/beta/logs", "../other/deep/er", "../other/deep/er/x.json"),
    ("logs/ticks", "../other", "../other/00000001.jsonl"),
    (".lemming/deep", "../other", "../other/x"),
    ("config", "shared/sub", "shared/sub/x.json"),
    ("agents/beta/outbox", "shared/sub", "shared/sub/x.json"),
    ("agents/beta/outbox", "agents/alpha/workspace/sub", "sub/x.json"),
    ("agents/alpha/memory", "agents/alpha/workspace/sub", "sub/x.json"),
]
MOUNTED = """
import subprocess, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from tool_desk import Desk
base = Path({base!r})
desk = Desk(base, allow_write=["./workspace", "./shared", str(base.parent / "other")])
for source, target, path in {names!r}:
    subprocess.run(["mount", "--bind", base / source, base / target], check=True)
    asked = str(base.parent / path[3:]) if path.startswith("../") else path
    result = desk.call("file_write", path=asked, content="forged")
    print(path, "WRITTEN" if result.success else "refused", result.output)
    subprocess.run(["umount", base / target], check=True)
for source, target, path in (
    ("shared", "../other", "../other/x"), ("agents/alpha/workspace", "../other", "../other/x"),
    ("../elsewhere", "../other", "../other/x"), ("../elsewhere", "shared/sub", "shared/sub/x"),
):
    subprocess.run(["mount", "--bind", base / source, base / target], check=True)
    asked = str(base.parent / path[3:]) if path.startswith("../") else path
    print(path, "fine" if desk.call("file_write", path=asked, content="x").success else "NOT WRITTEN")
    subprocess.run(["umount", base / target], check=True)
"""


def test_no_mount_opens_what_is_the_engines(tmp_path: Path) -> None:
    """A granted folder, or one below it, may show a closed folder of the organisation under another name."""
    private = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*private, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mount namespace can be made here")
    base = tmp_path / "org"
    for folder in {*(row[0] for row in OTHER_NAMES), *(row[1] for row in OTHER_NAMES), "../elsewhere"}:
        (base / folder).mkdir(parents=True, exist_ok=True)
    Desk(base, name="beta")
    code = MOUNTED.format(tests=str(Path(__file__).parent), base=str(base), names=OTHER_NAMES)
    done = subprocess.run([*private, sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "WRITTEN" not in done.stdout
    assert done.stdout.count("refused") >= len(OTHER_NAMES)
    assert done.stdout.count("fine") == 4


def test_a_mount_that_cannot_be_looked_up_is_not_taken_for_none(tmp_path: Path) -> None:
    folder, limits = os.open(tmp_path, os.O_RDONLY), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))  # nothing more can be opened
    try:
        for tell in (get_mount_id, get_mount_origin):
            with pytest.raises(DiskError, match="open files"):
                tell(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.close(folder)
