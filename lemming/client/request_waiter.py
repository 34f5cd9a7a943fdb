"""Wait for the end of a request, by running ticks or by waiting for a running engine.

Also finds the reason the request's assignees take no turn, and if the reason ends by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from lemming import engine
from lemming.client.ask_outcome import AskOutcome
from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.blocking_deadline import NEVER, Deadline
from lemming.kernel.base.clock import Clock, SystemClock, timestamp
from lemming.kernel.base.errors import LemmingError, OrgBusy, UsageError
from lemming.kernel.journal.engine_events import Event, Observer, TickBegins
from lemming.kernel.journal.journal_records import TurnEnded, TurnStarted
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.org.capability_usage import find_used_capabilities
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.schedule import next_due
from lemming.kernel.tick.context_builder import build_tick_context
from lemming.kernel.tick.tick_counter import load_tick
from lemming.kernel.tick_context import TickContext
from lemming.kernel.turn.descriptions import OrgQuery
from lemming.kernel.turn.preparation import SkipReason
from lemming.kernel.turn.preparation_chain import load_capabilities
from lemming.kernel.turn.wake_check import turn_reason
from lemming.obligations.answer_fields import parse_answer
from lemming.obligations.org_requests import OrgRequests, load_requests
from lemming.obligations.request_view import AllRequests, RequestView
from lemming.operations.engine_lock import find_running_engine
from lemming.operations.pending_work import find_pending_work, is_stalled
from lemming.operations.unfinished_turns import load_unfinished_turns

FIRST_POLL_S, MAX_POLL_S, POLL_GROWTH = 0.05, 1.0, 1.3
_STOP_POLL_S = 0.1
_HOW_TO_RUN = "run `lemming run-once --agent {}` to give it a turn now"
STALLED = "made no progress in its last turn, and gave no answer; a tick by the clock asks it again"


def find_skip_reason(org: Organisation, names: Collection[str], clock: Clock | None) -> SkipReason:
    """Return the reason the agents currently take no turn."""
    tick_context = _build_tick_context(org, clock)
    reasons = {name: _find_agent_skip_reason(tick_context, name) for name in names}
    text = "; ".join(f"{name} {reason.reason}" for name, reason in reasons.items() if reason.reason)
    errors = {reason.error for reason in reasons.values()}
    error = errors.pop() if len(errors) == 1 else ""  # of several agents one may still answer
    return SkipReason(text, any(reason.resolves_itself for reason in reasons.values()), error)


def _build_tick_context(org: Organisation, clock: Clock | None) -> TickContext:
    at = timestamp((clock or SystemClock()).now())
    return build_tick_context(org, load_config(org), load_tick(org), at=at)


def _find_agent_skip_reason(tick_context: TickContext, name: str) -> SkipReason:
    if reason_text := tick_context.plan.skipped.get(name) or tick_context.plan.broken.get(name):
        return SkipReason(f"takes no turn: {reason_text}", resolves_itself=False)
    try:
        agent, config = tick_context.agent(name), tick_context.config
        query = OrgQuery(
            SkipReason, tick_context.org, {name: agent}, config, {name: read_state(tick_context.org, name)}
        )
        for capability in load_capabilities(find_used_capabilities(agent, config), config.org.plugins):
            if skip_reason := next(iter(query.ask(capability)), None):
                return skip_reason
        if agent.schedule.cron is not None:
            reason_text = f"takes turns by the clock, and is not due ({_HOW_TO_RUN.format(name)})"
            return SkipReason(reason_text, resolves_itself=False)
        if (tick := next_due(agent.schedule, tick_context.tick)) > tick_context.tick:
            return SkipReason(f"is due in tick {tick} ({_HOW_TO_RUN.format(name)})", resolves_itself=False)
        if is_stalled(tick_context.org, name) and name not in find_pending_work(tick_context, [name]).due_now:
            return SkipReason(STALLED, resolves_itself=False)
        reason = turn_reason(tick_context, name)
    except LemmingError as error:
        return SkipReason(f"takes no turn: {error}", resolves_itself=False)
    # an agent that would run anyway is not the cause; its last failure is reported separately
    return SkipReason("" if reason.takes_turn else reason.text, resolves_itself=False, error=reason.error)


@accept_old_names
@dataclass(frozen=True)
class WorkProgress:
    """Agents working on the request, or due to answer next. `waits`: text about their wait, while no tick runs."""

    tick: int
    assignees: tuple[str, ...]
    waits: str = ""


@dataclass
class _RequestObserver:
    """Observes an engine for events of a request and its sub-requests."""

    identity: str
    notify: Observer
    at_work: Callable[[WorkProgress], None] | None
    tick: int = 0
    failure: TurnReport | None = None

    def __post_init__(self) -> None:
        self._request_tree = {self.identity}

    def on_event(self, event: Event) -> None:
        """Handle an event and pass it on."""
        if isinstance(event, TickBegins):
            self.tick, self.failure = event.tick, None
        elif isinstance(event, TurnStarted) and event.task and event.task["request"] in self._request_tree:
            if self.at_work:
                self.at_work(WorkProgress(self.tick, (event.agent,)))
        elif isinstance(event, TurnEnded) and event.report.request in self._request_tree:
            report = event.report
            self.failure = report if report.status == "failed" else self.failure
            request_ids = (entry["id"] for entry in report.entries if entry["kind"] == "request")
            self._request_tree.update(f"{report.agent}/{self.tick:08}_{request_id}" for request_id in request_ids)
        self.notify(event)


class StopOrTimeout(threading.Event):
    """Event that is set by a timeout, or by the caller's event, which stays unchanged."""

    def __init__(self, caller_event: threading.Event) -> None:
        super().__init__()
        self._caller_event = caller_event

    def is_set(self) -> bool:
        """Return True if the timeout or the caller's event is set."""
        return super().is_set() or self._caller_event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until an event is set, for at most `timeout` seconds; return False after a timeout."""
        deadline = NEVER if timeout is None else Deadline(timeout)
        while not self.is_set():
            if deadline.has_passed:
                return False
            super().wait(min(_STOP_POLL_S, deadline.remaining()))
        return True


@dataclass
class Waiter:
    """Waits for a request until the deadline."""

    org: Organisation
    identity: str
    stop: threading.Event
    deadline: Deadline
    at_work: Callable[[WorkProgress], None] | None
    is_streaming: bool
    _announced: tuple[str, ...] = ()

    def check_outcome(self) -> AskOutcome[Any] | None:
        """Return the outcome of an ended request or an ended wait, or None to keep waiting."""
        request = self._find_request(load_requests(self.org))
        if not request.is_open:
            answer, reason = _extract_answer(request), _extract_reason(request)
            return AskOutcome(request=request, end=request.end, answer=answer, reason=reason)
        if self.stop.is_set():
            is_late = self.deadline.has_passed
            return AskOutcome(request=request, end=None, why="timeout" if is_late else "stopped")
        return None

    def run_ticks(self, clock: Clock | None, notify: Observer) -> AskOutcome[Any] | None:
        """Run ticks until an outcome; return None if another engine runs, or after news."""
        observer, ticks = _RequestObserver(self.identity, notify, self.at_work), 0
        reports = engine.ticks(
            self.org,
            interval_s=0,
            until_quiet=True,
            immediate=True,
            command="ask",
            watch=self.is_streaming,
            clock=clock,
            notify=observer.on_event,
            stop=self.stop,
        )
        try:
            with closing(reports):  # type: ignore[type-var]
                for _ in reports:
                    ticks += 1
                    if outcome := self.check_outcome():
                        failure = observer.failure if outcome.end == "failed" else None
                        return replace(outcome, error=failure.error) if failure else outcome
        except OrgBusy:
            return None
        return self.check_outcome() or self._wait_without_work(ticks, observer.failure, clock)

    def wait_beside_engine(self) -> AskOutcome[Any] | None:
        """Wait while another engine runs; return None once no engine runs."""
        pause = FIRST_POLL_S
        while find_running_engine(self.org):
            if outcome := self.check_outcome():
                return outcome
            self._report_assignees(load_requests(self.org))
            self.stop.wait(pause)
            pause = min(pause * POLL_GROWTH, MAX_POLL_S)
        return self.check_outcome()

    def _wait_without_work(self, ticks: int, failure: TurnReport | None, clock: Clock | None) -> AskOutcome[Any] | None:
        """Return the outcome once no agent has work, with the reason to stop waiting.

        Waits, without running ticks, for other people who have to answer first, for a file and for a time.
        Returns None after news.
        """
        org_requests = load_requests(self.org)
        request = self._find_request(org_requests)
        assignees = find_active_assignees(org_requests.requests, request)
        people = org_requests.people.intersection(assignees)
        if ticks >= load_config(self.org).org.ticks_in_a_row:
            return AskOutcome(request=request, end=None, why="too_many_ticks")
        if failure:
            reason = f"{failure.agent}: {failure.reason}"
            return AskOutcome(request=request, end=None, why="failing", reason=reason, error=failure.error)
        if request.asker in people:
            return AskOutcome(request=request, end=None, why="waits_for_asker")
        agents = [name for name in assignees if name not in people]
        skip_reason = find_skip_reason(self.org, agents, clock)
        if not (people or skip_reason.resolves_itself):
            unfinished = {} if skip_reason.reason else load_unfinished_turns(self.org)  # as `lemming status` shows them
            for turn in (unfinished[name] for name in agents if name in unfinished):
                reason = f"{turn.agent}: {turn.reason}"
                return AskOutcome(request=request, end=None, why="failing", reason=reason, error=turn.error)
            reason, error = skip_reason.reason, skip_reason.error
            return AskOutcome(request=request, end=None, why="nothing_to_do", reason=reason, error=error)
        return self._wait_for_news(org_requests, agents, skip_reason, clock)

    def _wait_for_news(
        self, org_requests: OrgRequests, agents: list[str], skip_reason: SkipReason, clock: Clock | None
    ) -> AskOutcome[Any] | None:
        self._report_assignees(org_requests, skip_reason.reason)
        pause = FIRST_POLL_S
        while load_requests(self.org) is org_requests and not find_running_engine(self.org):
            if skip_reason.resolves_itself and find_pending_work(_build_tick_context(self.org, clock), agents).due_now:
                break
            if self.stop.wait(pause):
                break
            pause = min(pause * POLL_GROWTH, MAX_POLL_S)
        return self.check_outcome()

    def _find_request(self, org_requests: OrgRequests) -> RequestView:
        request = org_requests.requests.by_identity.get(self.identity)
        if request is None:
            raise UsageError(
                "the request does not exist any more", hint="ask again; its entry was removed from the outbox"
            )
        return request

    def _report_assignees(self, org_requests: OrgRequests, waits: str = "") -> None:
        assignees = find_active_assignees(org_requests.requests, self._find_request(org_requests))
        if self.at_work and (*assignees, waits) != self._announced:
            self._announced = (*assignees, waits)
            self.at_work(WorkProgress(org_requests.requests.tick, assignees, waits))


def find_active_assignees(requests: AllRequests, request: RequestView) -> tuple[str, ...]:
    """Return the assignees of the open parts of a request, without assignees waiting for others."""
    open_requests = {view.identity: view for _, view in requests.iter_tree(request) if view.is_open}
    leaves = (view for view in open_requests.values() if open_requests.keys().isdisjoint(view.children))
    return tuple(sorted({holder for view in leaves for holder in view.assignees}))


def _extract_reason(request: RequestView) -> str:
    """Return the stated reason of a failed or refused request, or an empty text."""
    if request.end not in ("failed", "refused"):
        return ""
    stated_reasons = [parse_answer(entry.payload) for entry in request.answers if entry.payload.get("status")]
    return str((stated_reasons or [""])[-1] or "")


def _extract_answer(request: RequestView) -> Any:
    """Return the answer of an ended request: a value, or a list for several targets."""
    if request.end != "answered":
        return request.default_answer if request.end == "expired" else None
    answers = [parse_answer(entry.payload, request.schema) for entry in request.answers]
    if len(request.assignments) == 1 or request.required_answers == 1:
        return answers[-1] if answers else None
    return answers
