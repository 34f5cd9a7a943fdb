"""The key `output` of a resume: what the agent's entries must be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lemming.capabilities.conditions.when import problems_of
from lemming.kernel.files.fitting import Misfit, about
from lemming.kernel.org.resume import Agent

OUTPUT = "output"


@dataclass(frozen=True, kw_only=True)
class Output:
    """What the agent's entries must be."""

    schema: dict[str, Any] = field(
        metadata=about("The JSON Schema of the payload, the engine's own keys in it left out.")
    )
    when: list[dict[str, Any]] = field(
        default_factory=list,
        metadata=about(
            "Conditions over an entry (kind, payload, tags): where one holds, it must satisfy the schema. "
            "Default: entries of kind report and response.",
            max_length=20,
        ),
    )

    def __post_init__(self) -> None:
        for place, condition in enumerate(self.when):
            for wrong in problems_of(condition, f"output.when.{place}"):
                raise Misfit(f"{wrong.pointer.replace('/', '.')}: {wrong.message} ({wrong.hint})")


@dataclass(frozen=True, kw_only=True)
class OfResume:
    """What a resume says of answers."""

    output: Output | None = field(
        default=None, metadata=about("What its entries must be; null: any payload will do.")
    )


def output_of(agent: Agent) -> Output | None:
    """Return what an agent's entries must be; None: any payload will do."""
    found: Output | None = agent.further.get(OUTPUT)
    return found
