"""The key `output` of a resume: the schema of the agent's entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lemming.ext import describe_field
from lemming.kernel.files.fast_decoder import TypeMismatch, make_field
from lemming.kernel.org.resume import Agent
from lemming.libraries.conditions.predicates import validate_condition

OUTPUT = "output"


@dataclass(frozen=True, kw_only=True)
class OutputSettings:
    """Schema of the agent's entries."""

    schema: dict[str, Any] = field(
        metadata=describe_field("JSON Schema of the payload, without the engine's own keys.")
    )
    when: list[dict[str, Any]] = make_field(
        list,
        "Conditions on an entry (kind, payload, tags): if one holds, the entry must satisfy the "
        "schema. Default: entries of kind report and response.",
        max_length=20,
    )

    def __post_init__(self) -> None:
        for index, condition in enumerate(self.when):
            for problem in validate_condition(condition, f"output.when.{index}"):
                raise TypeMismatch(f"{problem.pointer.replace('/', '.')}: {problem.message} ({problem.hint})")


@dataclass(frozen=True, kw_only=True)
class OutputResumeSettings:
    """Keys of the answers capability in a resume."""

    output: OutputSettings | None = make_field(None, "JSON Schemas for its entries; null: any payload is valid.")


def get_output_settings(agent: Agent) -> OutputSettings | None:
    """Return the output settings of an agent, or None to accept any payload."""
    settings: OutputSettings | None = agent.extensions.get(OUTPUT)
    return settings
