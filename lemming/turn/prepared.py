"""What the capabilities of a turn have prepared, asked in their order: `lemming.turn.seams`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lemming.files.fields import Json
from lemming.journal.begun import Begun
from lemming.mail.held import Ends, EntriesOf, Read
from lemming.mail.tasks import Task
from lemming.mail.visibility import View
from lemming.messages import OutboxEntry
from lemming.plugins.capabilities import capability, in_order
from lemming.plugins.shipped import ASKED_FOR
from lemming.turn.labels import PLAIN, Labels
from lemming.turn.places import ToShow
from lemming.turn.seams import (
    Capability,
    Moment,
    Preparation,
    Showing,
)

if TYPE_CHECKING:
    from lemming.turn.prompt import Seen


class Prepared:
    """What the capabilities of a turn have prepared, in their order."""

    def __init__(self, by_name: Mapping[str, Preparation]) -> None:
        self._by_name = by_name
        self._all = tuple(by_name.values())
        self.names = by_name.keys()
        self.may_withhold = any(type(it).withholds is not Preparation.withholds for it in self._all)

    def withholds(self, entry: OutboxEntry) -> bool:
        """Return whether an entry is not to be shown yet."""
        return any(it.withholds(entry) for it in self._all)

    def is_refused(self, entry: OutboxEntry) -> bool:
        """Return whether an entry is not to be shown at all."""
        return any(it.is_refused(entry) for it in self._all)

    def lets_in(self, entry: OutboxEntry) -> bool:
        """Return whether gates that ask are to let an entry pass."""
        return any(it.lets_in(entry) for it in self._all)

    def wakes(self, view: View, *, is_alone: bool) -> bool:
        """Return whether there is something to take a turn for. All are asked."""
        found = False
        for it in self._all:
            found |= it.wakes(view, is_alone=is_alone)
        return found

    def ends(self, begun: Begun, read: Read, entries_of: EntriesOf, is_heard: Callable[[str], bool]) -> Ends:
        """Return how what holds something has ended."""
        found: Ends = {}
        for each in self._all:
            found |= each.ends(begun, read, entries_of, is_heard)
        return found

    def told(self, task: Task, results: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return the results of earlier calls as the turn is told of them."""
        for each in self._all:
            results = each.told(task, results)
        return results

    def looks(self, offered: ToShow) -> ToShow:
        """Return what the turn may be shown."""
        for each in self._all:
            offered = each.looks(offered, self.lets_in)
        return offered

    def shows(self, shown: Showing) -> Showing:
        """Return what the turn is to be shown."""
        for each in self._all:
            shown = each.shows(shown)
        return shown

    def labels(self) -> Labels:
        """Return how the parts of the prompt are told apart."""
        for it in self._all:
            if (found := it.labels()) is not PLAIN:
                return found
        return PLAIN

    def tells(self, seen: Seen, shown: Showing) -> None:
        """Have the prompt say what parts have to say of it."""
        for each in self._all:
            each.tells(seen, shown)

    def and_for(self, task: Task | None, moment: Moment) -> Prepared:
        """Return these, with those that whoever asked brings into a turn for a request."""
        request = task.request if task else None
        asker = moment.now.mail.resumes.get(request.agent) if request else None
        if request is None or asker is None:
            return self
        names = {it for it, is_asked in ASKED_FOR.items() if is_asked(asker, request.payload)} - self.names
        if not names:
            return self
        both = {**self._by_name, **prepare(names, moment)}
        return Prepared({name: both[name] for name in in_order(both, moment.now.config.org.plugins)})

    def given(self) -> dict[str, Json]:
        """Return what the parts of the turn start from, by capability."""
        return {name: given for name, each in self._by_name.items() if (given := each.given())}


NOTHING_PREPARED = Prepared({})


def prepare(names: Iterable[str], moment: Moment) -> dict[str, Preparation]:
    """Return what these have prepared for a turn; raise `ConfigError` for one that is not here."""
    config = moment.now.config
    plugins, found = config.org.plugins, dict[str, Preparation]()
    for name in in_order(names, plugins):
        asked: Capability = capability(name, plugins)
        said = {"settings": asked.settings_in(config), "own": asked.settings_of(moment.agent)}
        if (prepared := asked.prepare(moment._replace(**said))) is not None:
            found[name] = prepared
    return found
