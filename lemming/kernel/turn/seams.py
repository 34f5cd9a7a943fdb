"""The seams of a turn: the moments at which a capability takes part, in the order in which they come.

    prepare (files)  ->  given.<name>, recorded before any question  ->  opens  ->  replies, calls  ->  closes

A turn has parts of those capabilities only that gave something as it began, or have to do with what it
starts from: from its record alone, so that one that is resumed, replayed or explained has the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemming.kernel.access.trust import Reach
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base import paths
from lemming.kernel.base.contract import NewEntry, ToolCall, TurnReply
from lemming.kernel.base.errors import LemmingError, Problem
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.begun import Asked, Begun
from lemming.kernel.journal.file import Journal
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.records import Record, ToolFinished
from lemming.kernel.journal.report import End, Status, TurnReport
from lemming.kernel.mail.capability_notes import CallNote, WaitingForPerson
from lemming.kernel.mail.visibility import Mail
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import ORG_FILE, Config, Org, block_of
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.org.uses import Habits
from lemming.kernel.providers import Message, Request
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.moments import (
    Awaits,
    Drive,
    Fact,
    InUse,
    Keeps,
    Moment,
    No,
    NoSettings,
    Rest,
    Showing,
    TickLimits,
)
from lemming.kernel.turn.opening import Surroundings
from lemming.kernel.turn.places import (
    Asking,
    CallLookout,
    CallsOfTick,
    Carried,
    Gathering,
    Held,
    Holder,
    Lookout,
    Shared,
    Tracing,
    Words,
)
from lemming.kernel.turn.preparing import Preparation
from lemming.kernel.turn.values import Purpose, Steps, TurnInputs

if TYPE_CHECKING:
    from lemming.kernel.turn.draft import Draft
    from lemming.kernel.turn.strategy import Turn

__all__ = [
    "Capability", "Drive", "Fact", "Held", "Holder", "InUse", "Moment",
    "No", "NoSettings", "Preparation", "Rest", "Showing", "TurnPart",
]  # fmt: skip


class TurnPart:
    """One capability's part in one turn. Pure: values in, values out; what it asks goes through the draft.

    After a crash the turn is taken again with the answers that are on record, so a part comes to the same.
    """

    def __init__(self, name: str, draft: Draft, given: Json) -> None:
        self.name, self.draft, self.given = name, draft, given

    def opens(self) -> End | None:
        """Do what comes before the turn's first question; return how the turn ends, if that ends it.

        Calls through `draft.use`, questions through `draft.ask`: each is recorded before what follows.
        """
        return None

    def steps(self, turn: Turn, plugins: tuple[str, ...] | None) -> Steps | None:
        """Return what is asked and done, in place of `react`; None: nothing of its own. The first counts."""
        return None

    def drives(self, turn: Turn, drive: Drive, steps: Steps) -> End:
        """Have `drive` do what a strategy says, and return how the turn ends: judge it, have it go on."""
        return drive(steps)

    def reads(self, reply: TurnReply) -> None:
        """Raise `ContractError` for a reply that will not do now: the model is asked again, if it may be."""

    def fits(self, entries: list[NewEntry]) -> list[NewEntry | list[str]]:
        """Return each entry of a reply as it is kept, or what is wrong in its payload; one part does."""
        return [*entries]

    def carries(self, payloads: Sequence[Json], at: str) -> Sequence[Carried]:
        """Return payloads with what is known of files that go with them; looked at through the draft."""
        return [Carried(payload) for payload in payloads]

    def replied(self, first: int, written: int, before: Mapping[str, FileEffect], *, has_seen: bool) -> None:
        """Take note of what a reply has staged, its calls made: of the draft's entries those from `first` on.

        `written` of these are its own, not its calls'; `before`: the files there were before its memories.
        `has_seen`: a model gave it; else it is what a strategy does for itself.
        """

    def watches(self) -> Lookout | None:
        """Return who looks at what goes through this turn, after all else; None: nobody. One part does."""
        return None

    def before_call(self, call: ToolCall) -> ToolCall | No:
        """Let a call be made, changed or not. Nothing has happened yet; gates look at what this leaves."""
        return call

    def takes(self, call: ToolCall, at: str) -> bool:
        """Return whether a call is this part's own: it does what there is to do, and no tool is called."""
        return False

    def after_call(self, index: int, call: ToolCall, result: ToolResult) -> None:
        """Take note of what the turn's call number `index` gave. It is recorded, and is not made again."""

    def trust(self) -> str:
        """Return how far the turn is trusted by now, in a word; empty: it does not know. The first counts."""
        return ""

    def writes(self, files: dict[str, FileEffect]) -> dict[str, FileEffect]:
        """Return what is staged as a call that reaches outside has it written: with marks before files."""
        return files

    def shown_result(self, result: Json) -> Json:
        """Return a result of a call as the model is told of it within the turn; what is kept is not that."""
        return result

    def asks(self, new: NewEntry, asking: Asking, at: str) -> None:
        """See to an entry that waits for a person's word: it is not written, a result tells the model."""

    def holds(self, new: NewEntry) -> Json:
        """Return what is kept until a request of its, which a call wrote, is answered: `Asked.held`."""
        return {}

    def stopped(self, verdict: Json) -> None:
        """Take note that a limit which says "ask" keeps a question from being asked."""

    def seals(self) -> None:
        """Have what is staged and what is left say what it has to: nothing of it changes any more."""

    def adds(self) -> list[Json]:
        """Return the payloads of requests that the turn writes after its own entries, if it comes off."""
        return []

    def added(self, entries: Sequence[OutboxEntry]) -> None:
        """Take note of the entries that these have become, as far as there was room."""

    def concludes(self, end: End, error: LemmingError | None) -> End:
        """Return how the turn ends that comes to this, by `error` or of itself, and see to what it writes.

        Asked first of all once it is over; what it leaves is what is written, and looked at by no gate.
        """
        return end

    def may_rest(self) -> bool:
        """Return whether the turn may say nothing, and leave open what it was asked."""
        return False

    def waits_for(self) -> str:
        """Return what a turn that waits is waiting for, as far as this part knows; empty: it does not."""
        return ""

    def amends(self, state: AgentState, status: Status, end: End) -> None:
        """Put down in the agent's state, in place, what the turn makes of it; "failed": nothing counts."""

    def fills(self, new: NewEntry, *, alone: bool) -> NewEntry | No:
        """Return an entry with what is known of it, before anybody looks at it; or why there can be none.

        `alone`: it is apart from what the turn is for. Of the engine's entries, too.
        """
        return new

    def is_answered(self) -> bool:
        """Return whether what the turn is for has its answer, so that nothing more need be asked."""
        return False

    def leaving(self, new: NewEntry, at: str) -> NewEntry | No:
        """Let an entry leave, changed or not; it is staged, not written. `at`: when its reply came."""
        return new

    def closes(self, *, is_applied: bool, holds_all: bool) -> Json:
        """Return what the agent's ledger keeps as `kept.<name>`, all of it; empty: nothing.

        `is_applied`: what the turn wrote counts; else it failed. `holds_all`: it may count, as its files may
        have been written. A crash before the ledger is written takes the turn again.
        """
        kept: Json = self.draft.inputs.state.kept.get(self.name, {})
        return kept


class Capability:
    """What a capability is to the engine: one value for a process, which keeps nothing.

    `name` is its name in the table, in records and in ledgers. Of one that does not ship, `settings` is the
    dataclass of its block in `config/org.json`, `resume_settings` that of its block in a resume, and `after`
    names those that are asked before it.
    """

    name: str
    settings: type[Any] = NoSettings
    resume_settings: type[Any] = NoSettings
    after: tuple[str, ...] = ()

    def settings_in(self, config: Config) -> Any:
        """Return what `config/org.json` says of it; None where nothing. Raises `ConfigError`."""
        return block_of(self.name, self.settings, config.org.capabilities, ORG_FILE)

    def settings_of(self, agent: Agent) -> Any:
        """Return what a resume says of it; None where nothing. Raises `ConfigError`."""
        return block_of(self.name, self.resume_settings, agent.capabilities, paths.resume_file(agent.name))

    def habits(self, agent: Agent) -> Habits | None:
        """Return how an agent takes turns whose model key stands for a provider of this capability."""
        return None

    def entries_of(self, call: ToolCall) -> Sequence[NewEntry]:
        """Return what a successful call of one of its tools has the turn write: from the record alone."""
        return ()

    def prepare(self, moment: Moment) -> Preparation | None:
        """Return what it has of what a turn starts from; None: it has nothing to do with this turn."""
        return None

    def part(self, draft: Draft, given: Json) -> TurnPart:
        """Return its part in a turn that began with this."""
        return TurnPart(self.name, draft, given)

    def holder(
        self, now: Surroundings, inputs: TurnInputs, finished: Mapping[int, ToolFinished]
    ) -> Holder | None:
        """Return who says what becomes of calls for which approval is wanted; None: it does not.

        It is asked live, before a call is made; what it says is recorded as the call's result.
        """
        return None

    def model_of(self, given: Json, key: str) -> ModelEntry | None:
        """Return what a model key stands for that its part asks, and that no line of a file has; or None."""
        return None

    def completes(
        self, request: Request, entry: ModelEntry, inputs: TurnInputs, base: Path, held: Mapping[str, bytes]
    ) -> Request:
        """Return a question of a turn as its model is asked: with what no record holds, read from files."""
        return request

    def looks_at_calls(self, now: Surroundings, inputs: TurnInputs) -> CallLookout | None:
        """Return who looks at a turn's calls as they are made; None: it does not. Of those in use now."""
        return None

    def limits(
        self, now: Surroundings, journal: Journal, order: Sequence[str], reports: Mapping[str, TurnReport]
    ) -> TickLimits | None:
        """Return what a tick's turns may spend, `reports` of those over; None: all. The first counts."""
        return None

    def gathers(self, calls: CallsOfTick) -> Gathering | None:
        """Return where the model calls of a tick wait for each other; None: each is made at once.

        Asked of the one that the run names, and else of whoever has records in the tick's journal.
        """
        return None

    def shares(self, agents: Mapping[str, Agent], settings: Org) -> Iterable[Shared]:
        """Return what turns of these agents share beside files, for which they wait for each other."""
        return ()

    def words(self, now: Surroundings) -> Words | None:
        """Return how far what turns are shown is trusted; None: it does not know. One capability does."""
        return None

    def tracing(self, now: Surroundings, inputs: TurnInputs) -> Tracing | None:
        """Return who looks at where the calls of a turn reach, live, beside its part; None: nobody."""
        return None

    def why_not(self, inputs: TurnInputs, now: Surroundings) -> str:
        """Return why a turn that a crash cut off may not go on as its record says it began; empty: it may."""
        return ""

    def given_up(
        self, state: AgentState, inputs: TurnInputs, records: Iterable[Record], error: str
    ) -> AgentState:
        """Return the state of an agent whose turn is given up by an error, by the records of that turn."""
        return state

    def purpose_in(self, plain: Json) -> Purpose | None:
        """Return what a turn is for, as its record has it; raise `ValueError` for what is none. One does."""
        return None

    def awaits(self, mail: Mail) -> Awaits | None:
        """Return who says of an entry past its retention that it is still waited for, used or not."""
        return None

    def kept_results(
        self, inputs: TurnInputs, records: Iterable[Record], results: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return results of a turn that is given up, by its records, as the next turn has them."""
        return results

    def require_kept(self, kept: Json) -> None:
        """Raise `ValueError` for what it did not keep: asked as a ledger is read; of those that ship."""

    def require_held(self, held: Json) -> None:
        """Raise `ValueError` for what it did not have a request hold, likewise."""

    def rest(self, org: Organisation, agent: Agent, begun: Sequence[Begun]) -> Rest | None:
        """Return why an agent does not go on with these requests, where it waits for something outside."""
        return None

    def asked(self, kept: Json) -> Sequence[Asked]:
        """Return what an agent asked, beside what its requests hold, of what it keeps."""
        return ()

    def raises(self, kept: Json, line: str) -> Mapping[str, Json]:
        """Return by how much the limit that stands in a line was raised, by the request that asked for it."""
        return {}

    def decides(self, payload: Mapping[str, Any]) -> bool:
        """Return whether the payload of a response answers a request of its."""
        return True

    def waiting(self, org: Organisation, requests: Iterable[Any]) -> Mapping[str, WaitingForPerson]:
        """Return what waits for persons, by request, of its open ones as `requests` shows them."""
        return {}

    def note(self, kept: Json) -> CallNote:
        """Return what is to be said of a call that it kept this with."""
        return CallNote("", "", "")

    def problems_of_org(self, base: OrgPath, config: Config, only: str | None) -> Iterator[Problem]:
        """Yield what is wrong with how the organisation uses it; `only`: about one agent."""
        yield from ()

    def keeps(self, org: Organisation, config: Config, survey: Survey) -> Keeps | None:
        """Return who says of an entry past its retention that it stays; None: nobody does."""
        return None

    def tools_named(self, said: Org | Agent) -> Iterable[str]:
        """Return the tools that its key in the settings, or in a resume, names, as names or patterns."""
        return ()

    def wrong_with(self, agent: Agent | None, known: Any) -> Iterator[tuple[str, str, str]]:
        """Yield place, message, hint of what its key of a resume (None: the settings) has and `known` not."""
        yield from ()

    def problems_of_key(self, base: OrgPath, agent: Agent | None, config: Config) -> Iterator[Problem]:
        """Yield what else is wrong with its key in a resume (None: in the settings)."""
        yield from ()

    def problems_of_files(self, base: OrgPath, agent: Agent, config: Config) -> Iterator[Problem]:
        """Yield what is wrong with files of its, of an agent that uses it or not; of those that ship."""
        yield from ()

    def roots_outside(self, agents: Iterable[Agent]) -> Iterable[str]:
        """Return where it looks for files outside the usual folders: copies and the past take these along."""
        return ()

    def files_outside(self, base: OrgPath, agents: Iterable[Agent]) -> Iterable[str]:
        """Return the files that are there, below these."""
        return ()

    def questions(self, given: Json) -> Mapping[str, Sequence[Message]]:
        """Return what its part asks before the turn's own questions, by purpose: limits reserve for these."""
        return {}

    def problems(self, agent: Agent, config: Config) -> Iterator[Problem]:
        """Yield what is wrong with how an agent uses it, for `lemming validate`."""
        yield from ()

    def renaming(self, base: OrgPath, before: str, after: str) -> AbstractContextManager[None]:
        """Have what it keeps of a folder's files follow where the block moves them; again after a crash."""
        return nullcontext()

    def reaches(
        self, org: Organisation, config: Config, agents: Sequence[Agent], servers: Collection[str]
    ) -> Iterator[Reach]:
        """Yield what a person agrees to, in sentences; `servers`: those named beside those of agents."""
        yield from ()

    def facts(self, used: InUse) -> Iterable[Fact]:
        """Return what screens say of it: a line of `lemming status`, a card of the page. Only to look."""
        return ()
