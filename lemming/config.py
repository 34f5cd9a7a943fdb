"""The organisation's settings: `config/org.json`, `config/models.json`, `config/credits.json`.

A missing file means the defaults below. A file with a wrong value is a `ConfigError` that stops the
engine, because it concerns every agent; an unknown key is a warning. Formats: docs/formats.md.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from lemming import paths
from lemming.agents import AgentCredits
from lemming.documents import Document, read_document
from lemming.errors import ConfigError, Problem, UnknownModel
from lemming.jsontext import nearest
from lemming.schedule import Wake

ORG_FILE = "config/org.json"
MODELS_FILE = "config/models.json"
CREDITS_FILE = "config/credits.json"


@dataclass(frozen=True, kw_only=True)
class TurnDefaults:
    """Limits of a turn for agents whose resume does not set them."""

    max_steps: Annotated[int, Field(ge=1, le=50, description="Model calls a turn may make.")] = 1
    repairs: Annotated[int, Field(ge=0, le=5, description="Corrective calls after a bad reply.")] = 1


@dataclass(frozen=True, kw_only=True)
class AgentDefaults:
    """What a resume that is silent means."""

    wake: Annotated[Wake, Field(description='Default of a resume\'s "schedule.wake".')] = "always"
    turn: TurnDefaults = field(default_factory=TurnDefaults)


@dataclass(frozen=True, kw_only=True)
class ShellSettings:
    """How the shell tool is confined."""

    sandbox: Annotated[
        Literal["auto", "bwrap", "landlock", "none"],
        Field(description='"auto": bubblewrap, else Landlock, else the tool is off. "none": not confined.'),
    ] = "auto"
    timeout_s: Annotated[float, Field(gt=0, le=3600, description="A command is killed after this.")] = 30.0
    max_output_bytes: Annotated[
        int, Field(ge=256, le=1 << 20, description="Output beyond this is cut, and the cut is marked.")
    ] = 64 << 10


@dataclass(frozen=True, kw_only=True)
class Org:
    """Settings that hold for every agent."""

    visibility: Annotated[
        Literal["order", "tick"],
        Field(
            description='"order": a turn sees what agents before it wrote in the same tick. '
            '"tick": entries written in a tick are seen from the next tick on.'
        ),
    ] = "order"
    durability: Annotated[
        Literal["turn", "tick", "off"],
        Field(
            description='When bytes are forced to the disk: after each answer, once a tick, or never. "off" '
            "survives a killed process, not power loss."
        ),
    ] = "turn"
    tick_interval_s: Annotated[
        float, Field(ge=0, description="Pause between ticks of run-forever, from start to start.")
    ] = 60.0
    retention_ticks: Annotated[
        int, Field(ge=0, description="Outbox entries older than this many ticks are removed; 0 keeps all.")
    ] = 1000
    plain_journals: Annotated[
        int,
        Field(
            ge=0,
            description="Journals of this many ticks stay files of their own; older ones are packed, a "
            "hundred ticks to a file, in logs/ticks/sealed.",
        ),
    ] = 1000
    inbox_limit: Annotated[int, Field(ge=1, le=1000, description="Entries a prompt may show.")] = 50
    inbox_chars: Annotated[int, Field(ge=1, description="Characters of entries a prompt may show.")] = 24_000
    memory_chars: Annotated[int, Field(ge=0, description="Characters of memory a prompt may show.")] = 16_000
    max_attempts: Annotated[
        int,
        Field(
            ge=1,
            description="A turn in which the engine died this often without getting further is given up.",
        ),
    ] = 3
    history: Annotated[
        Literal["off", "git"],
        Field(description='"git": every tick that changed something is a commit in .lemming/history.git.'),
    ] = "off"
    create_agent_allowed: Annotated[list[str], Field(description="Agents that may call create_agent.")] = (
        field(default_factory=lambda: ["hr"])
    )
    plugins: Annotated[
        list[str], Field(description="Python modules imported at start; they register tools and providers.")
    ] = field(default_factory=list)
    defaults: AgentDefaults = field(default_factory=AgentDefaults)
    shell: ShellSettings = field(default_factory=ShellSettings)


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """One line of `config/models.json`: what a resume's `model.key` stands for."""

    provider: Annotated[str, Field(min_length=1, description="openai, anthropic, ollama, local, cli, ...")]
    model: Annotated[str, Field(description="The model's name at the provider.")] = ""
    options: Annotated[
        dict[str, Any],
        Field(description="Arguments of the provider: base_url, api_key_env, command, file, ..."),
    ] = field(default_factory=dict)
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    max_output_tokens: Annotated[int, Field(ge=1, description="Longest answer, in tokens.")] = 2048
    deadline_s: Annotated[
        float, Field(gt=0, description="Longest wait for one answer, retries and pauses included.")
    ] = 120.0
    batch_deadline_s: Annotated[
        float, Field(gt=0, description="Longest wait for a batch; calls without an answer then go live.")
    ] = 86_400.0
    batch_price_factor: Annotated[
        float, Field(ge=0, le=1, description="What a batch's tokens cost in dollars, against the price.")
    ] = 0.5
    attempts: Annotated[int, Field(ge=1, le=10, description="Tries of one call, the first included.")] = 4
    prompt: Annotated[
        Literal["full", "brief"], Field(description='"brief": a short prompt, for very small models.')
    ] = "full"
    per_call: Annotated[float, Field(ge=0, description="Credits a call costs.")] = 1.0
    per_1k_input_tokens: Annotated[float, Field(ge=0, description="Credits per 1,000 tokens in.")] = 0.0
    per_1k_output_tokens: Annotated[float, Field(ge=0, description="Credits per 1,000 tokens out.")] = 0.0
    usd_per_million_input_tokens: Annotated[
        float | None, Field(ge=0, description="Price in dollars; null: unknown.")
    ] = None
    usd_per_million_output_tokens: Annotated[
        float | None, Field(ge=0, description="Price in dollars; null: unknown.")
    ] = None


LOCAL_MODEL = "smollm2-135m-instruct"
DEFAULT_MODELS = {
    "default": ModelEntry(provider="local", model=LOCAL_MODEL, prompt="brief", max_output_tokens=220),
    "human": ModelEntry(provider="human"),
}


@dataclass(frozen=True)
class Config:
    """All settings, read once; `warnings` are for the person, not for the engine."""

    org: Org
    models: dict[str, ModelEntry]
    allocations: dict[str, AgentCredits]
    warnings: tuple[Problem, ...] = ()

    def model(self, key: str) -> ModelEntry:
        """Return the entry of a model key; raise `UnknownModel` with the nearest key."""
        if key in self.models:
            return self.models[key]
        hint = nearest(key, list(self.models)) or f"keys there: {', '.join(sorted(self.models))}"
        raise UnknownModel(f'no model key "{key}"', where=MODELS_FILE, hint=hint)


def load_config(base_path: str | os.PathLike[str]) -> Config:
    """Return the organisation's settings; raise `ConfigError` with every problem of all three files."""
    base = paths.as_base(base_path)
    problems: list[Problem] = []
    warnings: list[Problem] = []

    def read(file: str, kind: Any) -> Any:
        try:
            document: Document[Any] = read_document(base, file, kind)
        except FileNotFoundError:
            return None
        except ConfigError as error:
            problems.extend(error.problems)
            return None
        warnings.extend(document.warnings)
        return document.value

    org = read(ORG_FILE, Org) or Org()
    models = read(MODELS_FILE, dict[str, ModelEntry]) or {}
    allocations = read(CREDITS_FILE, dict[str, AgentCredits]) or {}
    errors = tuple(problem for problem in problems if problem.severity == "error")
    if errors:
        raise ConfigError(str(errors[0]), problems=tuple(problems))
    return Config(org, {**DEFAULT_MODELS, **models}, allocations, tuple(warnings))


def credits_of(config: Config, agent_name: str, resume: AgentCredits) -> AgentCredits:
    """Return an agent's allocation: `config/credits.json` where it speaks, the resume where it does not."""
    override = config.allocations.get(agent_name, AgentCredits())
    return AgentCredits(
        max_credits=resume.max_credits if override.max_credits is None else override.max_credits,
        soft_cap=resume.soft_cap if override.soft_cap is None else override.soft_cap,
    )
