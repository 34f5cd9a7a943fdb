"""Images that are attached to what a turn is shown, for models that take them (`"images": true`).

What the journal keeps is where each is and what was in it; the bytes are read when the model is asked.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from lemming.capabilities.attachments.tool import KEY
from lemming.kernel.access.allowed_paths import resolve
from lemming.kernel.access.open import file_digest_of, read_raw
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ToolError
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.providers import Image

IMAGES_LIMIT = 8
IMAGE_LIMIT_BYTES = 4 << 20
MEDIA_TYPES = {
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}
_CALLER = "attachment"

Named = dict[str, str]
"""`{"path", "sha256"}`, as an entry names it."""


def images_in(
    entries: Iterable[OutboxEntry], agent: Agent, base: Path, held: Mapping[str, bytes]
) -> list[Named]:
    """Return the images of entries that an agent may read and that hold what they held when attached."""
    named = {
        (item["path"], item["sha256"]): None
        for entry in entries
        for item in _listed(entry)
        if _is_image(item) and _digest(agent, base, item["path"], held) == item["sha256"]
    }
    return [{"path": path, "sha256": digest} for path, digest in named][:IMAGES_LIMIT]


def load_images(
    named: Iterable[Named], agent: Agent, base: Path, held: Mapping[str, bytes]
) -> tuple[Image, ...]:
    """Return the images with their bytes; one that is another by now, or too large, is left out."""
    found = []
    for item in named:
        with suppress(ToolError):
            place = resolve(agent, base, _reader_path(base, item["path"]), "read", caller=_CALLER)
            raw = read_raw(place, held, limit_bytes=IMAGE_LIMIT_BYTES)
            if sha256(raw).hexdigest() == item["sha256"]:
                found.append(Image(_media_type(item["path"]), b64encode(raw).decode("ascii")))
    return tuple(found)


def _listed(entry: OutboxEntry) -> list[Any]:
    listed = entry.payload.get(KEY)
    return listed if isinstance(listed, list) else []


def _is_image(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and isinstance(item.get("path"), str)
        and isinstance(item.get("sha256"), str)
        and bool(_media_type(item["path"]))
    )


def _media_type(path: str) -> str:
    return MEDIA_TYPES.get(PurePosixPath(path).suffix.lower(), "")


def _digest(agent: Agent, base: Path, path: str, held: Mapping[str, bytes]) -> str:
    with suppress(ToolError):
        return file_digest_of(resolve(agent, base, _reader_path(base, path), "read", caller=_CALLER), held)
    return ""


def _reader_path(base: Path, path: str) -> str:
    """Return an attachment's path as any agent may give it: one in a workspace from the root on."""
    return f"{base}/{path}" if path.startswith("agents/") else path
