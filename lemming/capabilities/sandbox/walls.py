"""The kernel's walls around one process: Landlock, seccomp, namespaces, capabilities. Linux only.

Runs in the launcher, between its start and the command's: standard library only, and every refusal of
the kernel is an `OSError`. Numbers are the kernel's: `linux/prctl.h`, `linux/landlock.h`, `linux/mount.h`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from typing import Any

from lemming.capabilities.sandbox.seccomp import program_for

SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _syscall(name: str, number: int, *arguments: Any) -> int:
    longs = (ctypes.c_long(item) if isinstance(item, int) else item for item in arguments)
    return _checked(_libc.syscall(ctypes.c_long(number), *longs), name)


def _prctl(what: str, option: int, *arguments: Any) -> int:
    longs = [ctypes.c_ulong(item) if isinstance(item, int) else item for item in arguments]
    padding = [ctypes.c_ulong(0)] * (4 - len(longs))
    return _checked(_libc.prctl(ctypes.c_int(option), *longs, *padding), f"prctl {what}")


# --- one process -------------------------------------------------------------------------------


def die_with_parent() -> None:
    """Be killed when the parent ends (`PR_SET_PDEATHSIG`)."""
    _prctl("PR_SET_PDEATHSIG", 1, 9)


def gain_nothing() -> None:
    """Give up what a set-uid program would grant (`PR_SET_NO_NEW_PRIVS`); seccomp and Landlock need it."""
    _prctl("PR_SET_NO_NEW_PRIVS", 38, 1)


def drop_capabilities() -> None:
    """Give up every capability, so that root is nobody special."""
    with contextlib.suppress(OSError):  # EPERM: nothing to drop; EINVAL: beyond the last capability
        for capability in range(64):
            _prctl("PR_CAPBSET_DROP", 24, capability)
    header = struct.pack("Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    _checked(_libc.capset(header, bytes(24)), "capset")


def become(uid: int, gid: int) -> None:
    """Become another user for good. Needs root."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _prctl("PR_SET_DUMPABLE", 4, 1)  # else /proc/self still belongs to root, and no namespace can be made


def seccomp_program(*, also_metadata: bool, also_signals: bool = False) -> bytes:
    """Return the filter of system calls for this machine."""
    return program_for(os.uname().machine, also_metadata=also_metadata, also_signals=also_signals)


def enter_seccomp(program: bytes) -> None:
    """Put the filter on this process and all it starts."""
    instructions = ctypes.create_string_buffer(program, len(program))
    filter_of = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    _prctl("PR_SET_SECCOMP", 22, 2, filter_of)


# --- namespaces --------------------------------------------------------------------------------

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID = 0x00020000, 0x08000000, 0x10000000, 0x20000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1


def enter_namespaces(workspace: str | None) -> bool:
    """Make the whole file system read-only but the workspace, and the next child the first of its own
    process tree; return whether the system allowed it.

    What Landlock leaves open (chmod, chown, utime; signals before ABI 6) is closed by this, or by seccomp.
    """
    uid, gid = os.getuid(), os.getgid()
    try:
        _unshare(_NEWNS | _NEWIPC | _NEWPID | (0 if uid == 0 else _NEWUSER))
        if uid:
            _map_user(uid, gid)
        # Private, so that no change that follows is seen outside.
        _mount(None, "/", _MS_REC | _MS_PRIVATE)
        _set_mount("/", read_only=True)
    except OSError:  # no privilege, or user namespaces are switched off here
        return False
    # Not within the `try`: `/` is read-only by now and stays so, and a failure must refuse the command.
    _make_writable(workspace)
    return True


def protect_devices(workspace: str | None) -> None:
    """Make `/dev` read-only for this process and all it starts; devices can be written to as before.

    Needs root, and is for root: bubblewrap's `/dev/null` is the machine's own, and whoever owns a file
    may change its mode without any capability.
    """
    _unshare(_NEWNS)
    _mount(None, "/", _MS_REC | _MS_PRIVATE)
    _mount("/dev", "/dev", _MS_BIND | _MS_REC)
    _set_mount("/dev", read_only=True)
    _make_writable(workspace)


def _make_writable(workspace: str | None) -> None:
    if workspace is not None:
        _mount(workspace, workspace, _MS_BIND | _MS_REC)
        _set_mount(workspace, read_only=False)


def _unshare(flags: int) -> None:
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def _map_user(uid: int, gid: int) -> None:
    # `setgroups` first: before that the kernel takes no `gid_map` from an unprivileged process.
    for file, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        descriptor = os.open(f"/proc/self/{file}", os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _mount(source: str | None, target: str, flags: int) -> None:
    origin = None if source is None else os.fsencode(source)
    _checked(_libc.mount(origin, os.fsencode(target), None, ctypes.c_ulong(flags), None), f"mount {target}")


def _set_mount(path: str, *, read_only: bool) -> None:
    added, removed = (_MOUNT_ATTR_RDONLY, 0) if read_only else (0, _MOUNT_ATTR_RDONLY)
    attributes = struct.pack("QQQQ", added, removed, 0, 0)
    _syscall("mount_setattr", 442, _AT_FDCWD, os.fsencode(path), _AT_RECURSIVE, attributes, len(attributes))


# --- Landlock ----------------------------------------------------------------------------------

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK, _TRUNCATE, _IOCTL_DEV = 1 << 6, 1 << 9, 1 << 11, 1 << 14, 1 << 15
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
ABI_OF_SIGNALS = 6  # the first that keeps signals in
_RIGHTS_SINCE = {1: 13, 2: 14, 3: 15, 5: 16}  # ABI: how many of the rights on files it knows


def landlock_abi() -> int:
    """Return the version of Landlock here; 0 when the kernel has none or it is switched off."""
    try:
        return _syscall("landlock_create_ruleset", 444, None, 0, 1)
    except OSError:
        return 0


def enter_landlock(workspace: str | None) -> None:
    """Close every file but the system's programs (to read and run) and the workspace (to do as it likes).

    Also TCP (ABI 4), abstract sockets and signals to the outside (ABI 6), where the kernel can.
    """
    abi = landlock_abi()
    rights = (1 << max(count for since, count in _RIGHTS_SINCE.items() if since <= abi)) - 1
    attributes = struct.pack("QQQ", rights, 0b11 if abi >= 4 else 0, 0b11 if abi >= ABI_OF_SIGNALS else 0)
    size = 24 if abi >= ABI_OF_SIGNALS else 16 if abi >= 4 else 8
    ruleset = _syscall("landlock_create_ruleset", 444, attributes, size, 0)
    for path in (*SYSTEM_FOLDERS, *SYSTEM_FILES):
        _allow(ruleset, path, _EXECUTE | _READ_FILE | _READ_DIR)
    for path in DEVICES:
        _allow(ruleset, path, _READ_FILE | _WRITE_FILE)
    if workspace is not None:
        # Devices are a way to the machine, and sockets one to other processes.
        _allow(ruleset, workspace, rights & ~(_MAKE_CHAR | _MAKE_BLOCK | _MAKE_SOCK | _IOCTL_DEV))
    _syscall("landlock_restrict_self", 446, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not os.path.isdir(path):  # the kernel refuses the rights of folders for a file
        rights &= _OF_A_FILE
    rule = struct.pack("=Qi", rights, descriptor)
    _syscall("landlock_add_rule", 445, ruleset, 1, rule, 0)
    os.close(descriptor)
