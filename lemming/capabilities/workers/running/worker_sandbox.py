"""The sandbox of a worker: bubblewrap, with the clone and HOME writable, and no network but the model gateway.

Visible besides: system folders, the harness's own files, and folders that the caller names, all read-only. The worker
has a process namespace of its own, which ends with the engine, and no capabilities. Linux only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from lemming.capabilities.workers.running import relay, sandbox_entry
from lemming.kernel.base.errors import Unusable
from lemming.libraries.sandbox.sandbox_policy import SYSTEM_FOLDERS, list_system_mounts, pipe_seccomp_program
from lemming.libraries.sandbox.sandbox_runner import PATH as SYSTEM_PATH
from lemming.libraries.sandbox.sandbox_runner import find_bubblewrap

RELAY_PORT = 8377
"""Port of the gateway inside a sandbox, whose network is its own."""

_RELAY, _SOCKET = "/run/lemming/relay.py", "/run/lemming/gateway.sock"
_CERTIFICATES = (
    "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/pki/ca-trust",
)  # fmt: skip
_ETC = Path(__file__).parent / "etc"
_TMP_BYTES = 1 << 30
_PROBE_TIMEOUT_S = 20.0


def get_worker_sandbox() -> tuple[bool, str]:
    """Return True and a description of the sandbox, or False and the reason that no worker can be confined here."""
    if sys.platform != "linux":
        return False, f"there is no sandbox of workers for {sys.platform}"
    if find_bubblewrap() is None:
        return False, "bubblewrap is not installed"
    return _probe_sandbox()


def build_sandbox(
    command: Sequence[str],
    *,
    clone: Path,
    home: Path,
    readable: Iterable[Path] = (),
    socket: Path | None = None,
    control: int,
    report: int,
) -> tuple[list[str], int]:
    """Return the command that runs `command` in a sandbox, through the relay, and a descriptor that it inherits.

    `command` starts with an absolute path. `socket`: the gateway's Unix socket, None for no network at all.
    `control` and `report`: descriptors of the relay. The caller closes all of them once the command has started.
    """
    python = Path(sys.executable).resolve()
    folders = [*readable, *find_program_files(Path(command[0])), *find_program_files(python)]
    port, bwrap = str(RELAY_PORT if socket else 0), find_bubblewrap() or "bwrap"
    inner = [str(python), "-I", "-S", _RELAY, str(control), str(report), port, _SOCKET, *command]
    seccomp = pipe_seccomp_program(in_namespaces=True)
    outer = [sys.executable, "-I", "-S", sandbox_entry.__file__, str(clone), str(home), "--"]
    bubblewrap = [
        *(bwrap, "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000"),
        *("--hostname", "worker", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *("--seccomp", str(seccomp), "--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"),
        *list_system_mounts(),
        *_mount_etc(),
        *("--size", str(_TMP_BYTES), "--tmpfs", "/tmp", "--size", str(_TMP_BYTES), "--tmpfs", "/var/tmp"),  # noqa: S108
        *("--size", str(_TMP_BYTES), "--tmpfs", "/dev/shm"),  # noqa: S108 - inside the sandbox
        *("--ro-bind", relay.__file__, _RELAY),
        *(("--ro-bind", str(socket), _SOCKET) if socket else ()),
        *(part for path in _outermost(folders) for part in ("--ro-bind", path, path)),
        *("--bind", str(clone), str(clone), "--bind", str(home), str(home), "--chdir", str(clone)),
        # Read-only last, once everything has its place below it.
        *("--remount-ro", "/dev", "--remount-ro", "/", "--"),
    ]
    return [*outer, *bubblewrap, *inner], seccomp


def build_path(command: Sequence[str]) -> str:
    """Return PATH inside the sandbox: the system's folders, and the folders of programs that the command needs besides."""
    folders = [str(path.parent) for path in find_program_files(Path(command[0])) if path.is_file()]
    return ":".join([*dict.fromkeys(folders), SYSTEM_PATH])


def find_program_files(program: Path) -> list[Path]:
    """Return the files and folders that a program needs outside the system's folders.

    The program is an absolute path, and its links are resolved. A program of npm needs the outermost `node_modules`, a
    program of a Python environment the environment and its Python, any other program only its file. A script needs
    the interpreter too. Raises `Unusable` for a folder with your home inside.
    """
    return list(dict.fromkeys(_iter_program_files(program)))


def _iter_program_files(program: Path, depth: int = 0) -> Iterator[Path]:
    target = program.resolve()
    if depth > 4 or not target.is_file():
        return
    if not _is_system(program) or not _is_system(target):
        package = _find_package(target) or target
        if Path.home().resolve().is_relative_to(package):
            message = f"files of a harness must lie in a folder of their own, got {package}"
            raise Unusable(message, where=str(program), hint="install the harness in another folder")
        yield package
        if target.parent != program.parent and not _is_system(program):
            yield program  # under the name that a script's first line gives
    for interpreter in _read_interpreters(target):
        yield from _iter_program_files(interpreter, depth + 1)


def _find_package(target: Path) -> Path | None:
    """Return the folder that a program belongs to, or None for a single file."""
    parts = target.parts
    if "node_modules" in parts:
        return Path(*parts[: parts.index("node_modules") + 1])
    prefix = target.parent.parent
    if (prefix / "pyvenv.cfg").is_file() or next(prefix.glob("lib/python3*/os.py"), None):
        return prefix
    return None


def _read_interpreters(target: Path) -> Iterator[Path]:
    """Yield the interpreter of a script, such as the Python of an environment, a link to another one."""
    with target.open("rb") as file:
        first_line = file.readline(512)
    parts = first_line[2:].decode(errors="replace").split() if first_line.startswith(b"#!") else []
    if parts and Path(parts[0]).name == "env":
        name = next((part for part in parts[1:] if not part.startswith("-") and "=" not in part), "")
        interpreter = shutil.which(name)
        yield from [Path(interpreter)] if interpreter else []
    elif parts:
        yield Path(parts[0])


def _is_system(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in SYSTEM_FOLDERS)


def _outermost(paths: Iterable[Path]) -> list[str]:
    """Return the paths that lie in no other path, in order, to mount each file once."""
    chosen: list[Path] = []
    for path in sorted(set(paths), key=lambda path: len(path.parts)):
        if path.exists() and not _is_system(path) and not any(path.is_relative_to(other) for other in chosen):
            chosen.append(path)
    return [str(path) for path in chosen]


def _mount_etc() -> Iterator[str]:
    for path in _CERTIFICATES:
        yield from ("--ro-bind-try", path, path)
    # The machine's own would tell its users, networks and hosts.
    for file in sorted(_ETC.iterdir()):
        yield from ("--ro-bind", str(file), f"/etc/{file.name}")


@cache
def _probe_sandbox() -> tuple[bool, str]:
    """Run an empty command in a sandbox once. Return True and a description, or False and the reason."""
    empty = Path(tempfile.gettempdir())  # nothing is written
    report, write_end = os.pipe()
    argv, seccomp = build_sandbox(["/bin/true"], clone=empty, home=empty, control=report, report=write_end)
    try:
        run = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False,
            env={"PATH": SYSTEM_PATH}, pass_fds=(report, write_end, seccomp),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, f"bubblewrap cannot be started: {error}"
    finally:
        for descriptor in (report, write_end, seccomp):
            os.close(descriptor)
    if run.returncode == 0:
        return True, "bubblewrap, namespaces and seccomp"
    lines = run.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {run.returncode}"]
    return False, f"bubblewrap does not work here: {lines[-1]}"
