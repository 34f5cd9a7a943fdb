"""What requests do in a turn: one is answered, waits, or has failed; others are begun and open. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from lemming.capabilities.requests.agenda import agenda_of
from lemming.capabilities.requests.charges import Charges
from lemming.capabilities.requests.known_requests import is_awaited
from lemming.capabilities.requests.open_requests import (
    answering,
    count_asked,
    find_still_open,
    list_own_account,
)
from lemming.capabilities.requests.request_turn import (
    MOST_FAILURES,
    MOST_TURNS,
    NOT_ANSWERED,
    Serving,
    serving_of,
)
from lemming.capabilities.requests.settings import team_of
from lemming.capabilities.requests.shown_requests import fail_shown_requests, has_answer
from lemming.capabilities.requests.team import (
    answered_results,
    check_hand_on,
    delegate,
    facts_for_asking,
    hands_on,
    team_tools,
    why_beyond_budget,
)
from lemming.kernel.base.contract import NewEntry, ToolCall, TurnReply
from lemming.kernel.base.errors import (
    ContractError,
    LemmingError,
    Problem,
    ToolError,
    TurnBroke,
    TurnTooLong,
    is_final,
    name_of,
)
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.begun import Begun
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.lost_calls import NONE_LOST, lost_in
from lemming.kernel.journal.records import ModelReplied, Record
from lemming.kernel.journal.report import End, Status
from lemming.kernel.mail.agenda import Agenda
from lemming.kernel.mail.holds import Holds
from lemming.kernel.mail.task import Task
from lemming.kernel.mail.visibility import Mail, View
from lemming.kernel.messages import OutboxEntry, targets_in
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.resume import Agent
from lemming.kernel.org.uses import Habits, habits_of
from lemming.kernel.plugins.shipped import REQUESTS
from lemming.kernel.tick.soundness.inventory import Inventory
from lemming.kernel.tools import Tool
from lemming.kernel.turn.dialogue import keep_dialogue
from lemming.kernel.turn.draft import Draft
from lemming.kernel.turn.ending import GOES_ROUND, is_applied, last_round
from lemming.kernel.turn.labels import Labels
from lemming.kernel.turn.loop_breaker import loop_limits
from lemming.kernel.turn.moments import Awaits
from lemming.kernel.turn.notices import is_notice
from lemming.kernel.turn.seams import Capability, Moment, No, Preparation, Showing, TurnPart
from lemming.kernel.turn.values import Purpose, TurnInputs


def serving_in(draft: Draft) -> Serving | None:
    """Return the request that a turn is for, or what the agent asked on its own account; None: neither."""
    return draft.task if isinstance(draft.task, Serving) else None


def given_up(draft: Draft, why: str, at: str = "") -> list[OutboxEntry]:
    """Return the turn's entries with one that says that its request has failed, `at` a moment if known."""
    serving = serving_in(draft)
    assert serving, "only a request is given up"
    new = serving.failed(why)
    at = at or (draft.answers[-1].at if draft.answers else serving.at)
    draft.remarks.append(f"the request has failed: {why}"[:500])
    return [*draft.entries, draft.as_entry(new, draft.next_id(), at)]


class Requests(Capability):
    """Requests, in turns that have to do with any."""

    name = REQUESTS

    def part(self, draft: Draft, given: Json) -> TurnPart:
        """Return its part in a turn."""
        return RequestsPart(self.name, draft, given)

    def prepare(self, moment: Moment) -> Preparation:
        """Return whom the turn may ask, and what came of what was asked."""
        return RequestsPreparation(moment)

    def purpose_in(self, plain: Json) -> Purpose:
        """Return the request that a turn is for, as its record has it."""
        return Serving.from_json(plain)

    def given_up(
        self, state: AgentState, inputs: TurnInputs, records: Iterable[Record], error: str
    ) -> AgentState:
        """Return the state of an agent whose turn broke: that it came to nothing counts for its request."""
        if isinstance(inputs.task, Serving):
            replies = [it for it in records if isinstance(it, ModelReplied)]
            cost, counts = inputs.task.cost_of(replies, lost_in(records)), error == TurnBroke.__name__
            if counts or (cost and inputs.task.counts_open):
                state.requests = inputs.task.after_failure(
                    state.requests, cost, counts=counts, asked=len(replies)
                )
        return state

    def awaits(self, mail: Mail) -> Awaits:
        """Return who says of an entry that it is an open request, or an answer its asker has not seen."""
        return partial(is_awaited, mail)

    def wrong_with(self, agent: Agent | None, known: Inventory) -> Iterator[tuple[str, str, str]]:
        """Yield those who can never be in a team."""
        if agent is not None and (team := team_of(agent)):
            from lemming.capabilities.requests.problems import wrong_with_team

            yield from wrong_with_team(agent, team, known)

    def problems_of_key(self, base: OrgPath, agent: Agent | None, config: Config) -> Iterator[Problem]:
        """Yield those of a team who cannot read what they are asked, and whose answers are not read."""
        if agent is not None and (team := team_of(agent)):
            from lemming.capabilities.requests.problems import problems_of_team

            yield from problems_of_team(base, agent, team)

    def problems_of_org(self, base: OrgPath, config: Config, only: str | None) -> Iterator[Problem]:
        """Yield a warning for each open request that reaches nobody, or whose answers nobody gets."""
        from lemming.capabilities.requests.problems import problems_of_requests

        with suppress(LemmingError):  # it is told of elsewhere
            yield from problems_of_requests(base, only)


class RequestsPreparation(Preparation):
    """Whom an agent may ask, as a turn of its is put together, and what came of what it has asked."""

    _task: Task | None = None
    _has_answer = False

    def tools(self) -> Iterable[Tool]:
        """Return the tools with which the agent asks its team, and hands on."""
        return team_tools(self.moment.agent).values()

    def agenda(self, view: View, habits: Habits, holds: Holds) -> Agenda | None:
        """Return what is asked of the agent."""
        state = self.moment.state
        return agenda_of(view, self.moment.agent.name, state.requests, habits, holds)

    def purpose(self, task: Task) -> Purpose:
        """Return the request that a turn is for: with its payload where there is anybody to hand it on to."""
        team = team_of(self.moment.agent)
        may_hand_on = team is not None and bool(team.hand_to)
        agent, now, request = self.moment.agent, self.moment.now, task.request
        # What people wrote in a file, such as a plan, asks no model.
        is_written = habits_of(agent, now.config).is_written
        most = 0 if is_written else loop_limits(agent, now.config.org.loops).max_calls
        if request is None or "budget" not in request.payload:
            return serving_of(task, at=now.at, may_hand_on=may_hand_on, max_calls=most)
        charges = Charges(now)
        budget = charges.find_budget(request, agent.name)
        charged, allotted = charges.of_task(task, budget.unit) if budget else (0.0, 0.0)
        return serving_of(
            task,
            at=now.at,
            may_hand_on=may_hand_on,
            max_calls=most,
            budget=budget,
            charged=charged,
            allotted=allotted,
        )

    def earlier_results(
        self, task: Task, results: Sequence[Mapping[str, Any]], labels: Labels
    ) -> Sequence[Mapping[str, Any]]:
        """Return the results of calls, with the answers in their places that have come since."""
        return answered_results(results, task.asked, len(results) - len(task.begun.results), labels)

    def shows(self, shown: Showing) -> Showing:
        """Take note of what the turn is for, and of an answer that the agent waits for."""
        self._task, self._has_answer = shown.task, has_answer(shown, self.moment)
        return shown

    def given(self) -> Json:
        """Return the tools that would reach nobody, agents that no budget would bound, and any answer."""
        facts = facts_for_asking(self.moment.now, self.moment.agent, self._task)
        return {**facts, "answered": True} if self._has_answer else facts


class RequestsPart(TurnPart):
    """The request that a turn is for, if any, and those that its agent has begun or is shown."""

    _gave_nothing = False  # the model answered, and it was of no use, or its time was over before it did

    def __init__(self, name: str, draft: Draft, given: Json) -> None:
        super().__init__(name, draft, given)
        self._team = team_tools(draft.inputs.agent)
        self._serving, draft.has_answer = serving_in(draft), "answered" in given

    @property
    def _task(self) -> Serving | None:
        """The request, where the turn is for one, and not for what the agent asked on its own account."""
        return self._serving if self._serving and self._serving.request else None

    def opens(self) -> End | None:
        """Give up a request before anybody is asked, where whatever a model says would change nothing."""
        if self._serving and (why := self._serving.why_given_up):
            self.draft.entries = given_up(self.draft, why)
            return "done"
        return None

    def reads(self, reply: TurnReply) -> None:
        """Refuse a reply that says nothing, where a request is to be answered."""
        says_anything = reply.outbox_entries or reply.tool_calls or reply.goes_on or self.draft.entries
        if self._task and not (says_anything or self.draft.may_rest):
            raise ContractError(NOT_ANSWERED)

    def fills(self, new: NewEntry, *, alone: bool) -> NewEntry | No:
        """Return an entry with what it answers, or what it is asked for; or that it would go in a circle."""
        inputs = self.draft.inputs
        if new.kind == "request" and "hands_on" in new.payload:
            return check_hand_on(self.draft, self._task, new)
        if self._serving and not alone:
            new = self._serving.fill_in(new, inputs.tick, inputs.agent.name)
        new = answering(new, inputs.open_requests)
        if self._serving is None or new.kind != "request":
            return new
        why = self._serving.why_not(inputs.agent.name, targets_in(new.payload))
        why = why or why_beyond_budget(self.given.get("beyond_budget", ()), new)
        return No(why) if why else new

    def is_answered(self) -> bool:
        """Return whether the request that the turn is for has its answer."""
        return self._serving is not None and self._serving.is_answered(self.draft.entries)

    def takes(self, call: ToolCall, at: str) -> bool:
        """Ask one of the team, or hand the request on to it, where a call says so."""
        if (tool := self._team.get(call.tool)) is not None:
            delegate(self.draft, self._serving, tool, call, at, self.given.get("out_of_reach", {}))
        return tool is not None

    @property
    def _cost(self) -> float:
        """What the turn has cost so far, in the unit of the budget of what it is for."""
        if self._serving is None:
            return 0.0
        lost = self.draft.lost if self._serving.counts_open else NONE_LOST
        return self._serving.cost_of(self.draft.answers, lost)

    def seals(self) -> None:
        """Have the report say what counts as spent of the budget of the request."""
        draft, task = self.draft, self._task
        if task and task.budget is not None and task.counts_open:
            entries = draft.last_words or draft.entries
            budget = {"of": task.budget, "charged": task.charged(entries, self._cost)}
            draft.noted["budget"] = budget if task.unit == "credits" else {**budget, "unit": task.unit}

    # --- how it ends --------------------------------------------------------------------------

    def concludes(self, end: End, error: LemmingError | None) -> End:
        """See to it that a turn for a request answers it, unless there is something to wait for."""
        if self._task is None:
            if error and error.at and is_final(error) and self.draft.status_of(end) == "failed":
                fail_shown_requests(self.draft, error)
            return last_round(self.draft, end)
        draft, task = self.draft, self._task
        draft.is_handed_on = hands_on(draft.entries)
        status = draft.status_of(end)
        if error and is_final(error) and not (status == "waiting" or draft.asks_persons or draft.may_rest):
            # what the turn wrote goes with it: nobody is to find half of an answer
            draft.entries, draft.staged, draft.memory = [], {}, {}
            why = f"{name_of(error)}: {error}"
            entries = task.with_amounts(given_up(draft, why, error.at), self._cost)
            if status == "failed":  # and is told of as that, by who operates it
                draft.last_words = entries
                return end
            draft.entries = entries
            return "done"
        if status == "skipped":
            return end
        if status == "failed":
            is_useless = isinstance(error, (ContractError, ToolError)) and bool(draft.answers)
            self._gave_nothing = is_useless or isinstance(error, TurnTooLong)
            if not (self._gave_nothing and task.begun.failures + 1 >= MOST_FAILURES):
                return end
            draft.staged, draft.memory = {}, {}
            draft.entries = given_up(draft, f"{MOST_FAILURES} turns came to nothing: {error}")
        if draft.misfit and not (draft.is_handed_on or draft.is_answered or task.is_at_work(draft.entries)):
            draft.entries = given_up(draft, f"the answer is not what was asked for: {draft.misfit}")
        if not (draft.is_handed_on or draft.may_rest):
            self._give_up_in_time(task, end, status)
        draft.entries = task.with_amounts(draft.entries, self._cost)
        if draft.is_handed_on:
            return "handed_on"
        if draft.is_answered:
            in_vain = task.asked_in(draft.entries)
            draft.remarks += [f"{it.id}: asked in vain, for this turn answers" for it in in_vain]
            return end if status == "done" else "done"
        return end if status == "waiting" else "unanswered"

    def _give_up_in_time(self, task: Serving, end: End, status: Status) -> None:
        """Answer the request by what was said, or give it up where no turn would come any further."""
        draft = self.draft
        if not draft.is_answered and status == "done" and not task.is_at_work(draft.entries):
            why = GOES_ROUND if draft.repeats.is_round or end == "repeats" else "no answer was given"
            draft.entries = task.with_answer(draft.entries) or given_up(draft, why)
        if draft.repeats.is_round and not (draft.is_answered or draft.asked):
            draft.entries = given_up(draft, GOES_ROUND)
        why = task.why_no_more_calls(len(draft.answers))
        if not why and task.begun.turns + 1 >= MOST_TURNS:
            why = f"no answer was given in {MOST_TURNS} turns"
        if why and not draft.is_answered:
            draft.entries = given_up(draft, why)

    def waits_for(self) -> str:
        """Return whom the agent has asked last."""
        if self.draft.only_asks:
            return ""
        asked = [it for begun in self._after("done")[1][-1:] for it in begun.open]
        return f"waits for {', '.join(sorted({it.to for it in asked}))}" if asked else ""

    # --- what is begun ------------------------------------------------------------------------

    def amends(self, state: AgentState, status: Status, end: End) -> None:
        """Put down which request the turn was for, and which are begun and open after it."""
        draft, serving = self.draft, self._serving
        if is_applied(status):
            state.serving, state.requests = self._after(end)
            if serving or draft.asked:  # the results stand with what is begun
                are_kept = any(begun.results == state.results for begun in state.requests)
                left = () if are_kept else state.results
                state.results, state.in_vain = tuple(filter(is_notice, left)), {}
            return
        if serving and (status == "failed" or (draft.lost and serving.counts_open)):
            counts, asked = self._gave_nothing, len(draft.answers)
            state.requests = serving.after_failure(state.requests, self._cost, counts=counts, asked=asked)
        if serving and draft.last_words:
            state.requests = tuple(it for it in state.requests if it.key != serving.begun.key)

    def _after(self, end: End) -> tuple[str, tuple[Begun, ...]]:
        """Return the request that the turn was for, and those that are begun and open after it."""
        draft, task = self.draft, self._serving
        before = draft.inputs.state.requests
        calls = count_asked(draft)
        if task is None:
            own = [entry for entry in draft.entries if entry.identity in calls]
            return "", (*find_still_open(draft, before), *list_own_account(draft, own, calls))
        others = tuple(begun for begun in before if begun.key != task.begun.key)
        is_over = draft.is_answered or draft.is_handed_on if task.request else not draft.actionable_results
        if is_over:
            own = [it for it in draft.entries if it.identity in draft.held and "parent" not in it.payload]
            return task.request, (*others, *list_own_account(draft, own, calls))
        results, in_vain, replies = draft.unshown, draft.repeats.in_vain, len(draft.answers)
        keep = partial(keep_dialogue, draft)
        after = task.after(draft.entries, results, calls, self._cost, draft.held, in_vain, replies, keep)
        return task.request, (*others, replace(after, stands_still=self._stands_still(after, end)))

    def _stands_still(self, after: Begun, end: End) -> bool:
        """Return whether a turn for a request left nothing to go on with that there was not before it."""
        draft = self.draft
        if end != "unanswered" or draft.may_rest or draft.left:
            return False
        return not (after.open or after.results or draft.repeats.has_learned)
