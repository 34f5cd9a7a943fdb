"""Payloads of a step's requests, and the conditions a step waits for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lemming.capabilities.output_schemas.payload_validation import RepairedAnswer
from lemming.capabilities.plans.plan_format import AgentPlan, StepAction, VerifySettings, WaitSettings
from lemming.capabilities.plans.plan_run import ActionState, PlanRun, run_key
from lemming.capabilities.plans.run_values import ANSWERS_KEY, find_referenced_agents
from lemming.capabilities.plans.step_outcomes import VERDICT, approval_outcome, build_answer_schema, request_outcome
from lemming.capabilities.plans.value_paths import context_lines, fill_arguments, render, value_to_text
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.times import expiry_payload
from lemming.kernel.turn.tool_results import DEFERRED_KEY, OUTBOX_ENTRIES, WRITTEN_ENTRY_KEY

NON_TOOL_RESULTS = ("memory_update", OUTBOX_ENTRIES, "reply")
"""Results that the engine itself adds to those of tool calls."""
RESOLVED_CALL_KEY = "call"
"""The key of a result that is a person's word on an earlier call:

`lemming.journal_tools.repair.unknown_calls`.
"""
MISSING_RESULT: Mapping[str, Any] = {"success": False, "output": "no result has come of it"}


class CallResults:
    """Results in the values of a turn."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._all: list[Mapping[str, Any]] = [*(values.get("results") or ())]

    def get_result(self, number: int) -> Mapping[str, Any]:
        """Return the result of a call by its number in the earlier reply."""
        results = [
            result
            for result in self._all
            if RESOLVED_CALL_KEY not in result and result.get("tool") not in NON_TOOL_RESULTS
        ]
        return results[number] if number < len(results) else MISSING_RESULT

    def find_entry_result(self, step: str) -> Mapping[str, Any] | None:
        """Return the result of a step's request entry after a gate's approval request, or None without a gate."""
        entry_results = (
            result for result in self._all if result.get("tool") == OUTBOX_ENTRIES and isinstance(result["args"], dict)
        )
        return next((result for result in entry_results if result["args"].get("step") == step), None)

    def list_remarks(self) -> list[str]:
        """Return the remarks about parts of the earlier reply other than its calls."""
        return [
            str(result["output"])
            for result in self._all
            if RESOLVED_CALL_KEY not in result and result["tool"] in NON_TOOL_RESULTS
        ]

    def find_resolution(self, call: str) -> Mapping[str, Any] | None:
        """Return a person's finding about a call, or the call's result after a retry."""
        findings = [result for result in self._all if result.get(RESOLVED_CALL_KEY) == call]
        return findings[-1] if findings and findings[-1].get("retry") != "started" else None


def is_written(result: Mapping[str, Any]) -> bool:
    """Return True for an entry written after approval, with its answer still pending."""
    return result["success"] is True and WRITTEN_ENTRY_KEY in result["args"]


def is_deferred(result: Mapping[str, Any]) -> bool:
    """Return True for a call deferred until earlier approvals are decided."""
    return result.get(DEFERRED_KEY) is True


Json = dict[str, Any]


def build_request_payload(action: StepAction, state: ActionState, variables: Json, at: str) -> Json:
    """Return the payload of a step's request, including the reason for the last failure. `at`: current timestamp."""
    arguments = fill_arguments(action.args, variables) if action.plan else {}
    task = render(action.task, variables) or value_to_text(arguments)
    text = append_context(task, [*context_lines(action.context, variables)])
    if state.reasons:
        text = f"{text}\n\nThe last try was not good enough: {state.reasons}"
    payload: Json = {**arguments, "target": action.target_agent, "text": text, "step": state.tag}
    if schema := build_answer_schema(action):
        payload["schema"] = schema
    if action.deadline is not None:
        payload |= expiry_payload([action.deadline], at)
    if action.default is not None:
        payload["default"] = action.default
    if action.verify and (judge := action.verify.judge_settings):
        payload["verify"] = judge.as_json()
    return payload


def build_verification_request(action: StepAction, verify: VerifySettings, state: ActionState, variables: Json) -> Json:
    """Return the payload of the request for verifying an answer."""
    request_text = render(action.task, variables) or value_to_text(fill_arguments(action.args, variables))
    task = render(verify.task, variables)
    task = task or "Does this answer do what was asked? Say whether it passes, and why not."
    text = append_context(task, [("What was asked", request_text), ("The answer", value_to_text(state.answer))])
    schema = {} if verify.when else {"schema": VERDICT}
    return {"target": verify.ask, "text": text, "step": state.tag, **schema}


def build_cancellation(sub_request: Mapping[str, Any]) -> Json:
    """Return the entry cancelling a sub-request."""
    payload = {"cancels": sub_request["id"], "reply_to": sub_request["id"], "target": sub_request["to"]}
    return {"kind": "status", "payload": payload, "tags": []}


def append_context(task: str, parts: list[tuple[str, str]]) -> str:
    """Return a task with context parts, each below its label.

    >>> append_context("Write it up.", [("facts", "Bees dance.")]).splitlines()
    ['Write it up.', '', 'facts:', 'Bees dance.']
    """
    return "\n\n".join([task, *(f"{label}:\n{text}" for label, text in parts)])


def build_wait(wait: WaitSettings | None, tick: int, files: Mapping[str, str | None], variables: Json) -> Json:
    """Return the wait state of a step that starts waiting in this tick. Raises: ValueError for an invalid time."""
    if wait is None:  # the plan was changed meanwhile
        return {"tick": tick}
    until: Json = {"give_up": tick + wait.at_most} if wait.at_most else {}
    if wait.file:
        baseline = {"was": files.get(wait.file)} if wait.until == "changes" else {}
        return {**until, "file": wait.file, "until": wait.until, **baseline}
    if wait.ticks is not None or wait.tick is not None:
        return {**until, "tick": wait.tick if wait.ticks is None else tick + wait.ticks}
    time_text = render(wait.time, variables)
    try:
        return {**until, "time": timestamp(parse_timestamp(time_text))}
    except ValueError as error:
        raise ValueError(f'"{time_text[:100]}" is no moment such as 2027-01-31T09:00:00Z') from error


def describe_wait(wait: Mapping[str, Any]) -> str:
    """Return a description of a wait.

    >>> describe_wait(dict(file="./in.csv", until="changes")), describe_wait({"tick": 7})
    ('./in.csv to change', 'tick 7')
    """
    if call := wait.get("call"):
        return f"a person to say whether its call happened: lemming repair --mark done {call}, or failed"
    if file := wait.get("file"):
        return f"{file} {'to change' if wait.get('until') == 'changes' else 'to be there'}"
    return f"tick {wait['tick']}" if "tick" in wait else str(wait.get("time"))


class StepRequests:
    """Requests of a run in a turn: requests of earlier turns, from the values, and new requests."""

    def __init__(self, values: Mapping[str, Any], results: CallResults) -> None:
        self._results = results
        self._new_tags: set[str] = set()
        self._earlier = {
            payload["step"]: sub_request
            for sub_request in values.get("asked") or ()
            if isinstance(payload := sub_request.get("payload"), dict) and isinstance(payload.get("step"), str)
        }

    def add(self, tag: str) -> None:
        """Note a new request of this turn."""
        self._new_tags.add(tag)

    def find_open(self) -> list[Json]:
        """Return the requests of earlier turns without an answer."""
        return [sub_request for sub_request in self._earlier.values() if not sub_request.get("end")]

    def is_postponed(self, tag: str) -> bool:
        """Return True for a deferred request: the step must ask again after earlier approvals."""
        result = self._result(tag)
        return result is not None and is_deferred(result)

    def answer(self, action: StepAction, tag: str, agent_name: str) -> RepairedAnswer | None:
        """Return the outcome of a request, or None for an open request."""
        if sub_request := self._earlier.get(tag):
            return request_outcome(action, sub_request, agent_name) if sub_request.get("end") else None
        if tag in self._new_tags:
            return None
        if result := self._result(tag):
            return None if is_written(result) else approval_outcome(action, result)
        reason = "; ".join(self._results.list_remarks()) or f"nothing is asked of {agent_name} any more"
        return RepairedAnswer(None, reason)

    def _result(self, tag: str) -> Mapping[str, Any] | None:
        """Return a person's decision about a request with approval, or None."""
        return None if tag in self._new_tags or tag in self._earlier else self._results.find_entry_result(tag)


class PlanReply(NamedTuple):
    """Reply of the agent: the four keys of the contract, as JSON values."""

    entries: list[Json]
    calls: list[Json]
    memories: list[Json]
    notes: str

    def as_json(self) -> Json:
        """Return the reply in the form of the contract."""
        return {
            "outbox_entries": self.entries,
            "tool_calls": self.calls,
            "memory_updates": self.memories,
            "notes": self.notes,
        }


def build_memories(
    plan: AgentPlan, run: PlanRun, new_answers: Mapping[str, Json], values: Mapping[str, Any]
) -> list[Json]:
    """Return the memories a turn writes: the run, and the answers of agents that the plan refers to."""
    memories: list[Json] = [{"key": run_key(run.request), "value": run.as_json()}]
    referred_agents = find_referenced_agents(plan)
    if answers := {agent: answer for agent, answer in new_answers.items() if agent in referred_agents}:
        stored_answers = (values.get("memory") or {}).get(ANSWERS_KEY)
        stored = stored_answers if isinstance(stored_answers, dict) else {}
        memories.append({"key": ANSWERS_KEY, "value": {**stored, **answers}})
    return memories
