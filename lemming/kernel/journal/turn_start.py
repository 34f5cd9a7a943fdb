"""The parsed parts of a `turn_started`: the resume, the model and the allocation."""

from __future__ import annotations

from lemming.kernel.agents import Agent
from lemming.kernel.files.field_types import Json
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.journal.journal_records import TurnStarted
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.org.settings_blocks import LoopSettings

PROMPT_PLACEHOLDER = "(recorded in the prompt)"
"""Placeholder for the instructions, which the record holds once, in the prompt."""


def start_error(record: TurnStarted) -> str:
    """Return the reason a turn cannot start from a `turn_started`, or an empty string."""
    if record.resume["name"] != record.agent:
        return f'turn_started /resume/name: must be {record.agent}, got "{record.resume["name"]}"'
    parsers = {
        "resume": recorded_agent,
        "model": recorded_model,
        "allocation": recorded_allocation,
        "loops": load_loop_settings,
    }
    for key, parse_part in parsers.items():
        try:
            parse_part(record)
        except ValueError as error:
            return f"turn_started /{key}: {error}"
    return ""


def recorded_agent(record: TurnStarted) -> Agent:
    """Return the agent at the start of its turn. Raise `ValueError` for an invalid resume."""
    agent: Agent = to_value(Agent, {**record.resume, "instructions": PROMPT_PLACEHOLDER})
    return agent


def recorded_model(record: TurnStarted) -> ModelEntry:
    """Return the model at the start of the turn. Raise `ValueError` for an invalid model."""
    entry: ModelEntry = to_value(ModelEntry, record.model)
    return entry


def load_loop_settings(record: TurnStarted) -> LoopSettings | None:
    """Return the loop settings in a turn's record, or None. Raise `ValueError` for invalid settings."""
    settings_json = record.as_json().get("loops")
    loops: LoopSettings | None = to_value(LoopSettings, settings_json) if settings_json else None
    return loops


def recorded_allocation(record: TurnStarted) -> AgentCredits:
    """Return the credits available to the agent at the start of the turn. Raise `ValueError` if invalid."""
    allocation: AgentCredits = to_value(AgentCredits, record.allocation)
    return allocation


def first_prompt(record: TurnStarted) -> list[Json]:
    """Return the messages of the first model call: the prompt, and the earlier dialogue."""
    return [*record.prompt, *record.dialogue]
