"""The engine's world in a rehearsal: answers from the record where the question is the very same.

Models are asked only what was not asked before. Calls of tools that reach outside are not made: they get the
recorded result where the call is the same. Nothing is taken in or handed out; the clock says what it said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, NoReturn

from lemming.capabilities.scripted.replay import replayed
from lemming.evals.rehearsal.budget import Spending
from lemming.evals.rehearsal.questions import RecordedQuestions
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import LemmingError, OverBudget, RequestRejected, UsageError
from lemming.kernel.base.turn_numbers import NUMBERS_PER_TURN, turn_key
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.records import ModelFailed, ModelReplied
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.plugins.shipped import NO_MODELS
from lemming.kernel.providers import Reply, Request
from lemming.kernel.tick.edge import Stopped
from lemming.kernel.tick.recorded_answers import recorded_result
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.tools import EngineTool, ToolResult, toolset_of
from lemming.kernel.tools.context import ToolContext
from lemming.timeline.record import RecordedTick
from lemming.timeline.replay.recording import moved_inside

NOT_MADE = "not made: this is a rehearsal, and no such call is in the record (`--tools` makes it)"
RECORDINGS = frozenset({"scripted", "replay"})
_INSIDE = frozenset({"read", "write", "administer"})


class NotAsked(NamedTuple):
    """A question that a dry run did not ask: in which turn, and as which call of it."""

    tick: int
    agent: str
    call: int


class CallNotMade(NamedTuple):
    """A tool call that a rehearsal did not make."""

    tick: int
    agent: str
    tool: str


@dataclass
class Rehearsing(Runtime):
    """A runtime that goes by a record as far as that goes. `asked`: questions that were not in it.

    `is_dry`: nobody is asked, and what was answered at the same place stands in; `whole` counts what it would
    cost to ask everything. `makes_calls`: tools that reach outside are called where the record has no such
    call. `scripted`: agents whose changed questions a recording was asked, which says the same to anything,
    or nothing. `stopped_by`: why it went no further.
    """

    sees_to_channels: bool = False
    spending: Spending = field(default_factory=Spending)
    whole: Spending = field(default_factory=Spending)
    is_dry: bool = False
    makes_calls: bool = False
    reused: int = 0
    asked: list[NotAsked] = field(default_factory=list)
    not_made: list[CallNotMade] = field(default_factory=list)
    scripted: set[str] = field(default_factory=set)
    stopped_by: LemmingError | None = None
    questions: RecordedQuestions = field(init=False)
    _failed: dict[tuple[str, int], ModelFailed] = field(default_factory=dict)
    _at: str = ""

    def begin(self, questions: RecordedQuestions, at: str) -> None:
        """Turn to the next tick of the record; `at` is the clock's reading."""
        self.questions, self._at, self._failed = questions, at, {}

    @property
    def recorded(self) -> RecordedTick:
        """The tick of the record that is run again."""
        return self.questions.recorded

    def now(self) -> str:
        """Return the recorded reading of the clock."""
        return self._at

    def previous_reading(self, tick: int, ticks: list[int]) -> str:
        """Return what the recorded tick started from, else what is kept here."""
        since = self.recorded.begin.since if self.recorded.records else ""
        return since or super().previous_reading(tick, ticks)

    def look_at_servers(self, snapshot: Snapshot) -> dict[str, Json]:
        """Return what the recorded tick found; no server is asked."""
        return self.recorded.begin.servers if self.recorded.records else {}

    def complete(self, entry: ModelEntry, request: Request, *, live: bool = False) -> Reply:
        """Return the recorded answer to the very same question, else ask."""
        place = request.agent, request.step
        if place in self._failed:  # in the record no fallback could answer either
            return replayed(self._failed[place])
        if self.is_dry and entry.provider not in NO_MODELS:
            self.whole.foresee(entry, request)
        record = self.questions.answer_to(entry, request)
        if record is not None:
            with self._lock:
                self.reused += 1
                if isinstance(record, ModelFailed):
                    self._failed[place] = record
            return replayed(record)
        if entry.provider in NO_MODELS:  # worked out, by nobody
            return self._dated(request, self.complete_live(entry, request))
        with self._lock:
            self.asked.append(NotAsked(request.tick, request.agent, request.step))
            if entry.provider in RECORDINGS:
                self.scripted.add(request.agent)
        if self.is_dry:
            return self._stand_in(entry, request)
        return self._dated(request, self._ask(entry, request))

    def _stand_in(self, entry: ModelEntry, request: Request) -> Reply:
        """Return what was answered at the same place, to something else."""
        self.spending.foresee(entry, request)
        record = self.questions.at(request.agent, request.step)
        if record is None:
            raise RequestRejected("a dry run asks no model, and nothing was asked here in the record")
        return replayed(record)

    def _ask(self, entry: ModelEntry, request: Request) -> Reply:
        if self.stop.is_set():
            raise Stopped
        if entry.provider == "replay":
            self._end(
                UsageError(
                    f"{request.agent}'s model is a recording, which cannot answer another question (tick "
                    f"{request.tick})",
                    hint=f"a model that can: --set agents/{request.agent}/resume.json:/model/key=KEY; "
                    "--dry-run asks nobody",
                )
            )
        try:
            return self.spending.pay(entry, request, partial(self.complete_live, entry))
        except OverBudget as error:
            self._end(UsageError(error.message, hint="a higher --budget goes on, with --keep from here"))

    def _end(self, why: LemmingError) -> NoReturn:
        """Stop here, so that it can go on from here."""
        with self._lock:
            # The first one: threads that end after it end because of it.
            self.stopped_by = self.stopped_by or why
        self.stop.set()
        raise Stopped

    def _dated(self, request: Request, reply: Reply) -> Reply:
        """Return an answer as of when the one at the same place came, or the tick began."""
        record = self.questions.at(request.agent, request.step)
        return reply._replace(at=record.at if isinstance(record, ModelReplied) else self._at)

    def use_tool(self, index: int, call: ToolCall, context: ToolContext) -> ToolResult:
        """Make a call that stays within the fork; of others return the recorded result, or make none."""
        if self._stays_inside(call, context):
            return self._within(super().use_tool(index, call, context))
        if (recorded := self._recorded_call(index, call, context.agent.name)) is not None:
            return self._within(recorded)
        if self.makes_calls and not self.is_dry:
            return super().use_tool(index, call, context)
        with self._lock:
            self.not_made.append(CallNotMade(context.tick, context.agent.name, call.tool))
        return ToolResult(False, NOT_MADE, outcome="skipped")

    def _stays_inside(self, call: ToolCall, context: ToolContext) -> bool:
        """Return whether all that a call does is read, and have the engine write, or be refused."""
        try:
            tools = toolset_of(context.settings, context.org)
            tool = tools.require(call.tool, context.agent, context.settings)
        except LemmingError:
            return True
        return isinstance(tool, EngineTool) and tool.tool_class in _INSIDE

    def _within(self, result: ToolResult) -> ToolResult:
        return replace(result, effects=tuple(moved_inside(self.base, effect) for effect in result.effects))

    def _recorded_call(self, index: int, call: ToolCall, agent: str) -> ToolResult | None:
        """Return the recorded result of the very same call in the same turn, best at the same place."""
        key = turn_key(agent, index // NUMBERS_PER_TURN)
        turn = self.recorded.turn_of(key) if self.recorded.records else None
        same = (it for it in turn.tools if (it.tool, it.args) == (call.tool, call.args)) if turn else ()
        for used in sorted(same, key=lambda it: it.index != index):
            if (finished := self.recorded.tools.get((agent, used.index))) is not None:
                return recorded_result(finished)
        return None


def tally(not_made: list[CallNotMade]) -> Iterator[str]:
    """Yield in words which calls were not made, each once."""
    for each in dict.fromkeys(not_made):
        count = not_made.count(each)
        yield f"tick {each.tick}: {each.agent}: {each.tool}" + (f" ({count} times)" if count > 1 else "")
