"""Files that a command writes for others to read, outside the organisation: what a pipe would be given.

Known secrets are taken out here, as they are from what is printed. `tests/test_doors.py` lists who writes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lemming.kernel.base.redaction.secrets import redact_bytes, redact_json
from lemming.kernel.files import fs


def without_secrets(plain: Any, write: Callable[[Any], bytes]) -> bytes:
    """Return a JSON value as `write` spells it, without the secrets that are known."""
    raw = write(plain)
    return write(redact_json(plain)) if redact_bytes(raw) != raw else raw


def put_output(folder: Path, relative: str, content: bytes) -> None:
    """Write a file below a folder outside; what is there is replaced. Raises `DiskError`."""
    fs.publish(folder, relative, redact_bytes(content), is_org=False)


def create_output(file: Path, content: bytes) -> bool:
    """Write a file that is not there yet; return whether it was not. Raises `DiskError`."""
    return fs.create(file.parent, file.name, redact_bytes(content))


def put_private_output(folder: Path, relative: str, content: bytes) -> None:
    """Write a file for nobody but its owner to read; what is there is replaced. Raises `DiskError`."""
    fs.publish_private(folder, relative, redact_bytes(content))
