"""What a turn starts from, as capabilities see to it: before it begins, when nothing is recorded yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lemming.kernel.files.fields import Json
from lemming.kernel.journal.begun import Begun
from lemming.kernel.mail.agenda import Agenda
from lemming.kernel.mail.holds import Ends, EntriesOf, Holds, Read
from lemming.kernel.mail.task import Task
from lemming.kernel.mail.visibility import View
from lemming.kernel.memory import Memories
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.uses import Habits
from lemming.kernel.tools import Tool
from lemming.kernel.turn.labels import PLAIN, Labels
from lemming.kernel.turn.moments import Moment, Showing
from lemming.kernel.turn.places import LetsIn, ToShow
from lemming.kernel.turn.reply_schemas import Form
from lemming.kernel.turn.values import Purpose

if TYPE_CHECKING:
    from lemming.kernel.turn.seen import Seen


class Preparation:
    """One capability's look at what a turn starts from: the only part of it that sees files.

    Nothing has happened yet, and nothing is recorded: after a crash it looks again.
    """

    def __init__(self, moment: Moment) -> None:
        self.moment = moment

    def finds(self, memories: Memories) -> Mapping[str, str]:
        """Look at what decides whether there is a turn; asked before all else, also of who has nothing new.

        Returns the files that were read, each with its digest: a change of one is news to who wakes by what
        it reads. Raises a `LemmingError`: the turn fails.
        """
        return {}

    def rests(self, begun: Begun) -> bool:
        """Return whether a request does not go on yet, though nothing that was asked for it is open."""
        return False

    def is_led(self, begun: Begun) -> bool:
        """Return whether a request goes on now, though something that was asked for it is open."""
        return False

    def why_resting(self) -> str:
        """Return in words what the agent waits for, where there is nothing to take a turn for."""
        return ""

    def wakes_at(self, memories: Memories) -> int | None:
        """Return the first tick in which what a request waits for is there; None: no tick says so."""
        return None

    def agenda(self, view: View, habits: Habits, holds: Holds) -> Agenda | None:
        """Return what the agent has to do, by what it is asked; None: it does not say. One part does.

        `holds`: what all that take part say of what is asked.
        """
        return None

    def purpose(self, task: Task) -> Purpose | None:
        """Return what a turn is for, as its record has it; None: it does not say. Who says `agenda` does."""
        return None

    def labels(self) -> Labels:
        """Return how the parts of the prompt are told apart; of several, the first counts that says so."""
        return PLAIN

    def withholds(self, entry: OutboxEntry) -> bool:
        """Return whether an entry is not to be shown yet: it stays unread."""
        return False

    def is_refused(self, entry: OutboxEntry) -> bool:
        """Return whether an entry is not to be shown, now or later."""
        return False

    def lets_in(self, entry: OutboxEntry) -> bool:
        """Return whether gates that ask are to let an entry pass: whoever they ask has said so."""
        return False

    def wakes(self, view: View, *, is_alone: bool) -> bool:
        """Return whether there is something to take a turn for; `is_alone`: there is nothing else."""
        return False

    def ends(self, begun: Begun, read: Read, entries_of: EntriesOf, is_heard: Callable[[str], bool]) -> Ends:
        """Return how requests have ended that hold something of its, of what is open (`mail.holds`)."""
        return {}

    def earlier_results(
        self, task: Task, results: Sequence[Mapping[str, Any]], labels: Labels
    ) -> Sequence[Mapping[str, Any]]:
        """Return the results of earlier calls, in their places, as the turn is told of them."""
        return results

    def looks(self, offered: ToShow, lets_in: LetsIn) -> ToShow:
        """Return what the turn may be shown, of all there is; `lets_in` is what others say of an entry."""
        return offered

    def shows(self, shown: Showing) -> Showing:
        """Return what the turn is to be shown; those asked later see what this one leaves."""
        return shown

    def tools(self) -> Iterable[Tool]:
        """Return tools that are of the turn alone: its part `takes` what calls them.

        Asked only where the agent's resume, the settings or the tools are not as they were: they follow from
        these.
        """
        return ()

    def sections(self) -> Sequence[str]:
        """Return sections of the prompt that stand after the agent's instructions."""
        return ()

    def forms(self, task: Task | None, asked: Sequence[OutboxEntry]) -> Sequence[Form]:
        """Return what the payloads of the turn's entries must be, for backends that constrain answers.

        `task`, `asked`: the request that the turn is for, or those that it is shown beside others.
        """
        return ()

    def annotates(self, seen: Seen, shown: Showing) -> None:
        """Say what there is to be said of the prompt in what it is made from, in place: it is all known."""

    def given(self) -> Json:
        """Return what the part starts from, which is recorded as `given.<name>`; empty: it takes no part.

        Asked last. Whatever a part needs of the world stands here, or comes by the turn's answers.
        """
        return {}
