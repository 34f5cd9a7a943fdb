"""How a run goes on: a plan, a run and the values of a turn give the next reply. Pure.

Same values, same reply: nothing is asked of a disk or a clock. What was asked is told apart by
`payload.step`, "name/round/try", and by "name/round/try/verify" where the answer is to be passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lemming.capabilities.answers.fitting import FittedAnswer
from lemming.capabilities.conditions.when import holds
from lemming.capabilities.plans.asking import request_for, verification_for, wait_for, wait_text, withdrawal
from lemming.capabilities.plans.call_results import CallResults, is_deferred
from lemming.capabilities.plans.each import NoItems, answer_of, item_of, items_of, members_of, next_of
from lemming.capabilities.plans.format import END, FAIL, AgentPlan, Member, Step, Verify, kind_of
from lemming.capabilities.plans.outcomes import (
    chosen,
    of_a_run,
    of_calling,
    of_verifying,
)
from lemming.capabilities.plans.references import as_text, filled
from lemming.capabilities.plans.run import Doing, Run, is_over, run_key
from lemming.capabilities.plans.run_values import ANSWERS_KEY, agents_referred_to, kept_answer, what_is_known
from lemming.capabilities.plans.step_requests import StepRequests
from lemming.capabilities.plans.ways import after
from lemming.kernel.base.jsontext import compact

Json = dict[str, Any]
REASONS_CHARS = 4000
RUN_LIMIT_BYTES = 200 << 10  # a memory may have a little more


class PlanReply(NamedTuple):
    """What the agent says: the four keys of the contract, as JSON values."""

    entries: list[Json]
    calls: list[Json]
    memories: list[Json]
    notes: str

    def as_json(self) -> Json:
        """Return the contract."""
        return {
            "outbox_entries": self.entries,
            "tool_calls": self.calls,
            "memory_updates": self.memories,
            "notes": self.notes,
        }


def advance(plan: AgentPlan, run: Run, values: Mapping[str, Any]) -> PlanReply:
    """Return what the run does next; the run, which is changed, is part of the reply: its memory."""
    turn = _Turn(plan, run, values)
    turn.go_on()
    if len(compact(run.as_json())) > RUN_LIMIT_BYTES:
        turn.give_up("what came of its steps is more than a memory may hold")
    return turn.reply()


class _Turn:
    """One turn of a run: what it finds, and what it says."""

    def __init__(self, plan: AgentPlan, run: Run, values: Mapping[str, Any]) -> None:
        self.plan, self.run, self.values = plan, run, values
        self.tick: int = values["tick"]
        self.results = CallResults(values)
        self.requests = StepRequests(values, self.results)
        self.entries: list[Json] = []
        self.calls: list[Json] = []
        self.called: list[Doing] = []
        self.said: dict[str, Json] = {}

    def go_on(self) -> None:
        """Take in what has come, and begin what is next, until something has to be waited for."""
        if not self.run.at and self.run.status == "running":
            self._lead_to(self.plan.steps[0].name if self.plan.steps else END)
        elif not self.run.doing:  # a person has led the run elsewhere, and waits for nobody
            self.run.items = None
            self.entries += map(withdrawal, self.requests.find_open())
        while self.run.status == "running":
            step = self.plan.step(self.run.at)
            if step is None:
                self._fail(f'the plan has no step "{self.run.at}" any more')
                return
            for member in members_of(step, self.run):
                if member.name in self.run.doing:
                    self._take_in(member, self.run.doing[member.name])
            if not self._settle(step):
                return

    def give_up(self, why: str) -> None:
        """Let the run fail, without what came of it."""
        self.run.answers, self.run.keys, self.run.doing = {}, {}, {}
        self._fail(why)

    def known(self, member: Member | None = None) -> Json:
        """Return what the run knows now, with the item that the member is done for."""
        known = what_is_known(self.plan, self.run, self.values, self.said)
        return known | item_of(member, self.run) if member else known

    # --- taking in ----------------------------------------------------------------------------

    def _take_in(self, member: Member, doing: Doing) -> None:
        """Take in what has come of one thing that is done, as far as something has."""
        match doing.phase:
            case "asked":
                if self.requests.is_postponed(doing.tag):
                    self._do(member, doing)
                elif outcome := self.requests.answer(member, doing.tag, member.asked):
                    self._accept(member, doing, outcome)
            case "called":
                if (result := self._result(doing)) is None:
                    return
                if is_deferred(result):  # it is no failure: it is asked for again
                    self._do(member, doing)
                elif call := result.get("unknown"):  # to do it again, or to go on, is for a person to decide
                    doing.phase, doing.wait = "waiting", {"call": call}
                    self._take_in_wait(member, doing)
                else:
                    self._accept(member, doing, of_calling(member, result))
            case "verifying":
                self._take_in_verdict(member, doing)
            case "waiting":
                self._take_in_wait(member, doing)

    def _result(self, doing: Doing) -> Mapping[str, Any] | None:
        """Return the result of a tool call; None where the call is of this reply."""
        if any(doing is called for called in self.called):  # just now: the result comes later
            return None
        return self.results.of_call(doing.call)

    def _take_in_wait(self, member: Member, doing: Doing) -> None:
        wait = doing.wait or {}
        if call := wait.get("call"):
            if word := self.results.find_resolution(call):
                outcome = of_calling(member, word)
                if word["success"] and outcome.answer is None:  # it happened: it is not done again
                    doing.failures = member.attempts
                self._accept(member, doing, outcome)
        elif self._is_over({**wait, "give_up": None}):
            self._accept(member, doing, FittedAnswer({"text": wait_text(wait), "tick": self.tick}))
        elif self._is_over(wait):
            why = f"waited {self.tick - doing.since} ticks for {wait_text(wait)}"
            self._accept(member, doing, FittedAnswer(None, why))

    def _is_over(self, wait: Json) -> bool:
        return is_over(wait, self.tick, self.values.get("time") or "", self.values.get("files") or {})

    def _accept(self, member: Member, doing: Doing, outcome: FittedAnswer) -> None:
        """Go on with an answer, or do it again, or give up."""
        if outcome.answer is None:
            doing.failures += 1
            doing.reasons = outcome.why[:REASONS_CHARS]
            if doing.failures < member.attempts:
                self._do(member, doing)
            else:
                doing.phase = "failed"
            return
        doing.answer = outcome.answer
        if member.asked:
            self.said[member.asked] = kept_answer(outcome.answer, self.tick)
        if member.verify and not member.verify.by:  # who judges by that has done so
            self._ask_whether_it_passes(member, member.verify, doing)
        else:
            doing.phase = "done"

    def _ask_whether_it_passes(self, member: Member, verify: Verify, doing: Doing) -> None:
        doing.phase = "verifying"
        known = {**self.known(member), "answer": doing.answer}
        if verify.tool:
            self._call(doing, verify.tool, verify.args, known)
            return
        doing.tag = f"{doing.tag.removesuffix('/verify')}/verify"
        self._ask(verification_for(member, verify, doing, known))

    def _take_in_verdict(self, member: Member, doing: Doing) -> None:
        verify = member.verify
        if verify is None:  # the plan was changed meanwhile
            doing.phase = "done"
            return
        if verify.tool:
            result = self._result(doing)
            if result is not None and is_deferred(result):
                self._ask_whether_it_passes(member, verify, doing)
                return
            outcome = (
                of_calling(Member(name=member.name, tool=verify.tool), result) if result is not None else None
            )
        elif self.requests.is_postponed(doing.tag):
            self._ask_whether_it_passes(member, verify, doing)
            return
        else:
            outcome = self.requests.answer(Member(name=member.name), doing.tag, verify.ask)
        if outcome is None:
            return
        why = of_verifying(verify, outcome, self.known(member))
        if not why:
            doing.phase = "done"
            return
        doing.rejections += 1
        doing.reasons = why[:REASONS_CHARS]
        if doing.rejections < verify.attempts:
            self._do(member, doing)
        else:
            doing.phase, doing.answer = "failed", None
            doing.reasons = f"not passed by {verify.ask or verify.tool}: {doing.reasons}"

    # --- doing --------------------------------------------------------------------------------

    def _begin(self, step: Step) -> None:
        self.run.at, self.run.tries = step.name, 1
        self.run.rounds[step.name] = self.run.rounds.get(step.name, 0) + 1
        self.run.doing = {}
        self._begin_members(step)

    def _begin_members(self, step: Step) -> None:
        """Begin what is to be done at once; of the items of a list as many as may be."""
        self.run.items = None
        try:
            self.run.items = items_of(step, self.known()) if step.each else None
        except NoItems as error:
            self.run.doing[step.name] = Doing(phase="failed", reasons=str(error))
        self._begin_next(step)

    def _begin_next(self, step: Step) -> None:
        for member in next_of(step, members_of(step, self.run), self.run.doing):
            self.run.doing[member.name] = Doing(phase="done")
            self._do(member, self.run.doing[member.name])

    def _do(self, member: Member, doing: Doing) -> None:
        """Do something, for the first time or again."""
        doing.since, doing.answer = self.tick, None
        known = self.known(member)
        match kind_of(member):
            case "ask" | "plan":
                doing.phase, doing.tag = "asked", self._tag(member, doing)
                self._ask(request_for(member, doing, known, self.values.get("time") or ""))
            case "tool":
                doing.phase = "called"
                self._call(doing, member.tool, member.args, known)
            case "wait":
                self._begin_waiting(member, doing, known)
            case _:
                doing.phase = "done"

    def _tag(self, member: Member, doing: Doing) -> str:
        number = self.run.rounds.get(self.run.at, 1)
        tries = doing.failures + doing.rejections + self.run.tries
        return f"{member.name}/{number}/{tries}"

    def _ask(self, payload: Json) -> None:
        self.requests.add(payload["step"])
        self.entries.append({"kind": "request", "payload": payload, "tags": []})

    def _call(self, doing: Doing, tool: str, args: Json, known: Json) -> None:
        doing.call = len(self.calls)
        self.called.append(doing)
        self.calls.append({"tool": tool, "args": filled(args, known)})

    def _begin_waiting(self, member: Member, doing: Doing, known: Json) -> None:
        doing.phase = "waiting"
        try:
            doing.wait = wait_for(member.wait, self.tick, self.values.get("files") or {}, known)
        except ValueError as error:
            doing.phase, doing.reasons = "failed", str(error)

    # --- going on -----------------------------------------------------------------------------

    def _settle(self, step: Step) -> bool:
        """Leave a step that is over; return whether the run has come any further."""
        doing = self.run.doing
        if step.each and self.run.items is None and step.name not in doing:
            self._begin_members(step)
        self._begin_next(step)  # of its items, or what the plan says since it was changed
        members = members_of(step, self.run)
        states = {member.name: doing[member.name] for member in members if member.name in doing}
        if any(each.phase not in ("done", "failed") for each in states.values()):
            return False
        failed = {name: each for name, each in states.items() if each.phase == "failed"}
        if failed and step.parallel and self.run.tries < step.attempts:
            self._again(step, failed)
            return False
        if failed and not (step.keeps_failures and self.run.items):
            why = "; ".join(f"{name}: {each.reasons}" for name, each in failed.items())
            self._lead_to(step.on_failure, why=why)
            return True
        self._keep_answers(step, members, states)
        if kind_of(step) not in ("decide", "wait"):
            self.run.previous = step.name
        self._lead_to(self._way_out(step))
        return True

    def _keep_answers(self, step: Step, members: list[Member], states: Mapping[str, Doing]) -> None:
        if step.each and self.run.items is not None:
            self._keep(step, answer_of(members, states))
            return
        for member in members:
            if (answer := states[member.name].answer) is not None:
                self._keep(member, answer)
        if step.parallel:
            self._keep(step, {name: each.answer or {} for name, each in states.items()})

    def _again(self, step: Step, failed: Mapping[str, Doing]) -> None:
        self.run.tries += 1
        for member in members_of(step, self.run):
            if step.retry == "all" or member.name in failed:
                doing = self.run.doing[member.name]
                reasons = doing.reasons if member.name in failed else ""
                self.run.doing[member.name] = fresh = Doing(phase="done", reasons=reasons)
                self._do(member, fresh)

    def _keep(self, member: Member, answer: Json) -> None:
        self.run.answers[member.name] = answer
        if member.writes:
            self.run.keys[member.writes] = answer

    def _way_out(self, step: Step) -> str:
        answer = self.run.answers.get(step.name)
        if step.choose:
            return chosen(step.choose, answer) or step.else_
        known = {**self.known(), "answer": answer}
        for route in step.routes:
            if holds(route.when, known):
                return route.to
        return step.else_ or FAIL if step.routes else after(self.plan, step.name)

    def _lead_to(self, target: str, *, why: str = "") -> None:
        """Go on at a step, past those that have been begun as often as they may."""
        for _ in range(len(self.plan.steps) + 1):  # at_limit may lead in a circle
            if target == END:
                self._end()
                return
            step = self.plan.step(target) if target != FAIL else None
            if step is None:
                self._fail(why or self._why_led(target))
                return
            if self.run.steps_begun >= self.plan.max_steps:
                self._fail(f"{self.plan.max_steps} steps were begun, the most that max_steps allows")
                return
            if step.limit is None or self.run.rounds.get(step.name, 0) < step.limit:
                self._begin(step)
                return
            why, target = f'"{step.name}" was begun {step.limit} times, its limit', step.at_limit
        self._fail(why)

    def _why_led(self, target: str) -> str:
        """Return why a way leads to a failure: because of an answer."""
        if target != FAIL:
            return f"there is no way for this answer: {as_text(self.run.answers.get(self.run.at))}"
        return as_text(self.run.answers.get(self.run.at)) or "that is where the plan leads"

    def _end(self) -> None:
        self._close("done")
        if not self.plan.answer:
            self._respond(of_a_run(self.run.answers.get(self.run.previous)))
            return
        value = filled(self.plan.answer, self.known())
        has_text = isinstance(value, Mapping) and isinstance(value.get("text"), str)
        self._respond(of_a_run(as_text(value) if has_text else value))

    def _fail(self, why: str) -> None:
        self.run.why = why[:REASONS_CHARS]
        self._close("failed")
        self._respond(
            {"status": "failed", "text": f'the plan failed at "{self.run.at}": {why}'[:REASONS_CHARS]}
        )

    def _respond(self, payload: Json) -> None:
        self.entries = [{"kind": "response", "payload": payload, "tags": []}]
        self.calls = []  # what has ended asks for nothing

    def _close(self, status: Any) -> None:
        self.run.status, self.run.ended, self.run.doing, self.run.items = status, self.tick, {}, None

    # --- saying -------------------------------------------------------------------------------

    def reply(self) -> PlanReply:
        """Return what was come to."""
        memories: list[Json] = [{"key": run_key(self.run.request), "value": self.run.as_json()}]
        wanted = agents_referred_to(self.plan)
        if told := {agent: said for agent, said in self.said.items() if agent in wanted}:
            kept = (self.values.get("memory") or {}).get(ANSWERS_KEY)
            answers = {**kept, **told} if isinstance(kept, dict) else told
            memories.append({"key": ANSWERS_KEY, "value": answers})
        where = self.run.at if self.run.status == "running" else self.run.status
        return PlanReply(self.entries, self.calls, memories, f"run {self.run.request}: {where}")
