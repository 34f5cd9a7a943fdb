"""Effects: files a turn wants written, or taken away, as plain values. Applying one twice changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.kernel.base.errors import DiskError
from lemming.kernel.files import fs

_REMOVED_LIMIT_BYTES = 1 << 20


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class FileEffect:
    """A file and the whole of its new content; or, with `removes`, a file that is taken away.

    `path` is relative to `root`; an empty root is the organisation's folder, any other is an absolute
    folder that the operator granted. `removes` are digests of what was seen there: a file that holds anything
    else by then is somebody's work and stays. `says`: what a memory's content says, where that is known.
    """

    path: str
    content: bytes
    root: str = ""
    removes: tuple[str, ...] = ()
    says: dict[str, Any] | None = None

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
        removes = {"removes": list(self.removes)} if self.removes else {}
        return {"root": self.root, "path": self.path, "text": self.content.decode("utf-8"), **removes}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> FileEffect:
        """Return the effect that `as_json` described."""
        removes = tuple(plain.get("removes", ()))
        return cls(plain["path"], plain["text"].encode("utf-8"), plain["root"], removes)


def writes_first(effects: Iterable[FileEffect]) -> list[FileEffect]:
    """Return effects in the order in which they are applied: a file that moves is never nowhere."""
    return sorted(effects, key=lambda effect: bool(effect.removes))


def apply_effect(base: Path, effect: FileEffect, *, again: bool = False, sync: bool = False) -> None:
    """Write one effect's file, or take it away. With `again`, a file that holds these bytes is left alone.

    Raises `DiskError`; one about a folder outside the organisation concerns that file only.
    """
    root = Path(effect.root) if effect.root else base
    if again and not effect.removes and fs.holds(f"{root}/{effect.path}", effect.content):
        return
    try:
        if not effect.removes:
            fs.publish(root, effect.path, effect.content, sync=sync, is_org=not effect.root)
        elif _digest_of(f"{root}/{effect.path}") in effect.removes:
            fs.remove(root, effect.path, sync=sync)
    except DiskError as error:
        error.concerns_one_file |= bool(effect.root)
        raise


def _digest_of(path: str) -> str:
    """Return the SHA-256 of a file as far as an effect can be about one; empty for what is none, or gone."""
    try:
        return sha256(fs.read_bytes(path, _REMOVED_LIMIT_BYTES)).hexdigest()
    except OSError:
        return ""
