"""Waiting for the end of a request: ticks are run, or the engine that runs is waited for.

Why those who hold it take no turn, and whether that changes by itself, is looked up here too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from lemming import engine
from lemming.asking.outcome import AskOutcome
from lemming.capabilities.requests.now import RequestsNow, requests_now
from lemming.capabilities.requests.view import AllRequests, RequestView
from lemming.kernel.agents import Agent
from lemming.kernel.base.clock import Clock, SystemClock, timestamp
from lemming.kernel.base.deadlines import NEVER, Deadline
from lemming.kernel.base.errors import LemmingError, OrgBusy, UsageError
from lemming.kernel.journal.events import Event, Observer, TickBegins
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.records import TurnEnded, TurnStarted
from lemming.kernel.journal.report import TurnReport
from lemming.kernel.mail.answers import answer_in
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.schedule import next_due
from lemming.kernel.tick.addressed import stands_still, who_goes_on
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.snapshot import Snapshot, take_snapshot
from lemming.kernel.tick.turns_not_done import NotDone, read_turns_not_done
from lemming.kernel.turn.prepared import used_by
from lemming.kernel.turn.seams import Rest
from lemming.service.under_way import running_engine

FIRST_LOOK_S, LONGEST_LOOK_S, LOOKS_GROW = 0.05, 1.0, 1.3
_STOP_LOOK_S = 0.1
_HOW_TO_RUN = "`lemming run-once --agent {}` gives it a turn now"
STANDS_STILL = "came no further in its last turn, and gave no answer; a tick by the clock asks it again"


def rest_of(org: Organisation, names: Collection[str], clock: Clock | None) -> Rest:
    """Return why these agents take no turn as things stand."""
    now = _look(org, clock)
    found = [_rest_of_one(now, name) for name in names]
    said = "; ".join(f"{name} {it.why}" for name, it in zip(names, found, strict=True) if it.why)
    return Rest(said, any(it.comes_by_itself for it in found))


def goes_on(org: Organisation, names: Collection[str], clock: Clock | None) -> bool:
    """Return whether one of these agents would take a turn now for what is asked of it."""
    return bool(who_goes_on(_look(org, clock), names).now)


def _look(org: Organisation, clock: Clock | None) -> Snapshot:
    at = timestamp((clock or SystemClock()).now())
    return take_snapshot(org, load_config(org), load_tick(org), at=at)


def _rest_of_one(now: Snapshot, name: str) -> Rest:
    if why := now.plan.skipped.get(name) or now.plan.broken.get(name):
        return Rest(f"takes no turn: {why}", comes_by_itself=False)
    try:
        agent = now.agent(name)
        if rest := _outside(now, agent):
            return rest
        if agent.schedule.cron is not None:
            why = f"takes turns by the clock, and is not due ({_HOW_TO_RUN.format(name)})"
            return Rest(why, comes_by_itself=False)
        if (tick := next_due(agent.schedule, now.tick)) > now.tick:
            return Rest(f"is due in tick {tick} ({_HOW_TO_RUN.format(name)})", comes_by_itself=False)
        if stands_still(now.org, name) and name not in who_goes_on(now, [name]).now:
            return Rest(STANDS_STILL, comes_by_itself=False)
        reason = now.reason_of(name)
    except LemmingError as error:
        return Rest(f"takes no turn: {error}", comes_by_itself=False)
    # one that would take a turn all the same is at no fault; why its last one came to nothing is told apart
    return Rest("" if reason.takes_turn else reason.text, comes_by_itself=False)


def find_failure(org: Organisation, names: Collection[str]) -> NotDone | None:
    """Return the last turn of one of these agents that came to nothing, as `lemming status` tells it."""
    not_done = read_turns_not_done(org)
    return next((not_done[name] for name in names if name in not_done), None)


def _outside(now: Snapshot, agent: Agent) -> Rest | None:
    begun, asked = read_state(now.org, agent.name).requests, used_by(agent, now.config)
    return next((rest for it in asked if (rest := it.rest(now.org, agent, begun))), None)


@dataclass(frozen=True)
class AtWork:
    """Who is at work on a question: whose turn for it has begun, or who is to answer next.

    `waits`: what they wait for, in words, while no tick runs.
    """

    tick: int
    holders: tuple[str, ...]
    waits: str = ""


@dataclass
class _Following:
    """Hears what an engine does for one request, and for what is asked for it."""

    identity: str
    notify: Observer
    at_work: Callable[[AtWork], None] | None
    tick: int = 0
    failure: TurnReport | None = None

    def __post_init__(self) -> None:
        self._tree = {self.identity}

    def hear(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, TickBegins):
            self.tick, self.failure = event.tick, None
        elif isinstance(event, TurnStarted) and event.task and event.task["request"] in self._tree:
            if self.at_work:
                self.at_work(AtWork(self.tick, (event.agent,)))
        elif isinstance(event, TurnEnded) and event.report.request in self._tree:
            self._turn_ended(event.report)
        self.notify(event)

    def _turn_ended(self, turn: TurnReport) -> None:
        if turn.status == "failed":
            self.failure = turn
        asked = (entry["id"] for entry in turn.entries if entry["kind"] == "request")
        self._tree.update(f"{turn.agent}/{self.tick:08}_{id_}" for id_ in asked)


class Ending(threading.Event):
    """Set by the time that is up, or with the event of whoever asks, which is theirs and stays as it is."""

    def __init__(self, asked: threading.Event) -> None:
        super().__init__()
        self._asked = asked

    def is_set(self) -> bool:
        """Return whether either is."""
        return super().is_set() or self._asked.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until either is set, at most for `timeout` seconds; return whether one is."""
        deadline = NEVER if timeout is None else Deadline(timeout)
        while not self.is_set():
            if deadline.has_passed:
                return False
            super().wait(min(_STOP_LOOK_S, deadline.remaining()))
        return True


@dataclass
class Waiter:
    """Waits for one request, until the deadline."""

    org: Organisation
    identity: str
    stop: threading.Event
    deadline: Deadline
    at_work: Callable[[AtWork], None] | None
    watches: bool
    _announced: tuple[str, ...] = ()

    def outcome(self) -> AskOutcome[Any] | None:
        """Return what came of the request, or that nobody is to wait longer; None: it is to be waited for."""
        request = self._request(requests_now(self.org))
        if not request.is_open:
            return AskOutcome(
                request=request, end=request.end, answer=_answer_of(request), reason=_reason_of(request)
            )
        if self.stop.is_set():
            is_late = self.deadline.has_passed
            return AskOutcome(request=request, end=None, why="timeout" if is_late else "stopped")
        return None

    def run(self, clock: Clock | None, notify: Observer) -> AskOutcome[Any] | None:
        """Run ticks until there is an outcome; None when another engine runs, or there is news to look at."""
        following, ticks = _Following(self.identity, notify, self.at_work), 0
        reports = engine.ticks(
            self.org,
            interval_s=0,
            until_quiet=True,
            hurried=True,
            command="ask",
            watch=self.watches,
            clock=clock,
            notify=following.hear,
            stop=self.stop,
        )
        try:
            with closing(reports):  # type: ignore[type-var]
                for _ in reports:
                    ticks += 1
                    if outcome := self.outcome():
                        failure = following.failure if outcome.end == "failed" else None
                        return replace(outcome, error=failure.error) if failure else outcome
        except OrgBusy:
            return None
        return self.outcome() or self._nothing_to_do(ticks, following.failure, clock)

    def watch(self) -> AskOutcome[Any] | None:
        """Wait while another engine runs; None when none does any more."""
        pause = FIRST_LOOK_S
        while running_engine(self.org):
            if outcome := self.outcome():
                return outcome
            self._announce(requests_now(self.org))
            self.stop.wait(pause)
            pause = min(pause * LOOKS_GROW, LONGEST_LOOK_S)
        return self.outcome()

    def _nothing_to_do(
        self, ticks: int, failure: TurnReport | None, clock: Clock | None
    ) -> AskOutcome[Any] | None:
        """Return why nobody waits longer once no agent has anything to go on with.

        Other people who are to answer first are waited for, and so are a file and a moment, while no tick
        runs: None, once there is news.
        """
        now = requests_now(self.org)
        request = self._request(now)
        holders = holders_at_work(now.requests, request)
        people = now.people.intersection(holders)
        if ticks >= load_config(self.org).org.ticks_in_a_row:
            return AskOutcome(request=request, end=None, why="too_many_ticks")
        if failure:
            reason = f"{failure.agent}: {failure.reason}"
            return AskOutcome(request=request, end=None, why="failing", reason=reason, error=failure.error)
        if request.asker in people:
            return AskOutcome(request=request, end=None, why="waits_for_asker")
        agents = [name for name in holders if name not in people]
        rest = rest_of(self.org, agents, clock)
        if not (people or rest.comes_by_itself):
            if not rest.why and (turn := find_failure(self.org, agents)):
                reason = f"{turn.agent}: {turn.reason}"
                return AskOutcome(request=request, end=None, why="failing", reason=reason, error=turn.error)
            return AskOutcome(request=request, end=None, why="nothing_to_do", reason=rest.why)
        return self._wait_for_news(now, agents, rest, clock)

    def _wait_for_news(
        self, before: RequestsNow, agents: list[str], rest: Rest, clock: Clock | None
    ) -> AskOutcome[Any] | None:
        self._announce(before, rest.why)
        pause = FIRST_LOOK_S
        while requests_now(self.org) is before and not running_engine(self.org):
            if rest.comes_by_itself and goes_on(self.org, agents, clock):
                break
            if self.stop.wait(pause):
                break
            pause = min(pause * LOOKS_GROW, LONGEST_LOOK_S)
        return self.outcome()

    def _request(self, now: RequestsNow) -> RequestView:
        request = now.requests.by_identity.get(self.identity)
        if request is None:
            raise UsageError("the request is gone", hint="its entry was removed from the outbox")
        return request

    def _announce(self, now: RequestsNow, waits: str = "") -> None:
        holders = holders_at_work(now.requests, self._request(now))
        if self.at_work and (*holders, waits) != self._announced:
            self._announced = (*holders, waits)
            self.at_work(AtWork(now.requests.tick, holders, waits))


def holders_at_work(requests: AllRequests, request: RequestView) -> tuple[str, ...]:
    """Return who holds what is left of a request: those who wait for others are not among them."""
    is_open = {each.identity for _, each in requests.tree(request) if each.is_open}
    leaves = (
        requests.by_identity[it] for it in is_open if is_open.isdisjoint(requests.by_identity[it].children)
    )
    return tuple(sorted({holder for each in leaves for holder in each.holders}))


def _reason_of(request: RequestView) -> str:
    """Return what those said who failed or refused; empty where nobody did."""
    said = [answer_in(entry.payload) for entry in request.answers if entry.payload.get("status")]
    return str(said[-1]) if request.end in ("failed", "refused") and said and said[-1] else ""


def _answer_of(request: RequestView) -> Any:
    """Return the answer of a request that has ended: a value, or a list where several were asked."""
    if request.end != "answered":
        return request.default if request.end == "expired" else None
    answers = [answer_in(entry.payload, request.schema) for entry in request.answers]
    if len(request.shares) == 1 or request.wanted == 1:
        return answers[-1] if answers else None
    return answers
