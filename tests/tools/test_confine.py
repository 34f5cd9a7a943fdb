"""The launcher of commands, spoken to in its own words: an order in, a verdict out."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pytest
from patience import PATIENCE_MS

from lemming.kernel.org.config import OrgSettings
from lemming.libraries.sandbox import sandbox_launcher as confine
from lemming.libraries.sandbox import seccomp
from lemming.libraries.sandbox.sandbox_runner import get_sandbox_status
from lemming.libraries.sandbox.sandbox_settings import ShellSettings

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are for Linux"),
    pytest.mark.skipif(
        get_sandbox_status(OrgSettings(extensions={"shell": ShellSettings(sandbox="landlock")}))[0] == "off",
        reason="no Landlock here",
    ),
]


@contextmanager
def launched(workspace: Path, command: str, **changes: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a launcher and give it an order; its input stays open."""
    order = {
        "mode": "landlock",
        "argv": ["/bin/sh", "-c", command],
        "environment": {"PATH": "/usr/bin:/bin"},
        "workspace": str(workspace),
        "timeout_s": 10,
        "max_memory_bytes": 2 << 30,
        "max_usage": [1 << 30, 1000, 64, 0],
        **changes,
    }
    argv = [sys.executable, "-I", "-S", confine.__file__]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env={}) as launcher:
        assert launcher.stdin is not None
        launcher.stdin.write(json.dumps(order).encode() + b"\n")
        launcher.stdin.flush()
        yield launcher


def carry_out(workspace: Path, command: str, **changes: Any) -> tuple[dict[str, Any], str]:
    """Let the launcher run a command; return its verdict and what the command printed."""
    with launched(workspace, command, **changes) as launcher:
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        printed = launcher.stderr.read().decode()
        return json.loads(launcher.stdout.read()), printed


def is_released(pipe: IO[bytes]) -> bool:
    """Wait until nobody holds the other end of a named pipe."""
    poll = select.poll()
    poll.register(pipe, select.POLLHUP)
    return bool(poll.poll(PATIENCE_MS))


@pytest.fixture
def nobodys(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that belongs to another user, as seen by root."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        workspace = Path(folder, "workspace")
        workspace.mkdir()
        Path(folder, "secret.txt").write_text("sk-do-not-show")
        os.chown(workspace, 65534, 65534)
        yield workspace


def test_without_namespaces_no_files_mode_owner_or_time_can_be_changed(tmp_path: Path) -> None:
    """Landlock does not rule on these, so they would reach every file of the user."""
    (tmp_path / "workspace").mkdir()
    outside = tmp_path / "outside"
    outside.write_text("x")
    before = outside.stat()
    command = f"chmod 777 {outside}; chown 1:1 {outside}; touch -d 2020-01-01 {outside}; echo x > {outside}"
    verdict, printed = carry_out(tmp_path / "workspace", command, namespaces=False)
    assert outside.stat() == before
    assert printed.count("denied") == 4
    assert verdict["walls"].endswith("no namespaces here, so chmod, chown and utime are refused")


def test_without_namespaces_files_can_still_be_made_and_touched(tmp_path: Path) -> None:
    verdict, printed = carry_out(tmp_path, "touch a; touch a; echo b > b; mv b c; cat c", namespaces=False)
    assert (verdict["ended"], verdict["status"], printed) == ("exit", 0, "b\n")


def test_without_namespaces_daemons_are_found_and_ended(tmp_path: Path) -> None:
    """The sweep has no process tree of its own to cut off: it follows the orphans."""
    command = "exec 3> held; (setsid sh -c 'sleep 1000.3 & sleep 1000.3' &) ; sleep 1000.3 & echo begun"
    os.mkfifo(tmp_path / "held")
    with (
        launched(tmp_path, command, namespaces=False) as launcher,
        open(tmp_path / "held", "rb") as held,
        cast(IO[bytes], launcher.stderr) as printed,
    ):
        assert printed.read() == b"begun\n"
        assert is_released(held)


def test_without_namespaces_a_command_can_die_of_a_signal(tmp_path: Path) -> None:
    verdict, _ = carry_out(tmp_path, "kill -9 $$", namespaces=False)
    assert (verdict["ended"], verdict["status"]) == ("signal", 9)


def test_root_becomes_the_owner_of_the_workspace(nobodys: Path) -> None:
    verdict, printed = carry_out(nobodys, "id -u; id -g; id -G; echo own > .tmp/file; cat ../secret.txt")
    assert verdict["walls"].startswith("Landlock")
    assert printed.splitlines()[:3] == ["65534", "65534", "65534"]
    assert (nobodys / ".tmp/file").stat().st_uid == 65534
    assert "sk-do-not-show" not in printed


def test_an_ordinary_user_has_a_limit_on_processes(nobodys: Path) -> None:
    command = "i=0; while [ $i -lt 400 ]; do sleep 1000.7 & i=$((i+1)); done; wait"
    verdict, printed = carry_out(nobodys, command)
    assert "fork" in printed.lower()
    assert verdict["status"] != 0


def test_a_launcher_that_is_told_to_stop_ends_the_command(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")
    with launched(tmp_path, "sleep 1000.9 > held") as launcher, open(tmp_path / "held", "rb") as held:
        output, _ = launcher.communicate()  # closes its input
        assert json.loads(output)["ended"] == "cancelled"
        assert is_released(held)


def test_a_command_dies_with_its_launcher(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")
    with launched(tmp_path, "exec sleep 1000.9 > held") as launcher, open(tmp_path / "held", "rb") as held:
        launcher.kill()
        assert is_released(held)


def test_what_cannot_be_started_is_a_refusal_and_not_a_result(tmp_path: Path) -> None:
    verdict, _ = carry_out(tmp_path / "missing", "echo ran")
    assert verdict["ended"] == "refused"
    assert "missing" in verdict["walls"]
    verdict, printed = carry_out(tmp_path, "", argv=["/bin/no-such-shell"])
    assert (verdict["ended"], printed) == ("refused", "")


def test_the_filter_is_known_for_two_machines_only() -> None:
    for machine in ("x86_64", "aarch64"):
        assert len(seccomp.build_filter(machine, also_metadata=True)) % 8 == 0
    with pytest.raises(OSError, match="no seccomp filter is known for riscv64"):
        seccomp.build_filter("riscv64", also_metadata=False)


def test_where_nothing_else_keeps_signals_in_the_filter_does() -> None:
    """Before ABI 6 Landlock lets them through, and without namespaces every process is in sight."""
    code = f"""
import os, signal
from lemming.libraries.sandbox import sandbox_policy, seccomp
sandbox_policy.set_no_new_privileges()
sandbox_policy.enter_seccomp(seccomp.build_filter(os.uname().machine, also_metadata=True, also_signals=True))
os.kill(0, 0)
for pid in ({os.getpid()}, -1, os.getppid()):
    for send in (lambda: os.kill(pid, 0), lambda: signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 0)):
        try: send(); print("REACHED")
        except PermissionError: print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n" * 6


@pytest.mark.parametrize("call", ["prlimit64", "sched_setaffinity"])
def test_without_namespaces_no_other_process_can_be_limited(tmp_path: Path, call: str) -> None:
    """The engine and every other process of the user are in sight."""
    if not os.path.exists("/usr/bin/python3"):
        pytest.skip("needs a system Python")
    module, change = {
        "prlimit64": ("resource", "resource.prlimit({pid}, resource.RLIMIT_NOFILE, (9, 9))"),
        "sched_setaffinity": ("os", "os.sched_setaffinity({pid}, {{0}})"),
    }[call]
    with subprocess.Popen(["sleep", "1000.11"]) as bystander:
        before = Path(f"/proc/{bystander.pid}/limits").read_text(), os.sched_getaffinity(bystander.pid)
        attack = f"import {module}; {change.format(pid=bystander.pid)}"
        _, printed = carry_out(tmp_path, f"/usr/bin/python3 -c '{attack}'", namespaces=False)
        after = Path(f"/proc/{bystander.pid}/limits").read_text(), os.sched_getaffinity(bystander.pid)
        bystander.kill()
    assert "PermissionError" in printed
    assert after == before


def test_programs_of_another_architecture_are_out(tmp_path: Path) -> None:
    """The x32 calls of x86_64 have other numbers; the filter ends whoever makes one."""
    if os.uname().machine != "x86_64" or not os.path.exists("/usr/bin/python3"):
        pytest.skip("needs x86_64 and a system Python")
    call = "import ctypes; ctypes.CDLL(None).syscall(0x40000000 + 39); print('REACHED')"
    _, printed = carry_out(tmp_path, f'/usr/bin/python3 -c "{call}"; echo $?')
    assert "REACHED" not in printed
