"""Build the seccomp filter for a command's system calls, as the kernel's bytecode. Pure.

Numbers are the kernel's: `asm/unistd.h`, `linux/seccomp.h`, `linux/filter.h`, `linux/sched.h`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# `socket`, because Landlock covers neither UDP nor Unix sockets by path; `io_uring`, because its operations
# pass by every filter of system calls.
# Each name with its number on x86_64 and on aarch64; None where there is no such call.
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438), "kcmp": (312, 272), "mount": (165, 40),
    "umount2": (166, 39), "chroot": (161, 51), "pivot_root": (155, 41), "move_mount": (429, 429),
    "open_tree": (428, 428), "open_tree_attr": (467, 467), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "unshare": (272, 97),
    "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "open_by_handle_at": (304, 265), "swapon": (167, 224),
    "swapoff": (168, 225), "reboot": (169, 142), "sethostname": (170, 161), "setdomainname": (171, 162),
    "syslog": (103, 116), "quotactl": (179, 60), "quotactl_fd": (443, 443), "acct": (163, 89),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "iopl": (172, None), "ioperm": (173, None), "shmget": (29, 194),
    "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191),
    "semtimedop": (220, 192), "mq_open": (240, 180), "mq_unlink": (241, 181), "fanotify_init": (300, 262),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "memfd_secret": (447, 447),
    "memfd_create": (319, 279), "statmount": (457, 457), "listmount": (458, 458),
}  # fmt: skip

# Network and IPC namespaces confine these, and ordinary programs use them.
_CONFINED_BY_NAMESPACES = {
    "socket", "shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv", "msgctl", "semget", "semop", "semctl",
    "semtimedop", "mq_open", "mq_unlink", "memfd_create",
}  # fmt: skip

# Landlock does not cover these: a command could change them for any file of the same user.
_METADATA: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "removexattrat": (466, 466), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "file_setattr": (469, 469),
}  # fmt: skip

# Allowed with certain arguments only: their positions and values. Where a process is named, 0 is the caller.
_ALLOWED_WITH: dict[str, tuple[tuple[int, int], dict[int, int]]] = {
    "prlimit64": ((302, 261), {0: 0}), "sched_setaffinity": ((203, 122), {0: 0}),
    "sched_setparam": ((142, 118), {0: 0}), "sched_setscheduler": ((144, 119), {0: 0}),
    "sched_setattr": ((314, 274), {0: 0}), "setpriority": ((141, 140), {0: 0, 1: 0}),
    "ioprio_set": ((251, 30), {0: 1, 1: 0}), "migrate_pages": ((256, 238), {0: 0}),
    "move_pages": ((279, 239), {0: 0}),
}  # fmt: skip

# Denied with certain arguments: the commands that send signals or a scheduling cookie to any process.
_DENIED_WITH: dict[str, tuple[tuple[int, int], dict[int, tuple[int, ...]]]] = {
    "fcntl": ((72, 25), {1: (8, 10, 15)}),  # F_SETOWN, F_SETSIG, F_SETOWN_EX
    "prctl": ((157, 167), {0: (62,)}),  # PR_SCHED_CORE
}

# Denied if each of these arguments has one of its bits: a file with such a mode runs with its owner's rights, whoever
# on the machine starts it.
_SET_ID, _CREATES = 0o6000, 0o20000100
_DENIED_BITS: dict[str, tuple[tuple[int | None, int | None], dict[int, int]]] = {
    "chmod": ((90, None), {1: _SET_ID}), "fchmod": ((91, 52), {1: _SET_ID}), "fchmodat": ((268, 53), {2: _SET_ID}),
    "fchmodat2": ((452, 452), {2: _SET_ID}), "creat": ((85, None), {1: _SET_ID}), "mknod": ((133, None), {1: _SET_ID}),
    "mknodat": ((259, 33), {2: _SET_ID}), "open": ((2, None), {1: _CREATES, 2: _SET_ID}),
    "openat": ((257, 56), {2: _CREATES, 3: _SET_ID}),
}  # fmt: skip

# Signals, unless a namespace confines them; kill(0) is for the caller's own group.
_SIGNALS: dict[str, tuple[int | None, int | None]] = {
    "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
}  # fmt: skip
_KILL_ALLOWED_WITH = {"kill": ((62, 129), {0: 0})}

_CLONE, _CLONE3, _OPENAT2, _UTIMENSAT = {"x86_64": 56, "aarch64": 220}, 435, 437, {"x86_64": 280, "aarch64": 88}
_NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW* flag
_X32 = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, (16, 24, 32, 40)  # offsets in struct seccomp_data, lower half first
_KILL, _ALLOW, _EACCES, _EPERM, _ENOSYS = 0x80000000, 0x7FFF0000, 0x0005000D, 0x00050001, 0x00050026


def build_filter(
    machine: str, *, also_metadata: bool, also_signals: bool = False, in_namespaces: bool = False
) -> bytes:
    """Return the filter as the kernel's array of instructions. Raise `OSError` for an unknown machine.

    The filter denies sockets, access to other processes, new namespaces, mounts and set-uid files. With `also_metadata` the
    filter also denies changes of a file's mode, owner or times, and with `also_signals` signals to other
    processes. With `in_namespaces` it allows sockets and shared memory, which namespaces of the caller confine.
    """
    if machine not in _ARCHITECTURES:
        raise OSError(f"no seccomp filter is known for {machine}")
    column = list(_ARCHITECTURES).index(machine)
    denied = _DENIED | (_METADATA if also_metadata else {}) | (_SIGNALS if also_signals else {})
    allowed = _CONFINED_BY_NAMESPACES if in_namespaces else frozenset[str]()
    denied = {name: pair for name, pair in denied.items() if name not in allowed}
    numbers = sorted(number for pair in denied.values() if (number := pair[column]) is not None)
    allowed_with = _ALLOWED_WITH | (_KILL_ALLOWED_WITH if also_signals else {})
    return b"".join(
        (
            *_require_architecture(_ARCHITECTURES[machine]),
            *(instruction for number in numbers for instruction in _deny_syscall(number)),
            *(
                step
                for pair, values in allowed_with.values()
                for step in _if_all(pair[column], _EQUAL, values, result=_ALLOW, otherwise=_EACCES)
            ),
            *(step for pair, values in _DENIED_WITH.values() for step in _deny_values(pair[column], values)),
            *(
                step
                for pair, masks in _DENIED_BITS.values()
                for step in _if_all(pair[column], _ANY_BIT, masks, result=_EPERM, otherwise=_ALLOW)
            ),
            *(_allow_utimens_on_descriptors(_UTIMENSAT[machine]) if also_metadata else ()),
            *_deny_new_namespaces(_CLONE[machine]),
            _instruction(_RETURN, _ALLOW),
        )
    )


def _instruction(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    """Return one instruction. A jump skips `if_so` instructions on success and `if_not` on failure."""
    return struct.pack("HBBI", code, if_so, if_not, value)


def _require_architecture(architecture: int) -> Iterable[bytes]:
    yield _instruction(_LOAD, _ARCHITECTURE)
    yield _instruction(_EQUAL, architecture, 1, 0)
    yield _instruction(_RETURN, _KILL)  # a program for another architecture has other numbers for its calls
    yield _instruction(_LOAD, _NUMBER)
    yield _instruction(_AT_LEAST, _X32, 0, 1)  # x32 has the same calls under other numbers
    yield _instruction(_RETURN, _KILL)


def _deny_syscall(loaded: int) -> Iterable[bytes]:
    yield _instruction(_EQUAL, loaded, 0, 1)
    yield _instruction(_RETURN, _EACCES)


def _if_all(number: int | None, test: int, operands: dict[int, int], *, result: int, otherwise: int) -> Iterable[bytes]:
    """End a call with `result` if each argument (an int, half a register) passes its test, else with `otherwise`."""
    steps: list[bytes] = []
    for position, operand in operands.items():
        steps.append(_instruction(_LOAD, _ARGUMENTS[position]))
        steps.append(_instruction(test, operand, 1, 0))
        steps.append(_instruction(_RETURN, otherwise))
    return () if number is None else _if_syscall(number, [*steps, _instruction(_RETURN, result)])


def _deny_values(number: int, denied: dict[int, tuple[int, ...]]) -> Iterable[bytes]:
    """Deny a call if a listed argument has one of the given values."""
    steps: list[bytes] = []
    for position, values in denied.items():
        steps.append(_instruction(_LOAD, _ARGUMENTS[position]))
        steps.extend(step for value in values for step in _deny_syscall(value))
    return _if_syscall(number, [*steps, _instruction(_RETURN, _ALLOW)])


def _if_syscall(number: int, steps: list[bytes]) -> Iterable[bytes]:
    return [_instruction(_EQUAL, number, 0, len(steps)), *steps]


def _allow_utimens_on_descriptors(utimensat: int) -> Iterable[bytes]:
    """Allow utimensat only on a descriptor (without a path: both halves of the pointer are 0)."""
    yield _instruction(_EQUAL, utimensat, 0, 6)
    yield _instruction(_LOAD, _ARGUMENTS[1])
    yield _instruction(_EQUAL, 0, 0, 3)
    yield _instruction(_LOAD, _ARGUMENTS[1] + 4)
    yield _instruction(_EQUAL, 0, 0, 1)
    yield _instruction(_RETURN, _ALLOW)
    yield _instruction(_RETURN, _EACCES)


def _deny_new_namespaces(clone: int) -> Iterable[bytes]:
    for number in (_CLONE3, _OPENAT2):
        yield _instruction(_EQUAL, number, 0, 1)
        # A filter cannot reach its arguments; libraries fall back to the older call.
        yield _instruction(_RETURN, _ENOSYS)
    yield _instruction(_EQUAL, clone, 0, 3)
    yield _instruction(_LOAD, _ARGUMENTS[0])
    yield _instruction(_ANY_BIT, _NEW_NAMESPACES, 0, 1)
    yield _instruction(_RETURN, _EPERM)
