"""The values of a turn's draft: what it has come to so far. `lemming.kernel.turn.draft` changes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lemming.kernel.base.contract import NewEntry
from lemming.kernel.base.errors import (
    LemmingError,
    LimitReached,
    Paused,
    TurnTooLong,
)
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.journal.lost_calls import NONE_LOST
from lemming.kernel.journal.report import STATUS_OF, End, Status, ToolUsed
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.blocks import LoopSettings
from lemming.kernel.providers import Message
from lemming.kernel.turn.call_numbers import CallNumbers
from lemming.kernel.turn.hooks import PLAIN_LINE
from lemming.kernel.turn.notices import Notices, without_notices
from lemming.kernel.turn.repeats import Repeats
from lemming.kernel.turn.values import Answer, Answers, TurnInputs

UNSAID = LoopSettings()
"""When a loop of a turn is broken whose record does not say."""
HELD_UP = (LimitReached, Paused, TurnTooLong)


class DraftState:
    """What one turn has come to so far, as values.

    `answers`: those of the model. `staged`: files to be written, by place; `settled`: those written already,
    before a call that reached outside. `results`: those of tool calls, the first `shown` of which the model
    has seen; what is `untold` it is never shown. `accepted`: how many replies were acted on. `over`: how
    the turn has to end now, whatever its strategy. `left`: what it leaves for the next turn.
    """

    # Python is slow at an object with more than thirty attributes, and this one is made for every turn.
    __slots__ = (
        "accepted", "answers", "aside", "asked", "asks_persons", "calls", "conversation", "entries",
        "found", "has_answer", "held",
        "in_vain", "inputs", "is_handed_on", "last_words", "left", "loops", "lost", "lost_entries",
        "memory", "misfit", "noted", "notes", "notices", "numbers", "only_asks", "outside", "over",
        "passed_on", "remarks", "repeats", "results", "seams", "settled", "shown", "source",
        "staged", "stopped_by", "task", "untold", "used", "verdicts",
    )  # fmt: skip

    def __init__(self, inputs: TurnInputs, source: Answers) -> None:
        self.inputs, self.source, self.task = inputs, source, inputs.task
        self.seams = PLAIN_LINE  # until the turn is taken
        self.accepted = self.shown = self.in_vain = 0
        self.notes = self.left = ""
        self.over: End | None = None
        self.stopped_by: LemmingError | None = None
        self.is_handed_on = False
        self.misfit = ""  # why the answer in the last reply is not what was asked for
        self.lost = NONE_LOST
        self.answers: list[Answer] = []
        self.aside: dict[str, list[Answer]] = {}  # of these, those to questions of capabilities
        # What it writes.
        self.entries: list[OutboxEntry] = []
        self.lost_entries: dict[str, NewEntry] = {}  # of these, by id, those for agents that there are not
        self.staged: dict[str, FileEffect] = {}
        self.settled: dict[str, FileEffect] = {}
        self.memory: dict[str, FileEffect] = {}
        self.passed_on: dict[str, float] = {}  # by the resume that says so
        # What its calls gave.
        self.results: list[dict[str, Any]] = []
        self.calls: list[str] = []  # of the results, what the backend calls them
        self.conversation: list[Message] | None = None  # with the model, since it was asked for a reply
        self.found: list[Mapping[str, Any]] = []  # the tools that they found, as models are told of them
        self.numbers = CallNumbers(source.has_call)
        self.untold: set[int] = set()
        self.used: list[ToolUsed] = []
        self.outside: list[dict[str, Any]] = []
        self.notices = Notices()  # of the reply that is acted on
        in_vain = (inputs.task.begun if inputs.task else inputs.state).in_vain
        self.loops = inputs.loops or UNSAID
        self.repeats = Repeats(in_vain, self.loops.stop_after)
        # What is said of it.
        self.remarks: list[str] = []
        self.verdicts: list[dict[str, Any]] = []
        self.noted: dict[str, Any] = {}  # by capabilities, as fields of its report
        # Where it asks, or was asked.
        self.only_asks = False  # it asks persons for something, and nothing was shown to anybody
        self.asks_persons = False  # because a question was stopped
        self.has_answer = False  # something was shown that may answer what its agent asked for
        self.asked: dict[str, int] = {}  # entries that ask, with the number of the result
        self.held: dict[str, dict[str, Any]] = {}  # what capabilities keep until an entry is answered
        self.last_words: list[OutboxEntry] = []  # of a turn that did not come off: that there is no answer

    @property
    def unshown(self) -> list[dict[str, Any]]:
        """The results that the model has not been shown."""
        if self.shown == len(self.results):
            return []
        return [self.results[place] for place in self.unshown_places]

    @property
    def actionable_results(self) -> Sequence[dict[str, Any]]:
        """The results for which the model is asked again: no notices, but those of a first useless reply."""
        unshown = self.unshown
        return without_notices(unshown) if unshown and not self.notices.should_ask_again else unshown

    @property
    def unshown_places(self) -> list[int]:
        """Which of the results the model has not been shown, and is to be."""
        return [place for place in range(self.shown, len(self.results)) if place not in self.untold]

    @property
    def has_results_to_tell(self) -> bool:
        """Whether there is a result to show, or a call of the backend's own that wants one."""
        return self.shown < len(self.results)

    @property
    def is_answered(self) -> bool:
        """Whether what the turn is for has its answer."""
        return any(is_answered() for is_answered in self.seams.is_answered)

    @property
    def held_up(self) -> str:
        """Why no more may be asked, where that is not for the agent's credits; empty where it may."""
        return str(self.stopped_by) if isinstance(self.stopped_by, HELD_UP) else ""

    @property
    def trust(self) -> str:
        """How far the turn is trusted by now, in a word; empty where nobody tracks that."""
        return next((word for trust in self.seams.trust if (word := trust())), "")

    @property
    def questions(self) -> int:
        """How many questions were asked, those without an answer included."""
        return len(self.answers) + self.in_vain

    @property
    def may_rest(self) -> bool:
        """Whether the turn may say nothing, and leave open what it was asked."""
        return any(may_rest() for may_rest in self.seams.may_rest)

    def status_of(self, end: End) -> Status:
        """Return the status of a turn that ends so: without an answer there is nothing to go on with."""
        return "skipped" if end in ("out_of_credits", "paused") and not self.answers else STATUS_OF[end]

    def tell(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return a result as the model is told of it within the turn."""
        for told in self.seams.shown_result:
            result = told(result)
        return result

    def show(self, prompt: list[Message]) -> None:
        """Have the turn begin with another prompt."""
        self.inputs = replace(self.inputs, prompt=prompt)

    def continue_with(self, dialogue: Sequence[Message]) -> None:
        """Have the turn begin with these messages behind its prompt."""
        self.inputs = replace(self.inputs, dialogue=dialogue)
