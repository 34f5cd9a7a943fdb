"""The parts of a `turn_started` that are more than plain JSON: the resume, the model, the allocation."""

from __future__ import annotations

from lemming.kernel.agents import Agent
from lemming.kernel.files.documents import value_of
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.records import TurnStarted
from lemming.kernel.org.blocks import LoopSettings
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.resume import AgentCredits

IN_THE_PROMPT = "(recorded in the prompt)"
"""What stands for the instructions: the record holds them once, in the prompt."""


def why_no_start(record: TurnStarted) -> str:
    """Return why no turn can begin from a `turn_started`; empty when one can."""
    if record.resume["name"] != record.agent:
        return f'turn_started /resume/name: "{record.resume["name"]}" is not {record.agent}'
    parts = {"resume": agent_of, "model": model_of, "allocation": allocation_of, "loops": load_loop_settings}
    for key, part_of in parts.items():
        try:
            part_of(record)
        except ValueError as error:
            return f"turn_started /{key}: {error}"
    return ""


def agent_of(record: TurnStarted) -> Agent:
    """Return the agent as its turn began; raise `ValueError` for a resume that is none."""
    agent: Agent = value_of(Agent, {**record.resume, "instructions": IN_THE_PROMPT})
    return agent


def model_of(record: TurnStarted) -> ModelEntry:
    """Return the model that the turn began with; raise `ValueError` for what is none."""
    entry: ModelEntry = value_of(ModelEntry, record.model)
    return entry


def load_loop_settings(record: TurnStarted) -> LoopSettings | None:
    """Return the loop settings in a turn's record, if there are any; raise `ValueError` for nonsense."""
    plain = record.as_json().get("loops")
    loops: LoopSettings | None = value_of(LoopSettings, plain) if plain else None
    return loops


def allocation_of(record: TurnStarted) -> AgentCredits:
    """Return what the agent might spend when the turn began; raise `ValueError` for what is none."""
    allocation: AgentCredits = value_of(AgentCredits, record.allocation)
    return allocation


def first_question(record: TurnStarted) -> list[Json]:
    """Return the messages that the model was asked with first: the prompt, and what was said before."""
    return [*record.prompt, *record.dialogue]
