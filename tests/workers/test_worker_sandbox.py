"""The sandbox of a worker: the files, processes and servers of the machine are out of its reach."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lemming.capabilities.workers.running.harness_process import HarnessProcess
from lemming.capabilities.workers.running.worker_sandbox import build_path, find_program_files, get_worker_sandbox
from lemming.kernel.base.errors import Unusable

needs_sandbox = pytest.mark.skipif(not get_worker_sandbox()[0], reason=get_worker_sandbox()[1])


class Workplace:
    """A clone, a HOME, and a file of the user beside them."""

    def __init__(self, folder: Path) -> None:
        self.clone, self.home, self.secret = folder / "clone", folder / "home", folder / "secret"
        self.clone.mkdir()
        self.home.mkdir()
        self.secret.write_text("a secret of the user")

    def run(self, script: str, *, readable: tuple[Path, ...] = (), is_confined: bool = True) -> tuple[int, str, str]:
        """Run a shell script as a harness. Return its exit status, output and errors."""
        harness = HarnessProcess(
            ["/bin/sh", "-c", script], clone=self.clone, home=self.home, environment={}, readable=readable,
            is_confined=is_confined,
        )  # fmt: skip
        harness.stdin.close()
        output, errors = harness.stdout.read(), harness.stderr.read()
        return harness.close(), output.decode(), errors.decode()


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


@needs_sandbox
def test_a_worker_writes_its_clone_and_home_and_nothing_else(workplace: Workplace, tmp_path: Path) -> None:
    status, output, errors = workplace.run(
        f"""echo 1 > in-clone; echo 1 > "$HOME/in-home"; echo 1 > /tmp/x && echo tmp
        touch {tmp_path}/evil  # in the memory of the sandbox
        for path in / /usr /etc /dev /run /proc/sys/kernel; do
            if touch "$path/evil" 2>/dev/null; then echo "WROTE $path"; fi
        done
        echo evil > /etc/passwd; echo evil > /proc/sys/kernel/domainname; true"""
    )
    assert status == 0
    assert output == "tmp\n"
    assert "Read-only file system" in errors
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["clone", "home", "in-clone", "in-home", "secret"]


@needs_sandbox
def test_a_worker_reads_no_file_of_the_user_or_the_machine(workplace: Workplace) -> None:
    _, output, _ = workplace.run(
        f"cat {workplace.secret} /etc/shadow /etc/hostname; ls /root/.ssh /home /var/log /etc/ssl/private; cat /etc/passwd"
    )
    assert output.splitlines()[0].startswith("root:x:0:0:root:/nonexistent")
    assert "secret" not in output
    assert len(output.splitlines()) == 3


@needs_sandbox
def test_a_named_folder_is_readable_and_not_writable(workplace: Workplace, tmp_path: Path) -> None:
    objects = tmp_path / "repository" / "objects"
    objects.mkdir(parents=True)
    (objects / "pack").write_text("an object")
    (objects.parent / "config").write_text("settings")
    _, output, _ = workplace.run(
        f"cat {objects}/pack; ls {objects.parent}; rm -f {objects}/pack; echo x > {objects}/x", readable=(objects,)
    )
    assert output == "an objectobjects\n"
    assert [path.name for path in objects.iterdir()] == ["pack"]


@needs_sandbox
def test_a_device_of_the_machine_keeps_its_mode(workplace: Workplace) -> None:
    """The owner of a device may change its mode without a capability, and root owns them all."""
    before = os.stat("/dev/null").st_mode
    status, _, errors = workplace.run("chmod 600 /dev/null; echo gone > /dev/null")
    assert status == 0
    assert "/dev/null" in errors
    assert os.stat("/dev/null").st_mode == before


@needs_sandbox
def test_a_worker_reaches_no_server_of_the_machine(workplace: Workplace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        _, output, errors = workplace.run(
            f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo REACHED'; ls /sys/class/net"
        )
    assert output == ""
    assert "Connection refused" in errors


@needs_sandbox
def test_a_worker_sees_and_signals_no_process_of_the_machine(workplace: Workplace) -> None:
    with subprocess.Popen(["sleep", "60"]) as bystander:
        _, output, _ = workplace.run(f"ls -d /proc/[0-9]* | wc -l; kill -9 {bystander.pid}; kill -9 -1; sleep 60")
        assert bystander.poll() is None
        bystander.kill()
    assert int(output) < 10


@needs_sandbox
def test_a_worker_makes_no_namespaces_and_traces_no_process(workplace: Workplace) -> None:
    _, output, errors = workplace.run("unshare --user true || echo refused; id -u; grep CapBnd /proc/self/status")
    assert output.split() == ["refused", "1000", "CapBnd:", "0000000000000000"]
    assert "Permission denied" in errors


@pytest.mark.parametrize(
    "is_confined", [pytest.param(True, marks=needs_sandbox), False], ids=["confined", "unconfined"]
)
def test_a_daemon_ends_with_the_harness(workplace: Workplace, is_confined: bool) -> None:
    marker = workplace.clone / "daemon"
    script = f"""setsid sh -c 'trap "" TERM HUP; echo started > {marker}; sleep 60; echo late > {marker}' >/dev/null 2>&1 &
        while ! [ -s {marker} ]; do sleep 0.01; done; echo done"""
    status, output, _ = workplace.run(script, is_confined=is_confined)
    assert (status, output) == (0, "done\n")
    assert not processes_with_home(workplace.home)
    assert marker.read_text() == "started\n"


def test_a_daemon_that_kills_the_reaper_ends_too(workplace: Workplace) -> None:
    """Without a sandbox a worker may kill the process that would end it: its HOME leads to it."""
    script = "setsid sleep 60 & kill -9 $(ps -o ppid= -p $PPID); echo killed; sleep 60"
    harness = HarnessProcess(
        ["/bin/sh", "-c", script], clone=workplace.clone, home=workplace.home, environment={}, is_confined=False
    )
    assert harness.stdout.readline() == b"killed\n"
    assert harness.close() in (-9, 128 + 9)  # by itself, or as its parent reported it
    assert not processes_with_home(workplace.home)


def processes_with_home(home: Path) -> list[str]:
    """Return the ids of processes whose environment has a HOME, as the machine sees them."""
    marker, ids = f"HOME={home}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if marker in (entry / "environ").read_bytes().split(b"\0"):
                ids.append(entry.name)
        except OSError:
            continue
    return ids


def test_the_exit_status_tells_a_signal(workplace: Workplace) -> None:
    assert workplace.run("exit 3", is_confined=False)[0] == 3
    assert workplace.run("kill -TERM $$", is_confined=False)[0] == -15


def test_a_program_that_is_no_program_is_unusable(workplace: Workplace) -> None:
    (workplace.clone / "text").write_text("no program")
    harness = HarnessProcess(
        [str(workplace.clone / "text")], clone=workplace.clone, home=workplace.home, environment={}, is_confined=False
    )
    assert harness.stdout.read() == b""
    with pytest.raises(Unusable, match="cannot be started: Permission denied"):
        harness.close()


def test_files_of_a_program_of_npm_are_its_outermost_node_modules(tmp_path: Path) -> None:
    program = tmp_path / "lib/node_modules/tool/node_modules/inner/cli.js"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{sys.executable}\n")
    link = tmp_path / "bin" / "tool"
    link.parent.mkdir()
    link.symlink_to(program)
    assert find_program_files(link)[:2] == [tmp_path / "lib/node_modules", link]
    assert build_path([str(link)]).startswith(f"{link.parent}:")


def test_files_of_a_single_program_are_the_program(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "tool"
    program.parent.mkdir()
    program.write_bytes(b"\x7fELF")
    (tmp_path / "keyring").write_text("not for a worker")
    assert find_program_files(program) == [program]


def test_files_of_a_program_must_not_hold_your_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "node_modules" / "tool.js"
    program.parent.mkdir()
    program.write_text("x")
    monkeypatch.setenv("HOME", str(tmp_path / "node_modules" / "home"))
    with pytest.raises(Unusable, match="folder of their own"):
        find_program_files(program)
