"""Attachments, as the engine knows them: files that entries name, looked at as they are written and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lemming.capabilities.attachments.images import images_in, load_images
from lemming.capabilities.attachments.tool import filled_in
from lemming.kernel.access.grants import why_no_grant
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import Unusable
from lemming.kernel.files.fields import Json
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import MODELS_FILE
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import Request, provider_class
from lemming.kernel.tick.seams import TickPart
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.places import Carried
from lemming.kernel.turn.prompt import Seen
from lemming.kernel.turn.seams import Capability, Moment, Preparation, Showing, TurnPart
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
