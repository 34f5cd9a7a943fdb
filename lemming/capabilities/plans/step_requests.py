"""Requests of a step: items and variables, payloads, results, and the conditions a step waits for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from lemming.capabilities.output_schemas.payload_validation import RepairedAnswer
from lemming.capabilities.plans.plan_format import AgentPlan, StepAction, StepDefinition, VerifySettings, WaitSettings
from lemming.capabilities.plans.plan_run import PREFIX, ActionState, PlanRun, run_key
from lemming.capabilities.plans.reference_validation import iter_references
from lemming.capabilities.plans.step_outcomes import (
    VERDICT,
    approval_outcome,
    build_answer_schema,
    extract_answer,
    request_outcome,
)
from lemming.capabilities.plans.value_paths import context_lines, fill_arguments, render, split_reference, value_to_text
from lemming.kernel.base.clock import parse_timestamp, timestamp
from lemming.kernel.base.integers import to_int
from lemming.kernel.base.times import expiry_payload
from lemming.kernel.turn.tool_results import DEFERRED_KEY, OUTBOX_ENTRIES, WRITTEN_ENTRY_KEY
from lemming.libraries.conditions.predicates import MISSING, get_field

NON_TOOL_RESULTS = ("memory_update", OUTBOX_ENTRIES, "reply")
"""Results that the engine itself adds to those of tool calls."""
RESOLVED_CALL_KEY = "call"
"""The key of a result that is a person's word on an earlier call: `lemming.journal_tools.repair.unknown_calls`."""
MISSING_RESULT: Mapping[str, Any] = {"success": False, "output": "no result has come of it"}
ANSWERS_KEY = "last-answers"
"""The memory of the last answers of agents to which a plan refers as `last.AGENT`."""
LAST_CHARS = 8000

Json = dict[str, Any]


def build_variables(plan: AgentPlan, run: PlanRun, values: Mapping[str, Any], new_answers: Mapping[str, Json]) -> Json:
    """Return a run's variables, as in `value_paths.ROOTS`. `new_answers`: the answers of this turn, by agent."""
    memory = values.get("memory") or {}
    request = values.get("request") or {}
    return {
        "start": extract_answer(request.get("payload") or {}),
        "previous": run.answers.get(run.previous),
        "steps": run.answers,
        "keys": run.keys,
        "memory": {key: value for key, value in memory.items() if not key.startswith(PREFIX)},
        "last": collect_last_answers(plan, values, new_answers),
        "context": {item["label"]: item["text"] for item in values.get("context") or ()},
        "round": run.rounds.get(run.at, 0),
        "tick": values["tick"],
    }


def find_referenced_agents(plan: AgentPlan) -> set[str]:
    """Return the agents in references to last answers."""
    references = (split_reference(path) for path, _ in iter_references(plan))
    return {name for root, name in references if root == "last" and name}


def collect_last_answers(
    plan: AgentPlan, values: Mapping[str, Any], new_answers: Mapping[str, Json]
) -> dict[str, Json]:
    """Return the newest answer of each referenced agent, with its age in ticks."""
    referenced, tick = find_referenced_agents(plan), values["tick"]
    if not referenced:
        return {}
    stored_answers = (values.get("memory") or {}).get(ANSWERS_KEY)
    newest: dict[str, Json] = dict(stored_answers) if isinstance(stored_answers, dict) else {}
    all_answers: list[tuple[str, Json]] = []
    for entry in (entry for part in ("known", "thread", "inbox") for entry in values.get(part) or ()):
        text = entry.get("payload", {}).get("text")
        if entry.get("kind") in ("response", "report", "message") and isinstance(text, str):
            all_answers.append((entry["agent"], {"text": text[:LAST_CHARS], "tick": entry["tick"]}))
    for agent, answer in sorted([*all_answers, *new_answers.items()], key=lambda item: int(item[1]["tick"])):
        if agent in referenced and answer["tick"] >= newest.get(agent, {}).get("tick", -1):
            newest[agent] = answer
    return {
        agent: {**answer, "age_ticks": tick - answer["tick"]} for agent, answer in newest.items() if agent in referenced
    }


def to_memory(answer: Json, tick: int) -> Json:
    """Return an answer in the form of the memory of last answers."""
    return {"text": str(answer.get("text", ""))[:LAST_CHARS], "tick": tick}


_ACTION_FIELDS = tuple(field.name for field in fields(StepAction) if field.name not in ("name", "writes"))


class NotAList(ValueError):
    """The value for a repeated step is not a list of items. The message names the reason."""


def get_items(step: StepDefinition, variables: Mapping[str, Any]) -> list[Any]:
    """Return the items of a repeated step. Raises: NotAList for a missing value, another type, or too many items."""
    items = get_field(variables, step.each)
    if not isinstance(items, list):
        problem = "nothing" if items is MISSING or items is None else "no list"
        raise NotAList(f'"{step.each}" is {problem}, expected a list of items')
    if len(items) > step.most:
        raise NotAList(f'"{step.each}" has {len(items)} items, and "most" allows {step.most}')
    return items


def get_actions(step: StepDefinition, run: PlanRun) -> list[StepAction]:
    """Return the actions of a step: the step itself, its parallel actions, or an action per item."""
    if step.each and run.items is not None:
        facts = {key: getattr(step, key) for key in _ACTION_FIELDS}
        return [StepAction(name=f"{step.name}.{number}", **facts) for number in range(1, len(run.items) + 1)]
    return [*step.parallel] or [step]


def item_variables(action: StepAction, run: PlanRun) -> Json:
    """Return the variables of an action's item. Actions without an item have none."""
    number = action.name.partition(".")[2]
    if not number or run.items is None:
        return {}
    return {"item": run.items[to_int(number) - 1], "number": to_int(number)}


def next_actions(
    step: StepDefinition, actions: Sequence[StepAction], states_by_name: Mapping[str, ActionState]
) -> list[StepAction]:
    """Return the actions to start next: items up to the concurrency limit, and none after a failure."""
    new_actions = [action for action in actions if action.name not in states_by_name]
    if not step.each:
        return new_actions
    phases = [states_by_name[action.name].phase for action in actions if action.name in states_by_name]
    if not step.keeps_failures and "failed" in phases:
        return []
    return new_actions[: step.at_once - sum(phase not in ("done", "failed") for phase in phases)]


def collect_answers(states: Iterable[ActionState]) -> Json:
    """Return the combined answer of a finished step from the states of its items, in order."""
    answers: list[Json] = []
    for state in states:
        failure = {"text": f"failed: {state.reasons}", "failed": state.reasons}
        answers.append(failure if state.phase == "failed" else state.answer or {})
    return {"items": answers}


def is_deferred(result: Mapping[str, Any]) -> bool:
    """Return True for a call deferred until earlier approvals are decided."""
    return result.get(DEFERRED_KEY) is True


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
    """Requests and calls of a run: those of earlier turns with their results, from the values, and new requests."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        results: list[Mapping[str, Any]] = [*(values.get("results") or ())]
        self._findings = [result for result in results if RESOLVED_CALL_KEY in result]
        self._results = [result for result in results if RESOLVED_CALL_KEY not in result]
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
        result = self._find_decision(tag)
        return result is not None and is_deferred(result)

    def answer(self, action: StepAction, tag: str, agent_name: str) -> RepairedAnswer | None:
        """Return the outcome of a request, or None for an open request."""
        if sub_request := self._earlier.get(tag):
            return request_outcome(action, sub_request, agent_name) if sub_request.get("end") else None
        if tag in self._new_tags:
            return None
        if result := self._find_decision(tag):
            is_written = result["success"] is True and WRITTEN_ENTRY_KEY in result["args"]  # its answer is pending
            return None if is_written else approval_outcome(action, result)
        remarks = [str(result["output"]) for result in self._results if result["tool"] in NON_TOOL_RESULTS]
        return RepairedAnswer(None, "; ".join(remarks) or f"nothing is asked of {agent_name} any more")

    def _find_decision(self, tag: str) -> Mapping[str, Any] | None:
        """Return a person's decision about a request with approval, or None."""
        for result in () if tag in self._new_tags or tag in self._earlier else self._results:
            is_entry = result.get("tool") == OUTBOX_ENTRIES and isinstance(result["args"], dict)
            if is_entry and result["args"].get("step") == tag:
                return result
        return None

    def get_result(self, number: int) -> Mapping[str, Any]:
        """Return the result of a call by its number in the earlier reply."""
        results = [result for result in self._results if result.get("tool") not in NON_TOOL_RESULTS]
        return results[number] if number < len(results) else MISSING_RESULT

    def find_resolution(self, call: str) -> Mapping[str, Any] | None:
        """Return a person's finding about a call, or the call's result after a retry."""
        findings = [finding for finding in self._findings if finding[RESOLVED_CALL_KEY] == call]
        return findings[-1] if findings and findings[-1].get("retry") != "started" else None


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
