"""Advancing a run: a plan, a run and the values of a turn determine the next reply. Pure.

Equal values give equal replies, without access to disk or clock. Requests are identified by `payload.step`:
"name/round/try", and "name/round/try/verify" for a verification.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lemming.capabilities.output_schemas.payload_validation import RepairedAnswer
from lemming.capabilities.plans.plan_format import (
    END,
    FAIL,
    AgentPlan,
    StepAction,
    StepDefinition,
    VerifySettings,
    default_next_step,
    get_kind,
)
from lemming.capabilities.plans.plan_run import ActionState, PlanRun, is_wait_done
from lemming.capabilities.plans.step_outcomes import call_outcome, choose_target, run_payload, verification_error
from lemming.capabilities.plans.step_requests import (
    NotAList,
    StepRequests,
    build_cancellation,
    build_memories,
    build_request_payload,
    build_variables,
    build_verification_request,
    build_wait,
    collect_answers,
    describe_wait,
    get_actions,
    get_items,
    is_deferred,
    item_variables,
    next_actions,
    to_memory,
)
from lemming.capabilities.plans.value_paths import fill_arguments, value_to_text
from lemming.kernel.base.jsontext import dump_compact
from lemming.libraries.conditions.predicates import evaluate

Json = dict[str, Any]
REASONS_CHARS = 4000
RUN_LIMIT_BYTES = 200 << 10  # a memory may have a little more


def advance_run(plan: AgentPlan, run: PlanRun, values: Mapping[str, Any]) -> Json:
    """Return the next reply of a run. The run is changed in place and stored as a memory in the reply."""
    turn = _PlanTurn(plan, run, values)
    turn.advance()
    if len(dump_compact(run.as_json())) > RUN_LIMIT_BYTES:
        turn.abort("what came of its steps is more than a memory may hold")
    return turn.to_reply()


class _PlanTurn:
    def __init__(self, plan: AgentPlan, run: PlanRun, values: Mapping[str, Any]) -> None:
        self.plan, self.run, self.values = plan, run, values
        self.tick: int = values["tick"]
        self.requests = StepRequests(values)
        self.entries: list[Json] = []
        self.calls: list[Json] = []
        self.called_states: list[ActionState] = []
        self.new_answers: dict[str, Json] = {}

    def advance(self) -> None:
        """Process new results and start next actions until the run has to wait."""
        if not self.run.at and self.run.status == "running":
            self._enter_step(self.plan.steps[0].name if self.plan.steps else END)
        elif not self.run.doing:  # a person redirected the run, which no longer waits
            self.run.items = None
            self.entries += map(build_cancellation, self.requests.find_open())
        while self.run.status == "running":
            step = self.plan.get_step(self.run.at)
            if step is None:
                self._fail_run(f'the plan has no step "{self.run.at}" any more')
                return
            for action in get_actions(step, self.run):
                if action.name in self.run.doing:
                    self._process_result(action, self.run.doing[action.name])
            if not self._finish_step(step):
                return

    def abort(self, reason: str) -> None:
        """Fail the run and drop its answers."""
        self.run.answers, self.run.keys, self.run.doing = {}, {}, {}
        self._fail_run(reason)

    def variables(self, action: StepAction | None = None) -> Json:
        """Return the current variables of the run, including the item of the action."""
        variables = build_variables(self.plan, self.run, self.values, self.new_answers)
        return variables | item_variables(action, self.run) if action else variables

    def _process_result(self, action: StepAction, state: ActionState) -> None:
        match state.phase:
            case "asked":
                if self.requests.is_postponed(state.tag):
                    self._start_action(action, state)
                elif outcome := self.requests.answer(action, state.tag, action.target_agent):
                    self._on_answer(action, state, outcome)
            case "called":
                if (result := self._tool_result(state)) is None:
                    return
                if is_deferred(result):  # it is no failure: it is asked for again
                    self._start_action(action, state)
                elif call := result.get("unknown"):  # to do it again, or to go on, is for a person to decide
                    state.phase, state.wait = "waiting", {"call": call}
                    self._process_wait(action, state)
                else:
                    self._on_answer(action, state, call_outcome(action, result))
            case "verifying":
                self._process_verdict(action, state)
            case "waiting":
                self._process_wait(action, state)

    def _tool_result(self, state: ActionState) -> Mapping[str, Any] | None:
        """Return the result of a tool call, or None for a call in this reply."""
        if any(state is called_state for called_state in self.called_states):  # just now: the result comes later
            return None
        return self.requests.get_result(state.call)

    def _process_wait(self, action: StepAction, state: ActionState) -> None:
        wait = state.wait or {}
        if call := wait.get("call"):
            if finding := self.requests.find_resolution(call):
                outcome = call_outcome(action, finding)
                if finding["success"] and outcome.answer is None:  # it happened: it is not done again
                    state.failures = action.attempts
                self._on_answer(action, state, outcome)
        elif self._is_wait_done({**wait, "give_up": None}):
            self._on_answer(action, state, RepairedAnswer({"text": describe_wait(wait), "tick": self.tick}))
        elif self._is_wait_done(wait):
            reason = f"waited {self.tick - state.since} ticks for {describe_wait(wait)}"
            self._on_answer(action, state, RepairedAnswer(None, reason))

    def _is_wait_done(self, wait: Json) -> bool:
        return is_wait_done(wait, self.tick, self.values.get("time") or "", self.values.get("files") or {})

    def _on_answer(self, action: StepAction, state: ActionState, outcome: RepairedAnswer) -> None:
        """Store an answer, retry a failed action, or mark the action as failed."""
        if outcome.answer is None:
            state.failures += 1
            state.reasons = outcome.reason[:REASONS_CHARS]
            if state.failures < action.attempts:
                self._start_action(action, state)
            else:
                state.phase = "failed"
            return
        state.answer = outcome.answer
        if action.target_agent:
            self.new_answers[action.target_agent] = to_memory(outcome.answer, self.tick)
        if action.verify and not action.verify.by:  # the judge of this step has answered
            self._request_verification(action, action.verify, state)
        else:
            state.phase = "done"

    def _request_verification(self, action: StepAction, verify: VerifySettings, state: ActionState) -> None:
        state.phase = "verifying"
        variables = {**self.variables(action), "answer": state.answer}
        if verify.tool:
            self._add_call(state, verify.tool, verify.args, variables)
            return
        state.tag = f"{state.tag.removesuffix('/verify')}/verify"
        self._add_request(build_verification_request(action, verify, state, variables))

    def _process_verdict(self, action: StepAction, state: ActionState) -> None:
        verify = action.verify
        if verify is None:  # the plan was changed meanwhile
            state.phase = "done"
            return
        if verify.tool:
            result = self._tool_result(state)
            if result is not None and is_deferred(result):
                self._request_verification(action, verify, state)
                return
            outcome = (
                call_outcome(StepAction(name=action.name, tool=verify.tool), result) if result is not None else None
            )
        elif self.requests.is_postponed(state.tag):
            self._request_verification(action, verify, state)
            return
        else:
            outcome = self.requests.answer(StepAction(name=action.name), state.tag, verify.ask)
        if outcome is None:
            return
        rejection = verification_error(verify, outcome, self.variables(action))
        if not rejection:
            state.phase = "done"
            return
        state.rejections += 1
        state.reasons = rejection[:REASONS_CHARS]
        if state.rejections < verify.attempts:
            self._start_action(action, state)
        else:
            state.phase, state.answer = "failed", None
            state.reasons = f"not passed by {verify.ask or verify.tool}: {state.reasons}"

    def _begin_step(self, step: StepDefinition) -> None:
        self.run.at, self.run.tries = step.name, 1
        self.run.rounds[step.name] = self.run.rounds.get(step.name, 0) + 1
        self.run.doing = {}
        self._start_actions(step)

    def _start_actions(self, step: StepDefinition) -> None:
        self.run.items = None
        try:
            self.run.items = get_items(step, self.variables()) if step.each else None
        except NotAList as error:
            self.run.doing[step.name] = ActionState(phase="failed", reasons=str(error))
        self._start_next_actions(step)

    def _start_next_actions(self, step: StepDefinition) -> None:
        for action in next_actions(step, get_actions(step, self.run), self.run.doing):
            self.run.doing[action.name] = ActionState(phase="done")
            self._start_action(action, self.run.doing[action.name])

    def _start_action(self, action: StepAction, state: ActionState) -> None:
        state.since, state.answer = self.tick, None
        variables = self.variables(action)
        match get_kind(action):
            case "ask" | "plan":
                state.phase, state.tag = "asked", self._action_tag(action, state)
                self._add_request(build_request_payload(action, state, variables, self.values.get("time") or ""))
            case "tool":
                state.phase = "called"
                self._add_call(state, action.tool, action.args, variables)
            case "wait":
                self._start_wait(action, state, variables)
            case _:
                state.phase = "done"

    def _action_tag(self, action: StepAction, state: ActionState) -> str:
        number = self.run.rounds.get(self.run.at, 1)
        tries = state.failures + state.rejections + self.run.tries
        return f"{action.name}/{number}/{tries}"

    def _add_request(self, payload: Json) -> None:
        self.requests.add(payload["step"])
        self.entries.append({"kind": "request", "payload": payload, "tags": []})

    def _add_call(self, state: ActionState, tool: str, args: Json, variables: Json) -> None:
        state.call = len(self.calls)
        self.called_states.append(state)
        self.calls.append({"tool": tool, "args": fill_arguments(args, variables)})

    def _start_wait(self, action: StepAction, state: ActionState, variables: Json) -> None:
        state.phase = "waiting"
        try:
            state.wait = build_wait(action.wait, self.tick, self.values.get("files") or {}, variables)
        except ValueError as error:
            state.phase, state.reasons = "failed", str(error)

    def _finish_step(self, step: StepDefinition) -> bool:
        """Leave a finished step. Return True if the run has advanced."""
        action_states = self.run.doing
        if step.each and self.run.items is None and step.name not in action_states:
            self._start_actions(step)
        self._start_next_actions(step)  # of its items, or of the plan as edited since
        actions = get_actions(step, self.run)
        states = {action.name: action_states[action.name] for action in actions if action.name in action_states}
        if any(state.phase not in ("done", "failed") for state in states.values()):
            return False
        failed = {name: state for name, state in states.items() if state.phase == "failed"}
        if failed and step.parallel and self.run.tries < step.attempts:
            self._retry_step(step, failed)
            return False
        if failed and not (step.keeps_failures and self.run.items):
            reason = "; ".join(f"{name}: {state.reasons}" for name, state in failed.items())
            self._enter_step(step.on_failure, reason=reason)
            return True
        self._store_answers(step, actions, states)
        if get_kind(step) not in ("decide", "wait"):
            self.run.previous = step.name
        self._enter_step(self._choose_target(step))
        return True

    def _store_answers(
        self, step: StepDefinition, actions: list[StepAction], states: Mapping[str, ActionState]
    ) -> None:
        if step.each and self.run.items is not None:
            self._store_answer(step, collect_answers(states.values()))
            return
        for action in actions:
            if (answer := states[action.name].answer) is not None:
                self._store_answer(action, answer)
        if step.parallel:
            self._store_answer(step, {name: state.answer or {} for name, state in states.items()})

    def _retry_step(self, step: StepDefinition, failed: Mapping[str, ActionState]) -> None:
        self.run.tries += 1
        for action in get_actions(step, self.run):
            if step.retry == "all" or action.name in failed:
                state = self.run.doing[action.name]
                reasons = state.reasons if action.name in failed else ""
                self.run.doing[action.name] = new_state = ActionState(phase="done", reasons=reasons)
                self._start_action(action, new_state)

    def _store_answer(self, action: StepAction, answer: Json) -> None:
        self.run.answers[action.name] = answer
        if action.writes:
            self.run.keys[action.writes] = answer

    def _choose_target(self, step: StepDefinition) -> str:
        answer = self.run.answers.get(step.name)
        if step.choose:
            return choose_target(step.choose, answer) or step.else_
        variables = {**self.variables(), "answer": answer}
        for route in step.routes:
            if evaluate(route.when, variables):
                return route.to
        return step.else_ or FAIL if step.routes else default_next_step(self.plan, step.name)

    def _enter_step(self, target: str, *, reason: str = "") -> None:
        """Continue at a step. Steps at their limit are skipped by way of `at_limit`."""
        for _ in range(len(self.plan.steps) + 1):  # at_limit may lead in a circle
            if target == END:
                self._finish_run()
                return
            step = self.plan.get_step(target) if target != FAIL else None
            if step is None:
                self._fail_run(reason or self._failure_reason(target))
                return
            if self.run.steps_begun >= self.plan.max_steps:
                self._fail_run(f"{self.plan.max_steps} steps were begun, the most that max_steps allows")
                return
            if step.limit is None or self.run.rounds.get(step.name, 0) < step.limit:
                self._begin_step(step)
                return
            reason, target = f'"{step.name}" was begun {step.limit} times, its limit', step.at_limit
        self._fail_run(reason)

    def _failure_reason(self, target: str) -> str:
        """Return the reason a transition leads to failure, taken from the answer."""
        if target != FAIL:
            return f"there is no way for this answer: {value_to_text(self.run.answers.get(self.run.at))}"
        return value_to_text(self.run.answers.get(self.run.at)) or "that is where the plan leads"

    def _finish_run(self) -> None:
        self._close_run("done")
        if not self.plan.answer:
            self._respond(run_payload(self.run.answers.get(self.run.previous)))
            return
        value = fill_arguments(self.plan.answer, self.variables())
        has_text = isinstance(value, Mapping) and isinstance(value.get("text"), str)
        self._respond(run_payload(value_to_text(value) if has_text else value))

    def _fail_run(self, reason: str) -> None:
        self.run.why = reason[:REASONS_CHARS]
        self._close_run("failed")
        self._respond({"status": "failed", "text": f'the plan failed at "{self.run.at}": {reason}'[:REASONS_CHARS]})

    def _respond(self, payload: Json) -> None:
        self.entries = [{"kind": "response", "payload": payload, "tags": []}]
        self.calls = []  # an ended run makes no calls

    def _close_run(self, status: Any) -> None:
        self.run.status, self.run.ended, self.run.doing, self.run.items = status, self.tick, {}, None

    def to_reply(self) -> Json:
        """Return the reply of the turn in the form of the contract."""
        position = self.run.at if self.run.status == "running" else self.run.status
        return {
            "outbox_entries": self.entries,
            "tool_calls": self.calls,
            "memory_updates": build_memories(self.plan, self.run, self.new_answers, self.values),
            "notes": f"run {self.run.request}: {position}",
        }
