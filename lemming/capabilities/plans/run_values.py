"""Variables of a run, for templates, contexts and conditions of a plan. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lemming.capabilities.plans.plan_format import AgentPlan
from lemming.capabilities.plans.plan_run import PREFIX, PlanRun
from lemming.capabilities.plans.reference_validation import iter_references
from lemming.capabilities.plans.step_outcomes import extract_answer
from lemming.capabilities.plans.value_paths import split_reference

ANSWERS_KEY = "last-answers"
"""The memory of the last answers of agents to which a plan refers as `last.AGENT`."""
LAST_CHARS = 8000

Json = dict[str, Any]
NO_ANSWERS: Mapping[str, Json] = {}


def build_variables(
    plan: AgentPlan, run: PlanRun, values: Mapping[str, Any], new_answers: Mapping[str, Json] = NO_ANSWERS
) -> Json:
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
    return {
        name for root, name in (split_reference(path) for path, _ in iter_references(plan)) if root == "last" and name
    }


def collect_last_answers(
    plan: AgentPlan, values: Mapping[str, Any], new_answers: Mapping[str, Json] = NO_ANSWERS
) -> dict[str, Json]:
    """Return the newest answer of each referenced agent, with its age in ticks."""
    referenced, tick = find_referenced_agents(plan), values["tick"]
    if not referenced:
        return {}
    stored_answers = (values.get("memory") or {}).get(ANSWERS_KEY)
    newest: dict[str, Json] = dict(stored_answers) if isinstance(stored_answers, dict) else {}
    all_answers = (*_entry_values(values), *new_answers.items())
    for agent, answer in sorted(all_answers, key=lambda item: int(item[1]["tick"])):
        if agent in referenced and answer["tick"] >= newest.get(agent, {}).get("tick", -1):
            newest[agent] = answer
    return {
        agent: {**answer, "age_ticks": tick - answer["tick"]} for agent, answer in newest.items() if agent in referenced
    }


def _entry_values(values: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    entries: Iterable[Mapping[str, Any]] = (
        entry for part in ("known", "thread", "inbox") for entry in values.get(part) or ()
    )
    for entry in entries:
        text = entry.get("payload", {}).get("text")
        if entry.get("kind") in ("response", "report", "message") and isinstance(text, str):
            yield entry["agent"], {"text": text[:LAST_CHARS], "tick": entry["tick"]}


def to_memory(answer: Json, tick: int) -> Json:
    """Return an answer in the form of the memory of last answers."""
    return {"text": str(answer.get("text", ""))[:LAST_CHARS], "tick": tick}
