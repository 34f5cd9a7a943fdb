"""Attachments, as the engine knows them: files that entries name, looked at as they are written and shown."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from lemming.capabilities.attachments.tool import KEY, filled_in
from lemming.kernel.access.allowed_paths import resolve
from lemming.kernel.access.grants import why_no_grant
from lemming.kernel.access.open import file_digest_of, read_raw
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import ToolError, Unusable
from lemming.kernel.files.fields import Json
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import MODELS_FILE
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import Image, Request, provider_class
from lemming.kernel.tick.seams import TickPart
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.places import Carried
from lemming.kernel.turn.seams import Capability, Moment, Preparation, Showing, TurnPart
from lemming.kernel.turn.seen import Seen
from lemming.kernel.turn.values import TurnInputs


class Attachments(Capability):
    """Used by agents that have the tool `attach`, and by those whose models take images."""

    name = "attachments"

    def prepare(self, moment: Moment) -> Preparation:
        """Return what looks for images."""
        return ImagesShown(moment)

    def part(self, draft: Draft, given: Json) -> TurnPart:
        """Return its part in a turn."""
        return Filling(self.name, draft, given)

    def completes(
        self, request: Request, entry: ModelEntry, inputs: TurnInputs, base: Path, held: Mapping[str, bytes]
    ) -> Request:
        """Return a question with the images that belong to the end of its turn's prompt."""
        named = inputs.given[self.name].get("images")
        if not (named and entry.images):
            return request
        images = load_images(named, inputs.agent, base, held)
        return request._replace(images=images, images_with=inputs.prompt[-1]["content"])


class ImagesShown(Preparation):
    """Finds the images attached to the entries that a prompt shows, for a model that takes them."""

    def __init__(self, moment: Moment) -> None:
        super().__init__(moment)
        self._images: list[Json] = []

    def annotates(self, seen: Seen, shown: Showing) -> None:
        """Look them up; raise `Unusable` where the model's backend passes none on."""
        moment, entry = self.moment, self.moment.model
        if not entry.images:
            return
        if not provider_class(entry.provider, moment.now.config.org.plugins).takes_images:
            what = f'{entry.provider} {entry.model}: "images": true is not possible: its provider takes none'
            raise Unusable(what, where=MODELS_FILE)
        self._images = images_in(_entries(shown), moment.agent, moment.now.org.base, moment.held)
        seen.told_by = [*seen.told_by, *(image["path"] for image in self._images)]

    def given(self) -> Json:
        """Return where they are and what was in them: the bytes are read as the model is asked."""
        return {"images": self._images} if self._images else {}


class Filling(TurnPart):
    """Fills in what is in the files that a turn's entries name."""

    def carries(self, payloads: Sequence[Json], at: str) -> Sequence[Carried]:
        """Look at the files that these name."""
        return filled_in(self.draft, payloads, at)


class AttachmentsInTicks(TickPart):
    """Its agents may be shown images, wherever they may read."""

    def may_read(self, org: Organisation, agent: Agent) -> Sequence[str]:
        """Return the agent's grants for reading."""
        return [grant for grant in agent.permissions.file_access.allow_read if not why_no_grant(grant)]


def _entries(shown: Showing) -> Sequence[OutboxEntry]:
    if not (task := shown.task):
        return [*shown.inbox.unread, *shown.inbox.known]
    answers = [ended.entry for ended in task.asked if ended.entry]
    return [*([task.request] if task.request else []), *task.thread, *answers]


# --- images for models that take them ("images": true) --------------------------------------------

# The journal keeps where each is and what was in it; the bytes are read when the model is asked.

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
            if sha256(raw).hexdigest() == item["sha256"]:  # it may be another one by now
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
