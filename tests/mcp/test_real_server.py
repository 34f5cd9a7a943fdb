"""A server of somebody else's, from its package, in a network that holds nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from connected import call, known, org_with
from patience import PATIENCE_S

from lemming.testing import journal_lines

ALONE = ["unshare", "--map-root-user", "--net"]


def can_be_alone() -> bool:
    try:
        return subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.long  # what it answers is what the servers of the other tests answer
@pytest.mark.skipif(find_spec("mcp_server_time") is None, reason="mcp-server-time is not installed")
def test_the_time_server_answers_in_an_empty_network(tmp_path: Path) -> None:
    if not can_be_alone():
        pytest.skip("this system makes no empty network for its users")
    command = [sys.executable, "-m", "mcp_server_time", "--local-timezone", "Europe/Berlin"]
    asked = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "UTC"}
    base = org_with(tmp_path, {"time": {"command": command}}, call("mcp.time.convert_time", **asked))
    run_once = [sys.executable, "-m", "lemming", "-C", str(base), "run-once", "--trust", "-q"]
    subprocess.run([*ALONE, *run_once], check=True, timeout=PATIENCE_S)
    assert list(known(base)["time"]) == ["convert_time", "get_current_time"]
    finished = next(it for it in journal_lines(base, 1) if it["type"] == "tool_finished")
    assert finished["outcome"] == "ok"
    assert '"timezone": "UTC"' in finished["output"]
