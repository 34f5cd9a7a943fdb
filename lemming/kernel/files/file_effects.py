"""Effects: files to be written or removed for a turn, as plain values. Applying an effect twice changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.kernel.base.aliases import accept_old_fields
from lemming.kernel.base.errors import DiskError
from lemming.kernel.files import fs

_REMOVED_LIMIT_BYTES = 1 << 20


@accept_old_fields
@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class FileEffect:
    """A file with its whole new content, or, with `removes`, a file to be removed.

    `path` is relative to `root`. An empty root is the organisation's folder, any other root an absolute
    folder granted by the operator. `removes`: digests of the content seen earlier; a file with any other
    content has been changed since and stays. `memory_value`: parsed content of a memory, if known.
    """

    path: str
    content: bytes
    root: str = ""
    removes: tuple[str, ...] = ()
    memory_value: dict[str, Any] | None = None

    @property
    def path_key(self) -> str:
        """The path as shown in the journal and in messages."""
        return f"{self.root}/{self.path}" if self.root else self.path

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hex."""
        return sha256(self.content).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Return the effect for the journal. Content is text, because tools always write UTF-8."""
        removes = {"removes": list(self.removes)} if self.removes else {}
        return {"root": self.root, "path": self.path, "text": self.content.decode("utf-8"), **removes}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> FileEffect:
        """Return the effect from its JSON form."""
        removes = tuple(plain.get("removes", ()))
        return cls(plain["path"], plain["text"].encode("utf-8"), plain["root"], removes)


def order_effects(effects: Iterable[FileEffect]) -> list[FileEffect]:
    """Return the effects in application order: writes before removals, so that a moved file always exists."""
    return sorted(effects, key=lambda effect: bool(effect.removes))


def apply_effect(base: Path, effect: FileEffect, *, is_replay: bool = False, sync: bool = False) -> None:
    """Write or remove the file of an effect. With `is_replay`, a file with the same bytes is left alone.

    Raises `DiskError`. An error about a folder outside the organisation concerns the one file only.
    """
    root = Path(effect.root) if effect.root else base
    if is_replay and not effect.removes and fs.has_content(f"{root}/{effect.path}", effect.content):
        return
    try:
        if not effect.removes:
            fs.write_atomic(root, effect.path, effect.content, sync=sync, is_org=not effect.root)
        elif _digest_file(f"{root}/{effect.path}") in effect.removes:
            fs.remove(root, effect.path, sync=sync)
    except DiskError as error:
        error.concerns_one_file |= bool(effect.root)
        raise


def _digest_file(path: str) -> str:
    """Return the SHA-256 of a file, or an empty string for a missing or unreadable file."""
    try:
        return sha256(fs.read_bytes(path, _REMOVED_LIMIT_BYTES)).hexdigest()
    except OSError:
        return ""
