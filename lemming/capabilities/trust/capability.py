"""What trust does in a turn: it is trusted as far as the least trusted of all that it is shown.

Rules: docs/trust.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from lemming.capabilities.trust.authors import authors_in
from lemming.capabilities.trust.labels import Tracker
from lemming.capabilities.trust.marks import forget_marks, rename_marks
from lemming.capabilities.trust.settings import trust_in
from lemming.capabilities.trust.soundness import wrong_with_clean, wrong_with_trust
from lemming.capabilities.trust.tracing import TrustTracing
from lemming.capabilities.trust.turn import TurnTrust
from lemming.capabilities.trust.vouches import Vouches
from lemming.capabilities.trust.words import TRUST
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.contract import ToolCall
from lemming.kernel.base.errors import DiskError
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.fields import Json
from lemming.kernel.files.stamps import is_there
from lemming.kernel.journal.records import Record, ToolFinished
from lemming.kernel.org.config import Config, Org
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.firing_plan import people_in
from lemming.kernel.tick.soundness.inventory import Inventory
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.labels import Labels
from lemming.kernel.turn.moments import Keeps
from lemming.kernel.turn.opening import Surroundings
from lemming.kernel.turn.places import LetsIn, ToShow, Tracing, Words
from lemming.kernel.turn.seams import Capability, Moment, Preparation, Showing, TurnPart
from lemming.kernel.turn.seen import Seen
from lemming.kernel.turn.values import TurnInputs


class TrustOfTurns(Capability):
    """How far turns are trusted, where the key `trust` of the settings has it tracked."""

    name = TRUST

    def prepare(self, moment: Moment) -> Preparation:
        """Return what it has of what a turn starts from."""
        return TrustPreparation(moment)

    def part(self, draft: Draft, given: Json) -> TurnPart:
        """Return its part in a turn that is tracked."""
        return TrustPart(self.name, draft, given)

    def words(self, now: Surroundings) -> Words | None:
        """Return how far what turns are shown is trusted."""
        return now.own(authors_in) if trust_in(now.config.org) else None

    def tracing(self, now: Surroundings, inputs: TurnInputs) -> Tracing | None:
        """Return who looks at how far what the calls of a turn give is trusted."""
        return TrustTracing(now, inputs) if trust_in(now.config.org) else None

    def tools_named(self, said: Org | Agent) -> Iterable[str]:
        """Return the tools that the settings say something of."""
        trust = trust_in(said) if isinstance(said, Org) else None
        return trust.tools if trust else ()

    def wrong_with(self, agent: Agent | None, known: Inventory) -> Iterator[tuple[str, str, str]]:
        """Yield rules that are about nobody here, patterns that fit no tool, and what makes no turn clean."""
        trust = trust_in(known.config.org)
        if agent is not None:
            yield from wrong_with_clean(agent, trust, known.config)
        elif trust:
            yield from wrong_with_trust(trust, known)

    def keeps(self, org: Organisation, config: Config, survey: Survey) -> Keeps:
        """Return who says that people vouch for something by an entry: their word holds on."""
        people, is_one = frozenset(people_in(survey, config)), org.own(Vouches).is_one
        return lambda name: name.author in people and is_one(name)

    @contextmanager
    def renaming(self, base: OrgPath, before: str, after: str) -> Iterator[None]:
        """Have the marks of the files in a folder be those of another."""
        rename_marks(base, before, after)
        try:
            yield
        except DiskError:
            if is_there(f"{base}/{before}") and not is_there(f"{base}/{after}"):  # it stays where it is
                forget_marks(base, after)
            raise
        forget_marks(base, before)

    def kept_results(
        self, inputs: TurnInputs, records: Iterable[Record], results: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return results of a turn that is given up, each with how far it is trusted."""
        turn = TurnTrust.of(inputs)
        for record in records:
            if isinstance(record, ToolFinished):
                turn.take(record.trust)
        return [*map(turn.kept, results)]


class TrustPart(TurnPart):
    """How far one turn is trusted, and what it writes made to say so."""

    def __init__(self, name: str, draft: Draft, given: Json) -> None:
        super().__init__(name, draft, given)
        self._turn = TurnTrust(given, draft.inputs.agent.name, draft.inputs.tick)
        draft.noted[TRUST] = self._turn.as_json()

    def trust(self) -> str:
        """Return how far the turn is trusted by now."""
        return self._turn.word

    def after_call(self, index: int, call: ToolCall, result: ToolResult) -> None:
        """Note how far what a call gave is trusted."""
        if result.trust:
            self._turn.take(result.trust)
            self.draft.noted[TRUST] = self._turn.as_json()

    def writes(self, files: dict[str, FileEffect]) -> dict[str, FileEffect]:
        """Return files that say how far they are trusted, or have a mark for it."""
        return self._turn.borne(files)

    def shown_result(self, result: Json) -> Json:
        """Return a result that says how far it is trusted."""
        return self._turn.told(result)

    def seals(self) -> None:
        """Have all that the turn writes and leaves bear how far it is trusted in the end."""
        draft, turn = self.draft, self._turn
        draft.staged = turn.borne(draft.staged)
        draft.entries = [*map(turn.of_entry, draft.entries)]
        draft.last_words = [*map(turn.of_entry, draft.last_words)]
        draft.results = [*map(turn.kept, draft.results)]
        draft.outside = [*map(turn.kept, draft.outside)]


class TrustPreparation(Preparation):
    """Works out how far a turn is trusted as it begins."""

    @cached_property
    def _tracker(self) -> Tracker:
        return Tracker(self.moment)

    def labels(self) -> Labels:
        """Return the labels for the parts of the prompt."""
        return self._tracker.labels

    def looks(self, offered: ToShow, lets_in: LetsIn) -> ToShow:
        """Return what a turn is shown that is to be clean."""
        return self._tracker.clean(offered)

    def annotates(self, seen: Seen, shown: Showing) -> None:
        """Have the prompt say how far the turn, and each part of it, is trusted."""
        self._told = self._tracker.track(seen, shown)

    def given(self) -> Json:
        """Return how far the turn is trusted as it begins, and what made it so."""
        return self._told
