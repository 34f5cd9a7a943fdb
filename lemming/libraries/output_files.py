"""Files outside the organisation: the output of commands, with the same content as a pipe, and this user's state.

Known secrets are removed, as from printed output. `tests/test_doors.py` lists the writers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lemming.kernel.base.errors import DiskError
from lemming.kernel.base.redaction.secrets import redact_bytes, redact_json
from lemming.kernel.files import fs


def without_secrets(plain: Any, write: Callable[[Any], bytes]) -> bytes:
    """Return a JSON value serialised by `write`, without known secrets."""
    raw = write(plain)
    return write(redact_json(plain)) if redact_bytes(raw) != raw else raw


def write_output(folder: Path, relative: str, content: bytes) -> None:
    """Write a file below an external folder, replacing an existing file. Raises `DiskError`."""
    fs.write_atomic(folder, relative, redact_bytes(content), is_org=False)


def create_output(file: Path, content: bytes) -> bool:
    """Create a file that does not exist; return True if created. Raises `DiskError`."""
    return fs.create(file.parent, file.name, redact_bytes(content))


def write_private_output(folder: Path, relative: str, content: bytes) -> None:
    """Write a file readable by the owner only, replacing an existing file. Raises `DiskError`."""
    fs.write_private(folder, relative, redact_bytes(content))


def get_state_folder() -> Path:
    """Return the folder of the user's own state: grants, tokens, keys, clones. Raises: DiskError without a home."""
    try:
        configured = os.environ.get("XDG_STATE_HOME", "")
        state = Path(configured) if os.path.isabs(configured) else Path.home() / ".local/state"
    except RuntimeError as error:
        raise DiskError("this user has no home folder", where="~/.local/state", hint="set XDG_STATE_HOME") from error
    return state / "lemming"
