"""`shell`: the time, the output, the memory, the processes and the room that a command may take."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from patience import PATIENCE_MS, PATIENCE_S
from sandboxed import PYTHON, Sandbox, needs_python, org_with, processes
from tool_desk import Desk

from lemming.kernel.org.settings_blocks import Quota
from lemming.libraries.processes.process_tree import ProcessStat, memory_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are for Linux")


def test_a_command_is_killed_at_its_time_with_all_that_it_started(tmp_path: Path, sandbox: Sandbox) -> None:
    command = (
        "sleep 1000.25 & setsid sleep 1000.25 & (setsid sh -c 'sleep 1000.25 & sleep 1000.25' &);"
        " echo begun; trap '' TERM INT HUP; sleep 1000.25"
    )
    for limit_s in (0.5, 5, 50):  # on a busy machine the first may be over before anything runs
        desk = Desk(tmp_path / f"{limit_s}", org=org_with(sandbox, timeout_s=limit_s))
        result = desk.call("shell", command=command)
        assert not result.success
        assert processes("1000.25") == []
        if "begun" in result.output:
            break
    assert result.output == f"killed after {limit_s} s\nbegun"


def test_a_daemon_does_not_outlive_its_command(desk: Desk) -> None:
    command = "(setsid sleep 1000.5 &) ; (setsid sh -c 'sleep 1000.5; :' >/dev/null 2>&1 &) ; echo begun"
    assert desk.do("shell", command=command) == "exit status 0\nbegun"
    assert processes("1000.5") == []


def test_a_command_does_not_outlive_a_killed_engine(tmp_path: Path, sandbox: Sandbox) -> None:
    desk = Desk(tmp_path)
    desk.write("config/org.json", f'{{"shell": {{"sandbox": "{sandbox}"}}}}')
    os.mkfifo(desk.workspace / "held")
    code = f"""
from lemming.tools import ToolRegistry
ToolRegistry.get("shell").execute("alpha", {str(tmp_path)!r}, command="sleep 1000.75 > held")
"""
    with subprocess.Popen([sys.executable, "-c", code]) as engine, open(desk.workspace / "held", "rb") as held:
        engine.send_signal(signal.SIGKILL)  # the command runs: it has opened the pipe
        poll = select.poll()
        poll.register(held, select.POLLHUP)
        assert poll.poll(PATIENCE_MS), "the command still holds the pipe"


def test_endless_output_is_cut_and_counted(tmp_path: Path, sandbox: Sandbox) -> None:
    desk = Desk(tmp_path, org=org_with(sandbox, max_output_bytes=1000))
    output = desk.do("shell", command="head -c 100000000 /dev/zero")
    assert output == "exit status 0\n" + "\0" * 1000 + ("\n[output cut: the first 1000 of 100000000 bytes are shown]")


def test_a_file_cannot_grow_without_end(desk: Desk) -> None:
    result = desk.call("shell", command="yes > file; echo stopped")
    assert result.success
    assert (desk.workspace / "file").stat().st_size == 64 << 20
    (desk.workspace / "file").unlink()


def test_memory_has_a_limit(desk: Desk) -> None:
    assert "memory" in desk.refusal("shell", command="dd if=/dev/zero of=/dev/null bs=3G count=1 2>&1")


def test_processes_have_a_limit(desk: Desk) -> None:
    command = "i=0; while [ $i -lt 400 ]; do sleep 1000.125 & i=$((i+1)); done; wait"
    refusal = desk.refusal("shell", command=command)
    assert "too many processes" in refusal or "fork" in refusal.lower()
    assert processes("1000.125") == []


@needs_python
def test_processes_that_double_are_all_ended(desk: Desk) -> None:
    """Root has no limit but the one that the launcher keeps, and 512 are there before it looks."""
    (desk.workspace / "double.py").write_text(
        "import os\nfor _ in range(9):\n    try: os.fork()\n    except OSError: pass\n"
        "os.execv('/bin/sleep', ['sleep', '1000.375'])\n"
    )
    desk.refusal("shell", command=f"{PYTHON} double.py; exit 1")
    assert processes("1000.375") == []


@needs_python
def test_memory_has_a_limit_in_all(tmp_path: Path, sandbox: Sandbox) -> None:
    desk = Desk(tmp_path, org=org_with(sandbox, max_memory_bytes=128 << 20, timeout_s=PATIENCE_S))
    hog = f"{PYTHON} -c 'import time; x = bytearray(40 << 20); time.sleep(3000)' &"
    assert desk.refusal("shell", command=f"{hog} " * 8 + "wait") == (
        "killed: its processes took more than 134217728 bytes of memory"
    )


def test_a_process_that_has_ended_takes_no_memory() -> None:
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    found = ProcessStat(ended.pid, os.getpid(), threads=1, memory_bytes=60 << 20)
    assert memory_bytes(found) == 0
    ended.wait()
    assert memory_bytes(found) == 0


@needs_python
def test_memory_that_processes_share_counts_once(tmp_path: Path, sandbox: Sandbox) -> None:
    desk = Desk(tmp_path, org=org_with(sandbox, max_memory_bytes=192 << 20, timeout_s=PATIENCE_S))
    script = "import os, time; x = b'x' * (60 << 20); [os.fork() for _ in range(3)]; time.sleep(0.5)"
    assert desk.do("shell", command=f'{PYTHON} -c "{script}"; echo end').endswith("end")


# Each fills a workspace that may hold 1 MiB, 100 files and 64 folders above each other.
FILL = {
    "files": ("for i in 1 2 3 4; do head -c 500000 /dev/zero > f$i; done", "bytes, at most 1048576"),
    "while it runs": ("for i in 1 2 3; do head -c 500000 /dev/zero > f$i; done; sleep 3000", "bytes, at most"),
    "a hole": ("truncate -s 60M f", "bytes, at most 1048576"),
    "without a name": ("exec 3> f; rm f; head -c 5000000 /dev/zero >&3; sleep 3000", "files without a name"),
    "names": ("i=0; while [ $i -lt 120 ]; do : > $i; i=$((i+1)); done", "files and folders, at most 100"),
    "depth": ("i=0; while [ $i -lt 90 ]; do mkdir d; cd d; i=$((i+1)); done", "deep, at most 64"),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("way", FILL)
def test_a_workspace_cannot_be_filled_without_end(tmp_path: Path, sandbox: Sandbox, way: str) -> None:
    org = replace(org_with(sandbox, timeout_s=PATIENCE_S), quota=Quota(max_bytes=1 << 20, max_files=100))
    desk = Desk(tmp_path, org=org)
    command, why = FILL[way]
    refusal = desk.refusal("shell", command=command)
    assert refusal.startswith("killed: your workspace holds ")
    assert why in refusal
    assert desk.do("shell", command="rm -r ./* || true; echo tidied").endswith("tidied")


def test_a_full_workspace_can_be_tidied_up_but_not_filled_more(tmp_path: Path, sandbox: Sandbox) -> None:
    org = replace(org_with(sandbox), quota=Quota(max_bytes=1 << 20, max_files=100))
    desk = Desk(tmp_path, org=org)
    (desk.workspace / "big").write_bytes(bytes(3 << 20))
    assert desk.do("shell", command="echo looked").endswith("looked")
    assert "remove what" in desk.refusal("shell", command="head -c 1000000 /dev/zero > more")
    desk.do("shell", command="rm big more")
    desk.do("shell", command="echo fine > fine")


def test_no_folder_in_memory_can_be_filled(desk: Desk) -> None:
    command = """
for folder in / /dev /dev/shm /tmp /etc /usr /proc /run /var/tmp; do
    for i in 1 2 3; do head -c 50000000 /dev/zero > $folder/fill$i; done 2>/dev/null
done
cat /*/fill* /fill* /dev/shm/fill* 2>/dev/null | wc -c"""
    assert int(desk.do("shell", command=command).split()[-1]) <= 2 * (64 << 20)


@needs_python
def test_no_memory_can_be_had_without_a_process_or_a_file(desk: Desk) -> None:
    attempt = "import os; os.memfd_create('x')"
    assert "PermissionError" in desk.refusal("shell", command=f'{PYTHON} -c "{attempt}"')
