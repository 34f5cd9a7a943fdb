"""What forms do in a turn: they hold its entries to the schemas of the resume, and of who asked. Pure."""

from __future__ import annotations

from lemming.base.contract import NewEntry
from lemming.files.fields import Json
from lemming.turn.draft import Draft
from lemming.turn.seams import Capability, TurnPart
from lemming.turn.wanted import PayloadCheck


class Forms(Capability):
    """Forms of answers, which the key `output` of a resume asks for, or `expect` of a request."""

    name = "forms"

    def part(self, draft: Draft, given: Json) -> TurnPart:
        """Return its part in a turn whose entries are held to one."""
        return FormsPart(self.name, draft, given)


class FormsPart(TurnPart):
    """The forms of one turn's entries."""

    def __init__(self, name: str, draft: Draft, given: Json) -> None:
        super().__init__(name, draft, given)
        self._check = PayloadCheck(draft.inputs)

    def fits(self, entries: list[NewEntry]) -> list[NewEntry | list[str]]:
        """Return each entry as it is kept, or what is wrong with it; note what is wrong with the answer."""
        if self.draft.may_rest:
            return [*entries]
        looked_at = self._check.fit(entries)
        self.draft.misfit = self._check.misfit
        return looked_at
