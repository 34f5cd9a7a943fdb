"""Which sandbox a command runs in, and that none runs without one unless a person says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from sandboxed import Sandbox, org_with, processes
from tool_desk import Desk

from lemming.kernel.org.config import OrgSettings
from lemming.libraries.sandbox.sandbox_runner import get_sandbox_status
from lemming.libraries.sandbox.sandbox_settings import ShellSettings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are for Linux")


def test_none_is_only_what_it_says(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "org", org=org_with("none"))
    desk.write("config/credits.json", "readable")
    assert get_sandbox_status(desk.org) == (
        "none",
        'commands are not confined: config/org.json shell.sandbox is "none"',
    )
    assert "readable" in desk.do("shell", command="cat ../../../config/credits.json; (setsid sleep 1000.0625 &)")
    assert processes("1000.0625") == []


def test_auto_prefers_bubblewrap_and_says_what_it_uses() -> None:
    auto = get_sandbox_status(OrgSettings())
    working = [name for name in ("bwrap", "landlock") if get_sandbox_status(org_with_or_without(name))[0] == name]
    assert auto[0] == [*working, "off"][0]
    assert "seccomp" in auto[1] or auto[0] == "off"


def org_with_or_without(sandbox: str) -> OrgSettings:
    """Return settings that insist on a sandbox, whether it works or not."""
    return OrgSettings(extensions={"shell": ShellSettings(sandbox=cast(Sandbox, sandbox))})


NO_LANDLOCK = """
import ctypes, os, struct, sys
from lemming.libraries.sandbox import seccomp
from lemming.libraries.sandbox import sandbox_policy
step = lambda code, value, so=0, no=0: struct.pack("HBBI", code, so, no, value)
sandbox_policy.set_no_new_privileges()
if {without_landlock}:
    sandbox_policy.enter_seccomp(step(0x20, 0) + step(0x15, 444, 0, 1) + step(6, 0x00050026) + step(6, 0x7FFF0000))
sandbox_policy.enter_seccomp(seccomp.build_filter(os.uname().machine, also_metadata=False))
from lemming.kernel.org.config import load_config
from lemming.libraries.sandbox.sandbox_runner import get_sandbox_status
from lemming.tools import ToolRegistry
print(get_sandbox_status(load_config({base!r}).org)[0])
print(ToolRegistry.get("shell").execute("alpha", {base!r}, command="echo ran").output)
"""


def test_without_a_sandbox_no_command_runs(tmp_path: Path) -> None:
    Desk(tmp_path)
    code = NO_LANDLOCK.format(base=str(tmp_path), without_landlock=True)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(
        "off\nshell is disabled: no sandbox on this system (needs Linux >= 5.13 or bubblewrap); see `lemming doctor`"
    )
    assert "ran" not in done.stdout


def test_insisting_on_bubblewrap_does_not_fall_back_to_landlock(tmp_path: Path) -> None:
    Desk(tmp_path).write("config/org.json", '{"shell": {"sandbox": "bwrap"}}')
    code = NO_LANDLOCK.format(base=str(tmp_path), without_landlock=False)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith('off\nshell is disabled: shell.sandbox "bwrap" of config/org.json')
