"""Run a shell command in a sandbox, or refuse to run: the sandbox is never weakened silently.

`config/org.json shell.sandbox` selects the sandbox. A trial run verifies the choice once. The sandbox
launcher sets up the sandbox and supervises the command.
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

from lemming.kernel.base.blocking_deadline import Deadline
from lemming.kernel.base.errors import PermissionDenied, ToolError
from lemming.kernel.files import fs, quota
from lemming.kernel.files.disk_errors import raises_disk_error
from lemming.kernel.files.quota import FolderSize
from lemming.kernel.org.config import OrgSettings
from lemming.libraries.sandbox import sandbox_launcher as confine
from lemming.libraries.sandbox.sandbox_launcher import LaunchResult, Mode, SandboxCommand
from lemming.libraries.sandbox.sandbox_settings import ShellSettings, get_shell_settings

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NO_SANDBOX = "shell is disabled: no sandbox on this system (needs Linux >= 5.13 or bubblewrap); see `lemming doctor`"
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
    """The end of a command, and the first part of its output (`output_bytes` in total)."""

    verdict: LaunchResult
    output: bytes
    output_bytes: int


def get_sandbox_status(settings: OrgSettings) -> tuple[str, str]:
    """Return the name and the description of the shell tool's sandbox on this system, for display.

    The name is "bwrap", "landlock", "none" (not confined, as configured) or "off" (the tool refuses to run).
    """
    mode, detail = _choose_mode(get_shell_settings(settings))
    return mode or "off", detail


def run_confined(command: str, base: Path, workspace: str, settings: OrgSettings) -> CommandResult:
    """Run a command in a folder of the organisation until the command ends or reaches a limit.

    The folder is created if needed. Raises `ToolError` without a sandbox, `PermissionDenied` if the folder
    contains a link to the outside.
    """
    shell_settings = get_shell_settings(settings)
    mode, detail = _choose_mode(shell_settings)
    if mode is None:
        unusable = f'shell is disabled: shell.sandbox "{shell_settings.sandbox}" of config/org.json does not work here'
        raise ToolError(NO_SANDBOX if shell_settings.sandbox == "auto" else unusable, hint=detail)
    if mode != "none":
        _require_unreadable_org(base)
    fs.make_folder(base, workspace)
    folder = base.resolve() / workspace
    usage = _measure_workspace(folder, refuse_links=mode != "none")
    sandbox_command = _build_command(mode, command, str(folder), shell_settings)
    limits = FolderSize(settings.quota.max_bytes, settings.quota.max_files, quota.DEPTH_LIMIT)
    # A workspace over its quota may keep its size, or no command could tidy it up.
    return _run_launcher(sandbox_command._replace(max_usage=limits.maximum(usage)), shell_settings.max_output_bytes)


# --- which sandbox -------------------------------------------------------------------------------


def _choose_mode(settings: ShellSettings) -> tuple[Mode | None, str]:
    """Return the sandbox mode and its description, or None and the reason no sandbox works."""
    if settings.sandbox == "none":
        return "none", 'commands are not confined: config/org.json shell.sandbox is "none"'
    if sys.platform != "linux":
        return None, f"there is no sandbox for {sys.platform}"
    candidates: tuple[Mode, ...] = ("bwrap", "landlock") if settings.sandbox == "auto" else (settings.sandbox,)
    reasons = []
    for mode in candidates:
        works, detail = _probe_mode(mode)
        if works:
            return mode, detail
        reasons.append(f"{mode}: {detail}")
    return None, "; ".join(reasons)


@cache
def _probe_mode(mode: Mode) -> tuple[bool, str]:
    """Run an empty command in a sandbox. Return True and the description, or False and the reason."""
    if mode == "bwrap" and find_bubblewrap() is None:
        return False, "bubblewrap is not installed"
    try:
        outcome = _run_launcher(_build_command(mode, ":", None, ShellSettings(timeout_s=10.0)), 2000)
    except ToolError as error:
        return False, error.message
    if outcome.verdict.ended == "exit" and outcome.verdict.status == 0:
        return True, outcome.verdict.walls
    return False, outcome.output.decode("utf-8", "replace").strip() or str(outcome.verdict)


def find_bubblewrap() -> str | None:
    """Return the path of bubblewrap in the system's folders, or None."""
    return shutil.which("bwrap", path=PATH)


# --- refusals before the start --------------------------------------------------------------------


def _require_unreadable_org(base: Path) -> None:
    from lemming.libraries.sandbox.sandbox_policy import SYSTEM_FOLDERS

    for folder in SYSTEM_FOLDERS:
        if base.resolve().is_relative_to(Path(folder).resolve()):
            raise PermissionDenied(
                f"shell: the organisation lies below {folder}, which every command may read",
                hint="move the organisation elsewhere",
            )


@raises_disk_error
def _measure_workspace(workspace: Path, *, refuse_links: bool) -> FolderSize:
    """Return the size of the workspace. Raise if a file inside has a hard link outside.

    No sandbox stops a hard link. Hard links between files of the workspace are permitted.
    """
    usage = FolderSize()
    names: Counter[tuple[int, int]] = Counter()
    linked: dict[tuple[int, int], tuple[str, int]] = {}
    for entry in quota.walk(str(workspace)):
        usage, status = quota.add_entry(usage, entry), entry.status
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            identity = status.st_dev, status.st_ino
            names[identity] += 1
            linked[identity] = entry.path, status.st_nlink
    for identity, (path, links) in linked.items():
        if refuse_links and names[identity] < links:
            raise PermissionDenied(f'shell: linked file refused: "{path}" has another name outside the workspace')
    return usage


# --- running -------------------------------------------------------------------------------------


def _build_command(mode: Mode, command: str, workspace: str | None, settings: ShellSettings) -> SandboxCommand:
    shell = ["/bin/sh", "-c", command]
    home = workspace or "/"
    # Built from nothing: the environment of the engine holds keys.
    environment = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": home, "TMPDIR": f"{home}/{confine.TEMPORARY}"}
    argv = [*_build_bubblewrap_argv(workspace), *shell] if mode == "bwrap" else shell
    return SandboxCommand(mode, argv, environment, workspace, settings.timeout_s, settings.max_memory_bytes, ())


def _build_bubblewrap_argv(workspace: str | None) -> list[str]:
    from lemming.libraries.sandbox.sandbox_policy import list_system_mounts

    seccomp = ("--seccomp", str(confine.SECCOMP_DESCRIPTOR))
    argv = [find_bubblewrap() or "bwrap", *_BUBBLEWRAP, *seccomp, *list_system_mounts()]
    argv += _tmpfs_arguments()
    argv += ["--bind", workspace, workspace, "--chdir", workspace] if workspace else []
    # Read-only last, once everything has its place below it.
    return [*argv, *("--remount-ro", "/dev", "--remount-ro", "/"), "--"]


@cache
def _tmpfs_arguments() -> Sequence[str]:
    """Return the bubblewrap arguments for small folders in memory, or for plain folders without a size limit."""
    help_text = subprocess.run([find_bubblewrap() or "bwrap", "--help"], capture_output=True, check=False).stdout
    if b"--size" not in help_text:
        return ["--dir", "/tmp"]  # noqa: S108 - inside the sandbox
    size = ("--size", str(_MEMORY_FOLDER_BYTES), "--tmpfs")
    return [*size, "/tmp", *size, "/dev/shm"]  # noqa: S108 - inside the sandbox


def _run_launcher(sandbox_command: SandboxCommand, max_output_bytes: int) -> CommandResult:
    deadline = Deadline(sandbox_command.timeout_s + _GRACE_S)
    with _start_launcher() as launcher:
        assert launcher.stdin is not None
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # it died at once: no result will come
                launcher.stdin.write(json.dumps(sandbox_command._asdict()).encode() + b"\n")
                launcher.stdin.flush()
            # The output first: if it fills its pipe, the command stops; the one line of the result cannot.
            output, output_bytes = _read_bounded(launcher.stderr.fileno(), max_output_bytes, deadline)
            result_line, _ = _read_bounded(launcher.stdout.fileno(), 1 << 16, deadline)
        finally:
            _stop_launcher(launcher)
    return CommandResult(_parse_result(result_line, output), output, output_bytes)


def _start_launcher() -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", confine.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": PATH, "LANG": "C.UTF-8"},
            cwd="/",  # the launcher enters the command's folder
            start_new_session=True,  # Ctrl-C is for the engine, which then closes the launcher's input
        )
    except OSError as error:
        raise ToolError(f"shell: the launcher of commands cannot be started: {error}") from error


def _read_bounded(descriptor: int, limit_bytes: int, deadline: Deadline) -> tuple[bytes, int]:
    """Read to the end or to the deadline. Keep the first bytes and count all bytes."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    content, total = bytearray(), 0
    while not deadline.has_passed:
        if poll.poll(1000 * deadline.remaining()):
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                break
            total += len(chunk)
            content += chunk[: limit_bytes - len(content)]
    return bytes(content), total


def _stop_launcher(launcher: subprocess.Popen[bytes]) -> None:
    """Close the launcher's input, which ends the command and the launcher. Kill the launcher after a timeout."""
    with contextlib.suppress(BrokenPipeError):
        cast(IO[bytes], launcher.stdin).close()
    try:
        launcher.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        launcher.kill()


def _parse_result(line: bytes, output: bytes) -> LaunchResult:
    try:
        launch_result = LaunchResult(**json.loads(line))
    except ValueError as error:
        error_text = output[-500:].decode("utf-8", "replace").strip()
        raise ToolError(f"shell: the launcher of commands failed: {error_text or 'it said nothing'}") from error
    if launch_result.ended == "refused":
        raise ToolError(f"shell: the sandbox cannot be built: {launch_result.walls}")
    return launch_result
