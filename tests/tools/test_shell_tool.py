"""`shell`: what a command can do, and all that it cannot, in each sandbox that works on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from sandboxed import PYTHON, SECRET, Sandbox, needs_python, org_with, snapshot
from tool_desk import Desk

from lemming.kernel.base.errors import PermissionDenied
from lemming.kernel.tools import ToolRegistry
from lemming.libraries.sandbox.sandbox_runner import get_sandbox_status, run_confined

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are for Linux")

# Calls that name a process by its number, made for a process outside, for our own and for the user's all.
REACH_OUT = """
import ctypes, os, sys
calls = {
    "x86_64": dict(prlimit64=302, setaffinity=203, setparam=142, setscheduler=144, setattr=314,
                   setpriority=141, ioprio_set=251, move_pages=279, migrate_pages=256, fcntl=72, prctl=157),
    "aarch64": dict(prlimit64=261, setaffinity=122, setparam=118, setscheduler=119, setattr=274,
                    setpriority=140, ioprio_set=30, move_pages=239, migrate_pages=238, fcntl=25, prctl=167),
}[os.uname().machine]
libc, room = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(256)
def attempt(name, *arguments):
    result = libc.syscall(calls[name], *arguments)
    print(name, "refused" if result < 0 and ctypes.get_errno() == 13 else "REACHED")
for pid in (int(sys.argv[1]), int(sys.argv[1]) | 1 << 32, os.getppid(), 1, -1):
    pid = ctypes.c_ulong(pid & 0xFFFFFFFFFFFFFFFF)
    attempt("prlimit64", pid, 7, None, room)
    attempt("setaffinity", pid, 8, room)
    attempt("setparam", pid, room)
    attempt("setscheduler", pid, 0, room)
    attempt("setattr", pid, room, 0)
    attempt("setpriority", 0, pid, 0)
    attempt("ioprio_set", 1, pid, 2 << 13)
    attempt("move_pages", pid, 0, None, None, None, 0)
    attempt("migrate_pages", pid, 0, None, None)
    attempt("fcntl", 2, 8, pid)
    attempt("prctl", 62, 2, pid, 0, 0)
attempt("setpriority", 2, 0, 0)
attempt("ioprio_set", 3, 0, 2 << 13)
"""


# --- what a command can do -----------------------------------------------------------------------


def test_a_command_works_in_the_workspace(desk: Desk) -> None:
    output = desk.do("shell", command="pwd; mkdir -p a/b; echo hello > a/b/c; mv a/b/c d; cat d; ls")
    assert output.splitlines() == ["exit status 0", str(desk.workspace), "hello", "a", "d"]
    assert (desk.workspace / "d").read_text() == "hello\n"


def test_a_script_can_be_made_executable_and_run(desk: Desk) -> None:
    if "chmod" in get_sandbox_status(desk.org)[1]:
        pytest.skip("no namespaces here")
    command = "printf '#!/bin/sh\\necho ran' > run.sh; chmod +x run.sh; ./run.sh; touch -d 2020-01-01 run.sh"
    assert desk.do("shell", command=command) == "exit status 0\nran"


def test_the_workspace_is_made_when_it_is_missing(desk: Desk) -> None:
    desk.workspace.rmdir()
    assert desk.do("shell", command="echo $PWD") == f"exit status 0\n{desk.workspace}"


def test_temporary_files_are_in_the_workspace(desk: Desk) -> None:
    output = desk.do("shell", command="mktemp")
    assert output.startswith(f"exit status 0\n{desk.workspace}/.tmp/")


def test_a_command_that_spoils_its_temporary_folder_can_put_it_right(desk: Desk) -> None:
    desk.do("shell", command="rm -r .tmp; ln -s /nowhere .tmp")
    assert "exit status 1" in desk.call("shell", command="mktemp").output
    desk.do("shell", command="rm .tmp")
    desk.do("shell", command="mktemp")


def test_errors_and_output_come_together_with_the_exit_status(desk: Desk) -> None:
    result = desk.call("shell", command="echo out; echo err >&2; exit 3")
    assert (result.success, result.output) == (False, "exit status 3\nout\nerr")


def test_a_command_has_nothing_to_read(desk: Desk) -> None:
    assert desk.do("shell", command="cat; read x || echo nothing") == "exit status 0\nnothing"


def test_output_that_is_not_text_is_shown_as_far_as_it_goes(desk: Desk) -> None:
    assert desk.do("shell", command=r"printf 'a\377b'") == "exit status 0\na\ufffdb"


@pytest.mark.parametrize("command", ["echo a\0b", "x" * 70_000, ""], ids=["nul", "long", "empty"])
def test_a_command_line_that_no_shell_takes_is_refused(tmp_path: Path, command: str) -> None:
    assert "shell: " in Desk(tmp_path).refusal("shell", command=command)


def test_a_command_is_not_repeated_after_a_crash() -> None:
    assert ToolRegistry.get("shell").repeatable is False


# --- what it cannot ------------------------------------------------------------------------------


def test_the_environment_holds_four_things_and_no_key(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    lines = desk.do("shell", command="env -u PWD").splitlines()
    assert sorted(lines[1:]) == [
        f"HOME={desk.workspace}",
        "LANG=C.UTF-8",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        f"TMPDIR={desk.workspace}/.tmp",
    ]


def test_no_environment_of_another_process_can_be_read(tmp_path: Path, sandbox: Sandbox) -> None:
    """The key is in the initial environment of the engine, where /proc/<engine>/environ shows it."""
    Desk(tmp_path).write("config/org.json", f'{{"shell": {{"sandbox": "{sandbox}"}}}}')
    engine = f"""
import os, sys
from lemming.tools import ToolRegistry
places = ["self", "$PPID", str(os.getpid()), "[0-9]*"]
command = "cat " + " ".join(f"/proc/{{place}}/environ" for place in places) + "; echo end"
print(ToolRegistry.get("shell").execute("alpha", {str(tmp_path)!r}, command=command).output)
"""
    environment = {**os.environ, "OPENAI_API_KEY": SECRET}
    done = subprocess.run([sys.executable, "-c", engine], env=environment, capture_output=True, text=True, check=True)
    assert "end" in done.stdout
    assert SECRET not in done.stdout


def test_nothing_outside_the_workspace_can_be_read(desk: Desk) -> None:
    base, outside = desk.base, desk.base.parent / "outside"
    (desk.workspace / "link").symlink_to(outside)
    secret = f"{outside}/secret.txt"
    commands = [
        f"cat {base}/config/credits.json ../../../config/credits.json link/secret.txt",
        f"cp {base}/agents/beta/workspace/private.txt stolen",
        f"ln {base}/shared/common.txt stolen; ln -s {base}/shared/common.txt s; cat s stolen",
        f"echo x | grep --file={secret}; sort {secret} -o stolen; dd if={secret}; sh -c '. {secret}'",
        f"tar cf - {base}/config; find {base} -type f -exec cat {{}} +; ls {base} {outside} /",
        f"tar --checkpoint=1 --checkpoint-action=exec='cat {secret}' -cf /dev/null .",
        f'jq -n \'import "credits" as $d {{search: "{base}/config"}}; $d\'',
        f"git -c core.pager='cat {secret}' log; cat /etc/passwd /etc/shadow; head -c 9 /dev/sda",
        f"cat /proc/1/root{secret} /proc/self/root{secret} /proc/self/cwd/link/secret.txt",
    ]
    output = desk.do("shell", command=" ; ".join([*commands, "cat stolen s", "true"]))
    assert SECRET not in output
    assert "root:" not in output
    assert "credits.json\n" not in output
    assert not (desk.workspace / "stolen").exists() or (desk.workspace / "stolen").read_bytes() == b""


def test_nothing_outside_the_workspace_can_be_changed(desk: Desk) -> None:
    base, outside = desk.base, desk.base.parent / "outside"
    (desk.workspace / "link").symlink_to(outside)
    before = snapshot(base.parent)
    secret = f"{outside}/secret.txt"
    commands = [
        f"echo x > {base}/shared/new; echo x >> {secret}; echo x > link/new; echo x > ../outbox",
        f"rm -rf {base}/config {outside}; mv {base}/shared/common.txt .; truncate -s 0 {secret}",
        f"chmod 777 {secret}; chown 1:1 {secret}; touch -d 2020-01-01 {secret}; setfattr -n user.x {secret}",
        f"mkdir {base}/.lemming; ln -s x {base}/tick.json; mknod disk b 8 0; sort -o {secret} /dev/null",
        f"(cd {outside}; echo x > here); echo x > {base}/agents/alpha/resume.json",
        f"echo x > ../../beta/workspace/private.txt; echo x > {base}/agents/gamma",
    ]
    desk.do("shell", command=" ; ".join([*commands, "true"]))
    assert snapshot(base.parent) == before
    assert not (desk.workspace / "disk").exists()


@needs_python
def test_no_network_is_reached(desk: Desk) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as path,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        udp.bind(("127.0.0.1", 0))
        here = os.open(desk.workspace, os.O_RDONLY)
        path.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
        abstract.bind(f"\0lemming-{os.getpid()}")
        for listener in (path, abstract):
            listener.listen()
        attempts = [
            f"socket.create_connection(('127.0.0.1', {tcp.getsockname()[1]}))",
            f"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', {udp.getsockname()})",
            "socket.socket(socket.AF_UNIX).connect('socket')",
            f"socket.socket(socket.AF_UNIX).connect('\\0lemming-{os.getpid()}')",
            "socket.getaddrinfo('localhost', 80); socket.create_connection(('localhost', 80))",
            "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        ]
        script = "import socket\n" + "".join(
            f"try:\n  {attempt}\n  print('REACHED')\nexcept OSError: print('refused')\n" for attempt in attempts
        )
        (desk.workspace / "reach.py").write_text(script)
        output = desk.do("shell", command=f"{PYTHON} reach.py")
        udp.setblocking(False)
        with pytest.raises(BlockingIOError):
            udp.recv(1)
    assert output.splitlines() == ["exit status 0", *["refused"] * len(attempts)]


@needs_python
def test_other_processes_and_the_kernel_are_out_of_reach(desk: Desk) -> None:
    outsider = os.getpid()
    script = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, result):
    print(name, "REACHED" if result >= 0 else "refused")
try: os.kill({outsider}, 0); print("signal REACHED")
except OSError: print("signal refused")
attempt("ptrace", libc.ptrace(16, {outsider}, None, None))
attempt("user namespace", libc.unshare(0x10000000))
attempt("mount", libc.mount(b"none", b".", b"tmpfs", 0, None))
attempt("chroot", libc.chroot(b"."))
attempt("bpf", libc.syscall(321 if os.uname().machine == "x86_64" else 280, 0, None, 0))
attempt("sethostname", libc.sethostname(b"x", 1))
attempt("shared memory", libc.shmget(1, 1, 0o1600))
"""
    (desk.workspace / "reach.py").write_text(script)
    output = desk.do("shell", command=f"{PYTHON} reach.py; unshare -r true || echo unshare refused")
    assert "REACHED" not in output
    assert output.count("refused") == 9


def test_no_setting_of_the_kernel_and_no_device_can_be_changed(desk: Desk) -> None:
    """Root needs no capability for /proc/sys, nor for the mode of a device that it owns."""
    before = os.stat("/dev/null")
    command = """
for file in $(find /proc/sys /proc/irq /proc/bus /proc/sysrq-trigger /sys -type f 2>/dev/null); do
    (: >> $file) 2>/dev/null && echo OPENED $file
done
for device in null zero full random urandom tty; do
    chmod 666 /dev/$device && echo CHANGED; touch -m /dev/$device && echo CHANGED
done 2>/dev/null
echo written > /dev/null && echo end
"""
    assert desk.do("shell", command=command) == "exit status 0\nend"
    assert os.stat("/dev/null").st_mode == before.st_mode


@needs_python
def test_no_limit_nor_priority_of_another_process_can_be_set(desk: Desk) -> None:
    (desk.workspace / "reach.py").write_text(REACH_OUT)
    output = desk.do("shell", command=f"{PYTHON} reach.py {os.getpid()}; ulimit -n 99; ulimit -n; nice -n 1 echo nice")
    assert "REACHED" not in output
    assert output.splitlines()[-2:] == ["99", "nice"]


def test_root_has_no_privileges_inside(desk: Desk) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has any")
    assert desk.do("shell", command="touch a; chown 1:1 a || echo refused").endswith("refused")


@needs_python
def test_no_file_can_be_made_that_runs_with_its_owners_rights(desk: Desk) -> None:
    make = "os.close(os.open('made', os.O_CREAT | os.O_WRONLY, 0o4755)); "
    output = desk.do(
        "shell",
        command="cp /bin/sh copied; chmod 4755 copied; chmod g+s copied; install -m 6755 /bin/sh installed\n"
        f"""{PYTHON} -c "import os; {make}"; {PYTHON} -c "import os; os.mknod('node', 0o104755)"; ls""",
    )
    assert "copied" in output
    assert [path.name for path in desk.workspace.iterdir() if path.stat().st_mode & 0o6000] == []


def test_a_hard_link_to_outside_keeps_every_command_from_running(desk: Desk) -> None:
    os.link(desk.base / "config/credits.json", desk.workspace / "innocent.txt")
    assert desk.refusal("shell", command="cat innocent.txt") == (
        'shell: linked file refused: "innocent.txt" has another name outside the workspace'
    )


def test_hard_links_inside_the_workspace_are_fine(desk: Desk) -> None:
    desk.do("shell", command="mkdir d; echo x > a; ln a d/b")
    assert desk.do("shell", command="cat d/b") == "exit status 0\nx"


def test_a_workspace_that_is_a_link_is_refused(desk: Desk) -> None:
    desk.workspace.rmdir()
    desk.workspace.symlink_to(desk.base.parent / "outside")
    assert "workspace" in desk.refusal("shell", command="ls")


def test_an_organisation_among_the_systems_programs_is_refused(sandbox: Sandbox) -> None:
    org = org_with(sandbox)
    with pytest.raises(PermissionDenied, match="the organisation lies below /usr"):
        run_confined("ls", Path("/usr/lemming-nowhere"), "agents/alpha/workspace", org)
    assert not Path("/usr/lemming-nowhere").exists()
