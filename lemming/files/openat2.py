"""Linux's `openat2`: one call that opens a path and refuses every symbolic link on it.

It does what the walk in `lemming.files.fs` takes a call a folder for. Python has no function for it.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from functools import cache
from itertools import count

WORTHWHILE_AFTER = 1000
"""So many openings save what the import of `ctypes` costs; a command that writes little never pays it."""

_NUMBER = 437
_MACHINES = ("x86_64", "aarch64")  # elsewhere the call may have another number
_HERE = -100  # AT_FDCWD
_NO_SYMLINKS = 0x04

_openings = count()


def open_at_once(path: str, flags: int) -> int:
    """Return the descriptor of what stands at `path`, opened without following any link; nothing is made.

    Returns -1 when that cannot be had in one call, whatever the reason: then the caller walks.
    """
    if next(_openings) < WORTHWHILE_AFTER:
        return -1
    call = _system_call()
    return call(_NUMBER, _HERE, os.fsencode(path), _how(flags), 24) if call else -1


@cache
def _system_call() -> Callable[..., int] | None:
    """Return libc's `syscall`; None where the kernel, or a filter in front of it, has no openat2."""
    is_android = hasattr(sys, "getandroidapilevel")  # there a call that an app may not make ends the process
    if sys.platform != "linux" or is_android or os.uname().machine not in _MACHINES:
        return None
    import ctypes

    # The types are ctypes' own choice, which it makes sooner: the address of the bytes, and ints, whose sign
    # fills the register on both machines.
    call = ctypes.CDLL(None).syscall
    descriptor: int = call(_NUMBER, _HERE, b"/", _how(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), 24)
    if descriptor < 0:
        return None
    os.close(descriptor)
    return call


@cache
def _how(flags: int) -> bytes:
    """Return the kernel's `struct open_how`: flags, mode, how to resolve."""
    return struct.pack("=QQQ", flags, 0, _NO_SYMLINKS)
