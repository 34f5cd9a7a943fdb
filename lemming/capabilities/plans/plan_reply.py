"""The reply of a turn that advances a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lemming.capabilities.plans.plan_format import AgentPlan
from lemming.capabilities.plans.plan_run import PlanRun, run_key
from lemming.capabilities.plans.run_values import ANSWERS_KEY, find_referenced_agents

Json = dict[str, Any]


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
