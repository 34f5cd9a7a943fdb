"""The turns of one agent in a tick: one, or one for each of so many requests; begun, resumed or found done.

They are taken one after another, each from what the one before it left; or, where nothing connects them, at
once, all from what the first one found (`tick.side_by_side`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

from lemming.kernel.base.turn_numbers import TURNS_PER_TICK, turn_key
from lemming.kernel.journal.file import Journal
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.lookup import start_and_end
from lemming.kernel.journal.records import (
    Record,
    TurnCommitted,
    TurnEnded,
    TurnResumed,
    TurnSkipped,
    TurnStarted,
    TurnStopped,
)
from lemming.kernel.journal.report import Reason
from lemming.kernel.tick.commits import Commits
from lemming.kernel.tick.edge import Stopped, tried, why_not_begun
from lemming.kernel.tick.permitted import NO_LONGER_ALLOWED, inputs_of
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tick.side_by_side import Row, may_be_at_once, start_of_further
from lemming.kernel.tick.snapshot import Snapshot
from lemming.kernel.turn.inputs import FurtherTurn, Gathered
from lemming.kernel.turn.on_record import begin_turn, from_record
from lemming.kernel.turn.parts import why_not_on
from lemming.kernel.turn.values import TurnInputs, TurnOutcome


class TickOfTurns(Protocol):
    """What a tick does for the turns of its agents, and what they share."""

    runtime: Runtime
    journal: Journal
    snapshot: Snapshot
    commits: Commits
    is_stopped: bool
    root: int

    @property
    def has_limits(self) -> bool:
        """Whether anything limits what the tick's turns may spend."""
        ...

    def again(self, ended: TurnEnded, started: TurnStarted | None) -> None:
        """Take a committed turn's report from its record, and let the others see what it wrote."""
        ...

    def run_turn(self, inputs: TurnInputs) -> TurnOutcome:
        """Take a turn to its end, and return what it has come to."""
        ...

    def commit(self, inputs: TurnInputs, outcome: TurnOutcome, *, again: bool) -> None:
        """Write what a turn came to, and commit it; `again`: an earlier attempt may have."""
        ...

    def count_attempts(self, name: str, turn: int) -> int:
        """Return the number of times that a turn was begun since it last came any further."""
        ...

    def refused_places(self, inputs: TurnInputs, records: list[Record]) -> dict[str, str]:
        """Return the reasons that a turn's files may not be written now, by `FileEffect.place`."""
        ...

    def given_up(self, started: TurnStarted, records: list[Record], reason: str, error: str) -> TurnOutcome:
        """Return the outcome of a turn that is given up for this reason."""
        ...

    def to_broken_outcome(self, inputs: TurnInputs, error: Exception) -> TurnOutcome:
        """Return the outcome of a turn that raised this; raise it where it was meant to end the run."""
        ...


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class _Begun:
    """A turn that has begun: what it starts from, and its record where it was begun before."""

    inputs: TurnInputs
    earlier: TurnStarted | None = None

    @property
    def request(self) -> str | None:
        """The request that it is for; empty: what the agent asked on its own account; None: the inbox."""
        return self.inputs.task.request if self.inputs.task else None


class AgentTurns:
    """Takes the turns of one agent in a tick, or finishes those that were interrupted."""

    def __init__(self, tick: TickOfTurns, name: str) -> None:
        self._tick, self._name = tick, name
        self._journal, self._commits, self._now = tick.journal, tick.commits, tick.snapshot
        self._taken: frozenset[str] = frozenset()
        agent = tick.snapshot.survey.agents.get(name)
        is_one = agent is not None and agent.turn.requests == 1
        self._may_be_several = bool(not is_one or self._journal.records)
        self._may_begin = True  # whether further turns may, besides those on record

    def take(self) -> Row | None:
        """Take them, or return those that are still to be taken, at once, with what is to follow then."""
        for turn in range(TURNS_PER_TICK):
            if self._tick.runtime.stop.is_set():
                self._tick.is_stopped = True
                return None
            started, ended = self._recorded(turn) if self._journal.records else (None, None)
            if ended:
                self._tick.again(ended, started)
                request = _request_of(started, ended)
                self._may_begin &= not (started and self._is_at_once(from_record(started, self._now.tick)))
            else:
                begun = self._begin(turn, started)
                if begun is None:
                    return None
                if not turn and self._may_be_several and (row := self._row(begun)):
                    return row
                if not self._finish(begun):
                    return None
                request = begun.request
            if request is None or not self._may_go_on(turn):
                return None
            self._taken |= {request}
        return None

    def _recorded(self, turn: int) -> tuple[TurnStarted | None, TurnEnded | None]:
        records = self._journal.records_of(self._name, turn)
        return start_and_end(records) if records else (None, None)

    def _begin(self, turn: int, started: TurnStarted | None) -> _Begun | None:
        """Begin a turn, or take it up again; None where none is to be taken."""
        if started:
            return _Begun(inputs_of(started, self._now), started)
        found = self._next_inputs(turn, self._commits.states[self._name]) if turn else self._first_inputs()
        return _Begun(found) if found else None

    def _may_go_on(self, turn: int) -> bool:
        """Return True if the agent's next turn of the tick may follow this one."""
        if self._journal.records_of(self._name, turn + 1):  # it was begun by an earlier attempt
            return True
        report = self._commits.reports.get(turn_key(self._name, turn))
        agent = self._now.survey.agents.get(self._name)
        if report is None or agent is None or report.end == "paused" or not self._may_begin:
            return False
        return turn + 1 < agent.turn.requests and not self._commits.is_gone(self._name)

    def _finish(self, begun: _Begun) -> bool:
        """Take a turn to its end, and commit it; return whether it was not stopped."""
        if (outcome := self._outcome(begun)) is None:
            return False
        self._tick.commit(begun.inputs, outcome, again=begun.earlier is not None)
        return True

    def _outcome(self, begun: _Begun) -> TurnOutcome | None:
        """Return the outcome of a turn; None if the operator stopped it."""
        try:
            if not self._tick.runtime.stop.is_set():
                if begun.earlier:
                    return self._resumed(begun.earlier, begun.inputs)
                return self._tick.run_turn(begun.inputs)
        except Stopped:
            numbered = {"turn": begun.inputs.turn} if begun.inputs.turn else {}
            self._journal.append(TurnStopped(agent=self._name, **numbered))
        self._tick.is_stopped = True
        return None

    # --- at once ------------------------------------------------------------------------------

    def _is_at_once(self, inputs: TurnInputs) -> bool:
        agent = self._now.survey.agents.get(self._name)
        if agent is None or agent.turn.requests == 1 or self._tick.has_limits:
            return False
        tools = self._now.toolset.allowed(agent, self._now.config.org).values()
        return may_be_at_once(inputs, tools, agent.turn.requests)

    def _row(self, first: _Begun) -> Row | None:
        """Begin the turns that go with the first at once; None where it is alone, or they have an order."""
        is_on_record = self._recorded(1)[0] is not None  # a second turn began, and the first is not over
        may_begin = self._is_at_once(first.inputs)
        if first.request is None or not (is_on_record or may_begin):
            return None
        row, self._taken, self._may_begin = [first], frozenset({first.request}), False
        state = start_of_further(first.inputs.state, first.request)
        for turn in range(1, TURNS_PER_TICK):
            started, _ = self._recorded(turn)
            following = self._begin(turn, started) if started else None
            if not started and may_begin and turn < self._now.survey.agents[self._name].turn.requests:
                found = self._next_inputs(turn, state, may_have_budget=False)
                following = _Begun(found) if found else None
            if following is None:
                break
            row.append(following)
            self._taken |= {following.request or ""}
        if len(row) == 1:
            return None
        outcomes: dict[int, TurnOutcome] = {}

        def store_outcome(begun: _Begun) -> None:
            if outcome := self._outcome(begun):
                outcomes[begun.inputs.turn] = outcome

        def finish() -> None:
            if len(outcomes) == len(row):  # else one was stopped: the next run has all the answers there are
                for begun in row:
                    again = begun.earlier is not None
                    self._tick.commit(begun.inputs, outcomes[begun.inputs.turn], again=again)

        return Row([partial(store_outcome, begun) for begun in row], finish)

    # --- how a turn begins --------------------------------------------------------------------

    def _first_inputs(self) -> TurnInputs | None:
        """Begin the agent's first turn, or say why it takes none."""
        now, name, looks, plan = self._now, self._name, None, self._now.plan
        root, held = self._tick.root, self._commits
        if name in now.idle.often_idle and not (plan.at_once or plan.chosen):
            if turn := now.idle.recall(name, now.mail, root, held.held_paths):
                held.end(TurnSkipped(report=turn))
                return None
            # Before anything is read: a change that comes during the reading then shows.
            looks = now.idle.look_at(name, root)
        found = tried(lambda: now.inputs_of(name, held.held_files))
        if isinstance(found, Exception):
            held.end(TurnCommitted(report=why_not_begun(found).report(name)))
            return None
        if isinstance(found, Reason):
            turn = found.report(name)
            if looks:
                now.idle.remember(turn, looks, now.mail)
            held.end(TurnSkipped(report=turn))
            return None
        for problem in found.problems:
            self._tick.runtime.tell(problem, name)
        begin_turn(self._journal, found)
        return found.inputs

    def _next_inputs(
        self, turn: int, state: AgentState, *, may_have_budget: bool = True
    ) -> TurnInputs | None:
        """Begin a further turn, where a request is left for one."""
        self._commits.write_held()  # it starts from what those before it wrote
        following = FurtherTurn(number=turn, taken=self._taken, state=state)
        found = tried(lambda: self._now.inputs_of_next(self._name, following))
        if not isinstance(found, Gathered):  # the agent's first turn of the next tick says what is wrong
            return None
        task = found.inputs.task
        if task and task.has_budget and not may_have_budget:  # it waits for a tick in which it is the first
            return None
        begin_turn(self._journal, found)
        return found.inputs

    def _resumed(self, started: TurnStarted, inputs: TurnInputs) -> TurnOutcome:
        """Return the outcome of an interrupted turn, also of one that is given up."""
        tick, records = self._tick, self._journal.records_of(started.agent, started.turn)
        attempts, reason = tick.count_attempts(started.agent, started.turn), ""
        if attempts >= self._now.config.org.max_attempts:
            ended = f"the engine ended {attempts} times during this turn"
            reason = f"{ended}; given up so that the tick can go on (config/org.json max_attempts)"
        elif self._commits.is_gone(started.agent):
            reason = "the agent was removed during its turn"
        if reason:
            return tick.given_up(started, records, reason, "Interrupted")
        why = tried(lambda: self._why_no_more(inputs, records))
        if isinstance(why, Exception):
            return tick.to_broken_outcome(inputs, why)
        if why:
            return tick.given_up(started, records, why, NO_LONGER_ALLOWED)
        # Recorded before it goes on: an attempt that ends the engine counts towards `max_attempts`.
        numbered = {"turn": started.turn} if started.turn else {}
        self._journal.append(TurnResumed(agent=started.agent, **numbered))
        return tick.run_turn(inputs)

    def _why_no_more(self, inputs: TurnInputs, records: list[Record]) -> str:
        """Return the reason that a turn cannot resume; empty if it can."""
        for place, why in self._tick.refused_places(inputs, records).items():
            return f"its journal records a file that may not be written now, {place}: {why}"
        return why_not_on(inputs, self._now)


def _request_of(started: TurnStarted | None, ended: TurnEnded) -> str | None:
    """Return the request that a turn on record was for; None where it was for none."""
    if started is None:  # of a further turn that a replay does not take again, only the end
        return ended.report.request if ended.turn else None
    return started.task["request"] if started.task else None
