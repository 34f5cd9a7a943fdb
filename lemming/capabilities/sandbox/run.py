"""Runs a shell command in a sandbox, or refuses: a weaker wall is never taken in silence.

The sandbox is chosen by `config/org.json shell.sandbox` and tried out once; the launcher `confine`
builds it and watches the command.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, cast

from lemming.capabilities.sandbox import launcher as confine
from lemming.capabilities.sandbox.launcher import Mode, Order, Verdict
from lemming.capabilities.sandbox.settings import ShellSettings, shell_of
from lemming.kernel.base.deadlines import Deadline
from lemming.kernel.base.errors import PermissionDenied, ToolError
from lemming.kernel.files import fs, quota
from lemming.kernel.files.quota import FolderSize
from lemming.kernel.files.refusals import looking
from lemming.kernel.org.config import Org

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NO_SANDBOX = (
    "shell is disabled: no sandbox on this system (needs Linux >= 5.13 or bubblewrap); see `lemming doctor`"
)
_GRACE_S = 10.0
_MEMORY_FOLDER_BYTES = 64 << 20
_BUBBLEWRAP = (
    *("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
    *("--proc", "/proc", "--dev", "/dev"),
    # Root may write to /proc/sys without any capability.
    *("--remount-ro", "/proc"),
)


@dataclass(frozen=True)
class CommandResult:
    """How a command ended, and the first of what it printed out of `output_bytes`."""

    verdict: Verdict
    output: bytes
    output_bytes: int


def sandbox_status(settings: Org) -> tuple[str, str]:
    """Return the sandbox that the shell tool uses here, and what it is made of: for people.

    The name is "bwrap", "landlock", "none" (not confined, as configured) or "off" (the tool refuses).
    """
    mode, detail = _choose(shell_of(settings))
    return mode or "off", detail


def run_confined(command: str, base: Path, workspace: str, settings: Org) -> CommandResult:
    """Run a command in a folder of the organisation, which is made if need be, until it ends or is ended.

    Raises `ToolError` when there is no sandbox, `PermissionDenied` when the folder holds a way out.
    """
    shell = shell_of(settings)
    mode, detail = _choose(shell)
    if mode is None:
        raise ToolError(_why_disabled(shell), hint=detail)
    if mode != "none":
        _refuse_readable_org(base)
    fs.make_folder(base, workspace)
    folder = base.resolve() / workspace
    usage = _survey(folder, refuse_links=mode != "none")
    order = _order(mode, command, str(folder), shell)
    limits = FolderSize(settings.quota.max_bytes, settings.quota.max_files, quota.DEPTH_LIMIT)
    # What is there may stay, or nobody could tidy up.
    return _run(order._replace(max_usage=limits.or_more(usage)), shell.max_output_bytes)


# --- which sandbox -------------------------------------------------------------------------------


def _choose(settings: ShellSettings) -> tuple[Mode | None, str]:
    """Return the sandbox to use and what it is made of, or None and why there is none."""
    if settings.sandbox == "none":
        return "none", 'commands are not confined: config/org.json shell.sandbox is "none"'
    if sys.platform != "linux":
        return None, f"there is no sandbox for {sys.platform}"
    candidates: tuple[Mode, ...] = (
        ("bwrap", "landlock") if settings.sandbox == "auto" else (settings.sandbox,)
    )
    reasons = []
    for mode in candidates:
        works, detail = _try(mode)
        if works:
            return mode, detail
        reasons.append(f"{mode}: {detail}")
    return None, "; ".join(reasons)


def _why_disabled(settings: ShellSettings) -> str:
    if settings.sandbox == "auto":
        return NO_SANDBOX
    return f'shell is disabled: shell.sandbox "{settings.sandbox}" of config/org.json does not work here'


@cache
def _try(mode: Mode) -> tuple[bool, str]:
    """Run nothing in a sandbox of this kind; return whether that works, and the walls or the reason."""
    if mode == "bwrap" and _bubblewrap() is None:
        return False, "bubblewrap is not installed"
    try:
        outcome = _run(_order(mode, ":", None, ShellSettings(timeout_s=10.0)), 2000)
    except ToolError as error:
        return False, error.message
    if outcome.verdict.ended == "exit" and outcome.verdict.status == 0:
        return True, outcome.verdict.walls
    return False, outcome.output.decode("utf-8", "replace").strip() or str(outcome.verdict)


def _bubblewrap() -> str | None:
    return shutil.which("bwrap", path=PATH)


# --- what is refused beforehand ------------------------------------------------------------------


def _refuse_readable_org(base: Path) -> None:
    from lemming.capabilities.sandbox.walls import SYSTEM_FOLDERS

    for folder in SYSTEM_FOLDERS:
        if base.resolve().is_relative_to(Path(folder).resolve()):
            raise PermissionDenied(
                f"shell: the organisation lies below {folder}, which every command may read",
                hint="move the organisation elsewhere",
            )


@looking
def _survey(workspace: Path, *, refuse_links: bool) -> FolderSize:
    """Return what the workspace holds; raise if a file in it has another name outside.

    No sandbox stops a hard link. Those between files of the workspace are fine.
    """
    usage = FolderSize()
    names: Counter[tuple[int, int]] = Counter()
    linked: dict[tuple[int, int], tuple[str, int]] = {}
    for entry in quota.walk(str(workspace)):
        usage, status = quota.add(usage, entry), entry.status
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            identity = status.st_dev, status.st_ino
            names[identity] += 1
            linked[identity] = entry.path, status.st_nlink
    for identity, (path, links) in linked.items():
        if refuse_links and names[identity] < links:
            raise PermissionDenied(
                f'shell: linked file refused: "{path}" has another name outside the workspace'
            )
    return usage


# --- running -------------------------------------------------------------------------------------


def _order(mode: Mode, command: str, workspace: str | None, settings: ShellSettings) -> Order:
    shell = ["/bin/sh", "-c", command]
    home = workspace or "/"
    environment = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": home, "TMPDIR": f"{home}/{confine.TEMPORARY}"}
    argv = [*_bubblewrap_argv(workspace), *shell] if mode == "bwrap" else shell
    return Order(mode, argv, environment, workspace, settings.timeout_s, settings.max_memory_bytes, ())


def _bubblewrap_argv(workspace: str | None) -> list[str]:
    from lemming.capabilities.sandbox.walls import SYSTEM_FILES, SYSTEM_FOLDERS

    argv = [_bubblewrap() or "bwrap", *_BUBBLEWRAP, "--seccomp", str(confine.SECCOMP_DESCRIPTOR)]
    for folder in SYSTEM_FOLDERS:
        if os.path.islink(folder):
            argv += ["--symlink", os.readlink(folder), folder]
        else:
            argv += ["--ro-bind-try", folder, folder]
    for file in SYSTEM_FILES:
        argv += ["--ro-bind-try", file, file]
    argv += _memory_folders()
    argv += ["--bind", workspace, workspace, "--chdir", workspace] if workspace else []
    # Read-only last, once everything has its place below it.
    return [*argv, *("--remount-ro", "/dev", "--remount-ro", "/"), "--"]


@cache
def _memory_folders() -> Sequence[str]:
    """Return what makes folders in memory, small ones; where bubblewrap cannot limit them, none."""
    said = subprocess.run([_bubblewrap() or "bwrap", "--help"], capture_output=True, check=False).stdout
    if b"--size" not in said:
        return ["--dir", "/tmp"]  # noqa: S108 - inside the sandbox
    size = ("--size", str(_MEMORY_FOLDER_BYTES), "--tmpfs")
    return [*size, "/tmp", *size, "/dev/shm"]  # noqa: S108 - inside the sandbox


def _run(order: Order, max_output_bytes: int) -> CommandResult:
    deadline = Deadline(order.timeout_s + _GRACE_S)
    with _start_launcher() as launcher:
        assert launcher.stdin is not None
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # it died at once: there will be no verdict
                launcher.stdin.write(json.dumps(order._asdict()).encode() + b"\n")
                launcher.stdin.flush()
            # The output first: it may fill its pipe and hold up the command, the verdict's one line cannot.
            output, output_bytes = _collect(launcher.stderr.fileno(), max_output_bytes, deadline)
            verdict, _ = _collect(launcher.stdout.fileno(), 1 << 16, deadline)
        finally:
            _end(launcher)
    return CommandResult(_read_verdict(verdict, output), output, output_bytes)


def _start_launcher() -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", confine.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": PATH, "LANG": "C.UTF-8"},
            cwd="/",  # a command's folder is entered by the launcher, behind the walls
            start_new_session=True,  # Ctrl-C is for the engine, which then closes the launcher's input
        )
    except OSError as error:
        raise ToolError(f"shell: the launcher of commands cannot be started: {error}") from error


def _collect(descriptor: int, limit_bytes: int, deadline: Deadline) -> tuple[bytes, int]:
    """Read to the end, or to the deadline; keep the first bytes and count all."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    kept, total = bytearray(), 0
    while not deadline.has_passed:
        if poll.poll(1000 * deadline.remaining()):
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                break
            total += len(chunk)
            kept += chunk[: limit_bytes - len(kept)]
    return bytes(kept), total


def _end(launcher: subprocess.Popen[bytes]) -> None:
    """Close the launcher's input, at which it ends the command and itself; end it if it does not."""
    with contextlib.suppress(BrokenPipeError):
        cast(IO[bytes], launcher.stdin).close()
    try:
        launcher.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        launcher.kill()


def _read_verdict(line: bytes, output: bytes) -> Verdict:
    try:
        verdict = Verdict(**json.loads(line))
    except ValueError as error:
        said = output[-500:].decode("utf-8", "replace").strip()
        raise ToolError(f"shell: the launcher of commands failed: {said or 'it said nothing'}") from error
    if verdict.ended == "refused":
        raise ToolError(f"shell: the sandbox cannot be built: {verdict.walls}")
    return verdict
