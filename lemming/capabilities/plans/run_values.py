"""What a run knows: the one value that templates, contexts and conditions of a plan refer to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lemming.capabilities.plans.format import AgentPlan
from lemming.capabilities.plans.outcomes import plain_answer
from lemming.capabilities.plans.references import parts_of
from lemming.capabilities.plans.referred import all_paths
from lemming.capabilities.plans.run import PREFIX, Run

ANSWERS_KEY = "last-answers"
"""The memory of the last answers of agents to which a plan refers as `last.AGENT`."""
LAST_CHARS = 8000

Json = dict[str, Any]
NOBODY: Mapping[str, Json] = {}


def what_is_known(
    plan: AgentPlan, run: Run, values: Mapping[str, Any], said: Mapping[str, Json] = NOBODY
) -> Json:
    """Return what the run knows: `lemming.capabilities.plans.references.ROOTS` says what each part is.

    `said`: the answers that came to the run in this turn, by agent.
    """
    memory = values.get("memory") or {}
    request = values.get("request") or {}
    return {
        "start": plain_answer(request.get("payload") or {}),
        "previous": run.answers.get(run.previous),
        "steps": run.answers,
        "keys": run.keys,
        "memory": {key: value for key, value in memory.items() if not key.startswith(PREFIX)},
        "last": last_answers(plan, values, said),
        "context": {item["label"]: item["text"] for item in values.get("context") or ()},
        "round": run.rounds.get(run.at, 0),
        "tick": values["tick"],
    }


def agents_referred_to(plan: AgentPlan) -> set[str]:
    """Return the agents whose last answers the plan refers to."""
    return {name for root, name in (parts_of(path) for path, _ in all_paths(plan)) if root == "last" and name}


def last_answers(
    plan: AgentPlan, values: Mapping[str, Any], said_now: Mapping[str, Json] = NOBODY
) -> dict[str, Json]:
    """Return the newest thing that each of those agents said, with its age in ticks."""
    wanted, tick = agents_referred_to(plan), values["tick"]
    if not wanted:
        return {}
    kept = (values.get("memory") or {}).get(ANSWERS_KEY)
    newest: dict[str, Json] = dict(kept) if isinstance(kept, dict) else {}
    found = (*_entry_values(values), *said_now.items())
    for agent, said in sorted(found, key=lambda each: int(each[1]["tick"])):
        if agent in wanted and said["tick"] >= newest.get(agent, {}).get("tick", -1):
            newest[agent] = said
    return {
        agent: {**said, "age_ticks": tick - said["tick"]} for agent, said in newest.items() if agent in wanted
    }


def _entry_values(values: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    entries: Iterable[Mapping[str, Any]] = (
        entry for part in ("known", "thread", "inbox") for entry in values.get(part) or ()
    )
    for entry in entries:
        text = entry.get("payload", {}).get("text")
        if entry.get("kind") in ("response", "report", "message") and isinstance(text, str):
            yield entry["agent"], {"text": text[:LAST_CHARS], "tick": entry["tick"]}


def kept_answer(answer: Json, tick: int) -> Json:
    """Return an answer as the memory of last answers keeps it."""
    return {"text": str(answer.get("text", ""))[:LAST_CHARS], "tick": tick}
