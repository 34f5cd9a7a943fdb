"""Confine one process with the kernel's means: Landlock, seccomp, namespaces, capabilities. Linux only.

Runs in the launcher before the command starts: standard library only, and every refusal of the kernel is an
`OSError`. Numbers are the kernel's: `linux/prctl.h`, `linux/landlock.h`, `linux/mount.h`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from typing import Any

from lemming.libraries.sandbox.seccomp import build_filter

SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

_libc = ctypes.CDLL(None, use_errno=True)


def _check_result(result: int, operation: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{operation}: {os.strerror(number)}")
    return result


def _call_syscall(name: str, number: int, *arguments: Any) -> int:
    longs = (ctypes.c_long(item) if isinstance(item, int) else item for item in arguments)
    return _check_result(_libc.syscall(ctypes.c_long(number), *longs), name)


def _call_prctl(option_name: str, option: int, *arguments: Any) -> int:
    longs = [ctypes.c_ulong(item) if isinstance(item, int) else item for item in arguments]
    padding = [ctypes.c_ulong(0)] * (4 - len(longs))
    return _check_result(_libc.prctl(ctypes.c_int(option), *longs, *padding), f"prctl {option_name}")


# --- one process -------------------------------------------------------------------------------


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends (`PR_SET_PDEATHSIG`)."""
    _call_prctl("PR_SET_PDEATHSIG", 1, 9)


def set_no_new_privileges() -> None:
    """Block privileges from set-uid programs (`PR_SET_NO_NEW_PRIVS`), as required by seccomp and Landlock."""
    _call_prctl("PR_SET_NO_NEW_PRIVS", 38, 1)


def drop_capabilities() -> None:
    """Drop every capability, which removes the privileges of root."""
    with contextlib.suppress(OSError):  # EPERM: nothing to drop; EINVAL: beyond the last capability
        for capability in range(64):
            _call_prctl("PR_CAPBSET_DROP", 24, capability)
    header = struct.pack("Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    _check_result(_libc.capset(header, bytes(24)), "capset")


def switch_user(uid: int, gid: int) -> None:
    """Switch to another user permanently. Needs root."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _call_prctl("PR_SET_DUMPABLE", 4, 1)  # otherwise /proc/self still belongs to root, and no namespace can be created


def pipe_seccomp_program(*, in_namespaces: bool = False) -> int:
    """Return a descriptor from which bubblewrap reads the filter."""
    read_end, write_end = os.pipe()
    os.write(write_end, build_filter(os.uname().machine, also_metadata=False, in_namespaces=in_namespaces))
    os.close(write_end)
    return read_end


def list_system_mounts() -> list[str]:
    """Return the bubblewrap arguments that show the system's programs, read-only."""
    arguments: list[str] = []
    for path in (*SYSTEM_FOLDERS, *SYSTEM_FILES):
        is_link = path in SYSTEM_FOLDERS and os.path.islink(path)
        arguments += ("--symlink", os.readlink(path), path) if is_link else ("--ro-bind-try", path, path)
    return arguments


def enter_seccomp(program: bytes) -> None:
    """Apply the filter to this process and its children."""
    instructions = ctypes.create_string_buffer(program, len(program))
    filter_struct = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    _call_prctl("PR_SET_SECCOMP", 22, 2, filter_struct)


# --- namespaces --------------------------------------------------------------------------------

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID = 0x00020000, 0x08000000, 0x10000000, 0x20000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1


def enter_namespaces(workspace: str | None) -> bool:
    """Make the file system read-only except the workspace, in new namespaces.

    Return False if the system forbids namespaces.

    The next child becomes the first process of a new process tree. The gaps of Landlock (chmod, chown, utime;
    signals before ABI 6) are closed by these namespaces, or else by seccomp.
    """
    uid, gid = os.getuid(), os.getgid()
    try:
        _call_unshare(_NEWNS | _NEWIPC | _NEWPID | (0 if uid == 0 else _NEWUSER))
        if uid:
            _map_user(uid, gid)
        # Private, so that no change that follows is seen outside.
        _call_mount(None, "/", _MS_REC | _MS_PRIVATE)
        _set_mount("/", read_only=True)
    except OSError:  # no privilege, or user namespaces are switched off here
        return False
    # Not within the `try`: `/` is read-only by now and stays so, and a failure must refuse the command.
    _make_writable(workspace)
    return True


def protect_devices(*writable: str | None) -> None:
    """Make `/dev` read-only for this process and its children, except `writable` folders below it.

    Writes to devices still work.

    Needs root, and is meant for root: bubblewrap's `/dev/null` belongs to the machine, and the owner of a
    file may change its mode without any capability.
    """
    _call_unshare(_NEWNS)
    _call_mount(None, "/", _MS_REC | _MS_PRIVATE)
    _call_mount("/dev", "/dev", _MS_BIND | _MS_REC)
    _set_mount("/dev", read_only=True)
    for folder in writable:
        _make_writable(folder)


def _make_writable(workspace: str | None) -> None:
    if workspace is not None:
        _call_mount(workspace, workspace, _MS_BIND | _MS_REC)
        _set_mount(workspace, read_only=False)


def _call_unshare(flags: int) -> None:
    _check_result(_libc.unshare(ctypes.c_int(flags)), "unshare")


def _map_user(uid: int, gid: int) -> None:
    # `setgroups` first: before that the kernel takes no `gid_map` from an unprivileged process.
    for file, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        descriptor = os.open(f"/proc/self/{file}", os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _call_mount(source: str | None, target: str, flags: int) -> None:
    origin = None if source is None else os.fsencode(source)
    _check_result(_libc.mount(origin, os.fsencode(target), None, ctypes.c_ulong(flags), None), f"mount {target}")


def _set_mount(path: str, *, read_only: bool) -> None:
    added, removed = (_MOUNT_ATTR_RDONLY, 0) if read_only else (0, _MOUNT_ATTR_RDONLY)
    attributes = struct.pack("QQQQ", added, removed, 0, 0)
    _call_syscall("mount_setattr", 442, _AT_FDCWD, os.fsencode(path), _AT_RECURSIVE, attributes, len(attributes))


# --- Landlock ----------------------------------------------------------------------------------

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK, _TRUNCATE, _IOCTL_DEV = 1 << 6, 1 << 9, 1 << 11, 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
ABI_OF_SIGNALS = 6  # the first that confines signals
_RIGHTS_SINCE = {1: 13, 2: 14, 3: 15, 5: 16}  # ABI version: the number of file rights it knows


def get_landlock_abi() -> int:
    """Return the Landlock version of this kernel, or 0 without Landlock."""
    try:
        return _call_syscall("landlock_create_ruleset", 444, None, 0, 1)
    except OSError:
        return 0


def enter_landlock(workspace: str | None) -> None:
    """Deny access to all files except the system's programs (read, execute) and the workspace (full access).

    Also deny TCP (ABI 4), and abstract sockets and signals to the outside (ABI 6), if the kernel supports
    this.
    """
    abi = get_landlock_abi()
    # The kernel refuses a ruleset with rights that it does not know.
    rights = (1 << max(count for since, count in _RIGHTS_SINCE.items() if since <= abi)) - 1
    attributes = struct.pack("QQQ", rights, 0b11 if abi >= 4 else 0, 0b11 if abi >= ABI_OF_SIGNALS else 0)
    size = 24 if abi >= ABI_OF_SIGNALS else 16 if abi >= 4 else 8
    ruleset = _call_syscall("landlock_create_ruleset", 444, attributes, size, 0)
    for path in (*SYSTEM_FOLDERS, *SYSTEM_FILES):
        _allow_path(ruleset, path, _EXECUTE | _READ_FILE | _READ_DIR)
    for path in DEVICES:
        _allow_path(ruleset, path, _READ_FILE | _WRITE_FILE)
    if workspace is not None:
        # Devices are a way to the machine, and sockets one to other processes.
        _allow_path(ruleset, workspace, rights & ~(_MAKE_CHAR | _MAKE_BLOCK | _MAKE_SOCK | _IOCTL_DEV))
    _call_syscall("landlock_restrict_self", 446, ruleset, 0)
    os.close(ruleset)


def _allow_path(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not os.path.isdir(path):  # the kernel refuses the rights of folders for a file
        rights &= _FILE_RIGHTS
    rule = struct.pack("=Qi", rights, descriptor)
    _call_syscall("landlock_add_rule", 445, ruleset, 1, rule, 0)
    os.close(descriptor)
