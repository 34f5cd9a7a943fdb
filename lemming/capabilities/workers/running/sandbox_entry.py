"""The last step before a sandbox: `python -I -S sandbox_entry.py FOLDER... -- PROGRAM ARGUMENTS...` becomes the program.

The folders stay writable, even below `/dev`. Standard library only.
"""

from __future__ import annotations

import os
import resource
import sys


def main() -> None:
    """Protect the machine's devices from root's sandboxes, and become the program."""
    from lemming.libraries.sandbox import sandbox_policy

    end = sys.argv.index("--")
    writable, command = sys.argv[1:end], sys.argv[end + 1 :]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would be written where the kernel's pattern says
    if os.geteuid() == 0:
        # The owner of a device may change its mode without any capability: `chmod 0 /dev/null` would reach the machine.
        try:
            sandbox_policy.protect_devices(*writable)
        except OSError as error:
            sys.exit(f"root cannot be confined here ({error}): run as another user")
    os.execv(command[0], command)  # noqa: S606 - the words are the engine's own


if __name__ == "__main__":
    # At the end, so that nothing installed beside the package can pose as the standard library.
    sys.path.append(os.path.abspath(f"{__file__}/../../../../.."))
    main()
