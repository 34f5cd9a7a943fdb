"""Effects: files a turn wants written, as plain values. Applying one twice changes nothing."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from lemming.errors import DiskError
from lemming.files import fs


class FileEffect(NamedTuple):
    """A file and the whole of its new content.

    `path` is relative to `root`; an empty root is the organisation's folder, any other is an absolute
    folder that the operator granted.
    """

    path: str
    content: bytes
    root: str = ""

    @property
    def place(self) -> str:
        """The path as the journal and messages show it."""
        return f"{self.root}/{self.path}" if self.root else self.path

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hex."""
        return sha256(self.content).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Return the effect for the journal. Content is text: what tools write is always UTF-8."""
        return {"root": self.root, "path": self.path, "text": self.content.decode("utf-8")}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> FileEffect:
        """Return the effect that `as_json` described."""
        return cls(plain["path"], plain["text"].encode("utf-8"), plain["root"])


def apply_effect(base: Path, effect: FileEffect, *, again: bool = False, sync: bool = False) -> None:
    """Write one effect's file. With `again`, a file that already holds these bytes is left alone.

    Raises `DiskError`; one about a folder outside the organisation concerns that file only.
    """
    root = Path(effect.root) if effect.root else base
    if again and _holds(f"{root}/{effect.path}", effect.content):
        return
    try:
        fs.publish(root, effect.path, effect.content, sync=sync, is_org=not effect.root)
    except DiskError as error:
        error.concerns_one_file |= bool(effect.root)
        raise


def _holds(path: str, content: bytes) -> bool:
    try:
        return fs.read_bytes(path, len(content)) == content
    except OSError:
        return False
