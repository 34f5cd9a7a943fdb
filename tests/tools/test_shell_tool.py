"""`shell`: what a command can do, and all that it cannot, in each sandbox that works on this machine."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import pytest
from desk import Desk

from lemming.config import Org, Quota, ShellSettings
from lemming.errors import PermissionDenied
from lemming.sandbox.run import run_confined, sandbox_status
from lemming.tools import ToolRegistry

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are for Linux")

SECRET = "sk-do-not-show"
PYTHON = "/usr/bin/python3"
needs_python = pytest.mark.skipif(not os.path.exists(PYTHON), reason=f"the commands here need {PYTHON}")
Sandbox = Literal["bwrap", "landlock", "none"]

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


def org_with(sandbox: Sandbox, **settings: Any) -> Org:
    """Return settings with a sandbox; skip the test where it does not work."""
    org = Org(shell=ShellSettings(sandbox=sandbox, **settings))
    name, detail = sandbox_status(org)
    if name == "off":
        pytest.skip(f"no {sandbox} here: {detail}")
    return org


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
        str(path): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(base.rglob("*"))
        if "alpha/workspace" not in str(path)
    }


# --- what a command can do -----------------------------------------------------------------------


def test_a_command_works_in_the_workspace(desk: Desk) -> None:
    output = desk.do("shell", command="pwd; mkdir -p a/b; echo hello > a/b/c; mv a/b/c d; cat d; ls")
    assert output.splitlines() == ["exit status 0", str(desk.workspace), "hello", "a", "d"]
    assert (desk.workspace / "d").read_text() == "hello\n"


def test_a_script_can_be_made_executable_and_run(desk: Desk) -> None:
    if "chmod" in sandbox_status(desk.org)[1]:
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
    done = subprocess.run(
        [sys.executable, "-c", engine], env=environment, capture_output=True, text=True, check=True
    )
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
            f"try:\n  {attempt}\n  print('REACHED')\nexcept OSError: print('refused')\n"
            for attempt in attempts
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
    output = desk.do(
        "shell", command=f"{PYTHON} reach.py {os.getpid()}; ulimit -n 99; ulimit -n; nice -n 1 echo nice"
    )
    assert "REACHED" not in output
    assert output.splitlines()[-2:] == ["99", "nice"]


def test_root_has_no_privileges_inside(desk: Desk) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has any")
    assert desk.do("shell", command="touch a; chown 1:1 a || echo refused").endswith("refused")


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


# --- limits --------------------------------------------------------------------------------------


def test_a_command_is_killed_at_its_time_with_all_that_it_started(tmp_path: Path, sandbox: Sandbox) -> None:
    desk = Desk(tmp_path, org=org_with(sandbox, timeout_s=0.5))
    command = (
        "sleep 1000.25 & setsid sleep 1000.25 & (setsid sh -c 'sleep 1000.25 & sleep 1000.25' &);"
        " echo begun; trap '' TERM INT HUP; sleep 1000.25"
    )
    result = desk.call("shell", command=command)
    assert (result.success, result.output) == (False, "killed after 0.5 s\nbegun")
    assert processes("1000.25") == []


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
    with (
        subprocess.Popen([sys.executable, "-c", code]) as engine,
        open(desk.workspace / "held", "rb") as held,
    ):
        engine.send_signal(signal.SIGKILL)  # the command runs: it has opened the pipe
        poll = select.poll()
        poll.register(held, select.POLLHUP)
        assert poll.poll(10_000), "the command still holds the pipe"


def test_endless_output_is_cut_and_counted(tmp_path: Path, sandbox: Sandbox) -> None:
    desk = Desk(tmp_path, org=org_with(sandbox, max_output_bytes=1000))
    output = desk.do("shell", command="head -c 100000000 /dev/zero")
    assert output == "exit status 0\n" + "\0" * 1000 + (
        "\n[output cut: the first 1000 of 100000000 bytes are shown]"
    )


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
    """Root has no limit but the one that the launcher keeps, and 1024 are there before it looks."""
    (desk.workspace / "double.py").write_text(
        "import os\nfor _ in range(10):\n    try: os.fork()\n    except OSError: pass\n"
        "os.execv('/bin/sleep', ['sleep', '1000.375'])\n"
    )
    desk.refusal("shell", command=f"{PYTHON} double.py; exit 1")
    assert processes("1000.375") == []


@needs_python
def test_memory_has_a_limit_in_all(tmp_path: Path, sandbox: Sandbox) -> None:
    desk = Desk(tmp_path, org=org_with(sandbox, max_memory_bytes=128 << 20, timeout_s=60))
    hog = f"{PYTHON} -c 'import time; x = bytearray(40 << 20); time.sleep(60)' &"
    assert desk.refusal("shell", command=f"{hog} " * 8 + "wait") == (
        "killed: its processes took more than 134217728 bytes of memory"
    )


@needs_python
def test_memory_that_processes_share_counts_once(tmp_path: Path, sandbox: Sandbox) -> None:
    desk = Desk(tmp_path, org=org_with(sandbox, max_memory_bytes=192 << 20, timeout_s=60))
    script = "import os, time; x = b'x' * (60 << 20); [os.fork() for _ in range(3)]; time.sleep(0.5)"
    assert desk.do("shell", command=f'{PYTHON} -c "{script}"; echo end').endswith("end")


# Each fills a workspace that may hold 1 MiB, 100 files and 64 folders above each other.
FILL = {
    "files": ("for i in 1 2 3 4; do head -c 500000 /dev/zero > f$i; done", "bytes, at most 1048576"),
    "while it runs": ("for i in 1 2 3; do head -c 500000 /dev/zero > f$i; done; sleep 60", "bytes, at most"),
    "a hole": ("truncate -s 60M f", "bytes, at most 1048576"),
    "without a name": ("exec 3> f; rm f; head -c 5000000 /dev/zero >&3; sleep 60", "files without a name"),
    "names": ("i=0; while [ $i -lt 120 ]; do : > $i; i=$((i+1)); done", "files and folders, at most 100"),
    "depth": ("i=0; while [ $i -lt 90 ]; do mkdir d; cd d; i=$((i+1)); done", "deep, at most 64"),
}


@pytest.mark.parametrize("way", FILL)
def test_a_workspace_cannot_be_filled_without_end(tmp_path: Path, sandbox: Sandbox, way: str) -> None:
    org = replace(org_with(sandbox, timeout_s=60), quota=Quota(max_bytes=1 << 20, max_files=100))
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


# --- which sandbox -------------------------------------------------------------------------------


def test_none_is_only_what_it_says(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "org", org=org_with("none"))
    desk.write("config/credits.json", "readable")
    assert sandbox_status(desk.org) == (
        "none",
        'commands are not confined: config/org.json shell.sandbox is "none"',
    )
    assert "readable" in desk.do(
        "shell", command="cat ../../../config/credits.json; (setsid sleep 1000.0625 &)"
    )
    assert processes("1000.0625") == []


def test_auto_prefers_bubblewrap_and_says_what_it_uses() -> None:
    auto = sandbox_status(Org())
    working = [name for name in ("bwrap", "landlock") if sandbox_status(org_with_or_without(name))[0] == name]
    assert auto[0] == [*working, "off"][0]
    assert "seccomp" in auto[1] or auto[0] == "off"


def org_with_or_without(sandbox: str) -> Org:
    """Return settings that insist on a sandbox, whether it works or not."""
    return Org(shell=ShellSettings(sandbox=cast(Sandbox, sandbox)))


NO_LANDLOCK = """
import ctypes, os, struct, sys
from lemming.sandbox import seccomp
from lemming.sandbox import kernel as walls
step = lambda code, value, so=0, no=0: struct.pack("HBBI", code, so, no, value)
walls.gain_nothing()
if {without_landlock}:
    walls.enter_seccomp(step(0x20, 0) + step(0x15, 444, 0, 1) + step(6, 0x00050026) + step(6, 0x7FFF0000))
walls.enter_seccomp(seccomp.program_for(os.uname().machine, also_metadata=False))
from lemming.config import load_config
from lemming.sandbox.run import sandbox_status
from lemming.tools import ToolRegistry
print(sandbox_status(load_config({base!r}).org)[0])
print(ToolRegistry.get("shell").execute("alpha", {base!r}, command="echo ran").output)
"""


def test_without_a_sandbox_no_command_runs(tmp_path: Path) -> None:
    Desk(tmp_path)
    code = NO_LANDLOCK.format(base=str(tmp_path), without_landlock=True)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(
        "off\nshell is disabled: no sandbox on this system (needs Linux >= 5.13 or bubblewrap); "
        "see `lemming doctor`"
    )
    assert "ran" not in done.stdout


def test_insisting_on_bubblewrap_does_not_fall_back_to_landlock(tmp_path: Path) -> None:
    Desk(tmp_path).write("config/org.json", '{"shell": {"sandbox": "bwrap"}}')
    code = NO_LANDLOCK.format(base=str(tmp_path), without_landlock=False)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith('off\nshell is disabled: shell.sandbox "bwrap" of config/org.json')
