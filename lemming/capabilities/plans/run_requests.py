"""Requests of a run's steps, with their outcomes. Pure.

A request is identified by its `payload.step`. If a gate requires approval first, the request is not written
yet, and a result holds the person's decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lemming.capabilities.output_schemas.payload_coercion import RepairedAnswer
from lemming.capabilities.plans.plan_format import AgentPlan, StepAction
from lemming.capabilities.plans.plan_run import PlanRun, run_key
from lemming.capabilities.plans.run_values import ANSWERS_KEY, find_referenced_agents
from lemming.capabilities.plans.step_outcomes import approval_outcome, request_outcome
from lemming.capabilities.plans.step_requests import CallResults, is_deferred, is_written

Json = dict[str, Any]


class StepRequests:
    """Requests of a run in one turn: requests of earlier turns, from the values, and new requests."""

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
