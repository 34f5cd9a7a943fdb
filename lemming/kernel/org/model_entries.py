"""Entries of `config/models.json`, referenced by a resume's `model.key`. Format: docs/settings.md."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lemming.kernel.base.aliases import accept_old_names
from lemming.kernel.base.errors import Problem, UnknownModel
from lemming.kernel.base.jsontext import correct_typo
from lemming.kernel.files.fast_decoder import MAX_AMOUNT, describe_field, make_field
from lemming.kernel.files.unknown_keys import UNKNOWN_KEY
from lemming.kernel.plugins.capability_table import NO_MODELS
from lemming.kernel.providers import list_option_names


@accept_old_names
@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """An entry of `config/models.json`, referenced by a resume's `model.key`."""

    provider: str = field(
        metadata=describe_field("Name of the provider: openai, anthropic, ollama, local, cli, ...", min_length=1)
    )
    model: str = make_field("", "Name of the model at the provider.")
    options: dict[str, Any] = make_field(dict, "Options of the provider: base_url, api_key_env, command, file, ...")
    temperature: float | None = make_field(
        None, "Sampling temperature, unless a resume sets one; null: the backend's.", ge=0, le=2
    )
    max_output_tokens: int = make_field(2048, "Maximum length of an answer, in tokens.", ge=1)
    context_tokens: int | None = make_field(
        None, "Maximum length of prompt and answer together, in tokens; null: as the provider says.", ge=256
    )
    tools_share: float = make_field(
        0.1, "Share of context_tokens above which tools are offered by tool_search.", ge=0, le=1
    )
    deadline_s: float = make_field(
        120.0, "Timeout of a call in seconds, retries included, waits for the rate limits below excluded.", gt=0
    )
    batch_deadline_s: float = make_field(
        86_400.0, "Timeout of a batch in seconds; unanswered calls are then made live.", gt=0
    )
    batch_price_factor: float = make_field(0.5, "Factor on the price in dollars for tokens of a batch.", ge=0, le=1)
    attempts: int = make_field(4, "Maximum attempts of one call, the first included.", ge=1, le=10)
    max_concurrent: int | None = make_field(
        None,
        "Maximum number of concurrent calls; null: 64 for a hosted model, 4 for a server on this "
        "machine, 1 for the embedded model, else as many as turns.",
        ge=1,
    )
    max_concurrency: int | None = make_field(None, "Old name of `max_concurrent`, which takes precedence.", ge=1)
    requests_per_minute: int | None = make_field(
        None, "Maximum calls in any 60 seconds, attempts included; null: no limit.", ge=1
    )
    tokens_per_minute: int | None = make_field(
        None, "Maximum input and output tokens in any 60 seconds; null: no limit.", ge=1
    )
    tools: Literal["native", "contract"] | None = make_field(
        None,
        'How tools are called. "native": by the backend\'s tool calls; "contract": by the JSON of '
        "the reply; null: native where the backend prefers it (openai, anthropic).",
    )
    images: bool = make_field(False, "True if the model takes images, which are attached to entries.")
    prompt: Literal["fit", "brief", "full", "tools", "values"] | None = make_field(
        None,
        'Form of prompts and replies; null: "fit", or "full" for recorded replies (scripted, '
        'replay). "fit": the simplest that can express what the turn may do. "brief": the same for '
        'very small models. "full": the contract with its four keys. "tools": one action a step, '
        'never native tools. "values": JSON instead of prose, for programs.',
    )
    per_call: float = make_field(1.0, "Credits for each call.", ge=0, le=MAX_AMOUNT)
    per_1k_input_tokens: float = make_field(0.0, "Credits per 1,000 input tokens.", ge=0, le=MAX_AMOUNT)
    per_1k_output_tokens: float = make_field(0.0, "Credits per 1,000 output tokens.", ge=0, le=MAX_AMOUNT)
    usd_per_million_input_tokens: float | None = make_field(
        None, "Price in dollars; null: unknown.", ge=0, le=MAX_AMOUNT
    )
    usd_per_million_output_tokens: float | None = make_field(
        None, "Price in dollars; null: unknown.", ge=0, le=MAX_AMOUNT
    )

    @property
    def concurrency_limit(self) -> int | None:
        """Maximum number of concurrent calls, or None if the entry sets none."""
        return self.max_concurrent or self.max_concurrency

    @property
    def max_cost_usd(self) -> float | None:
        """Limit in dollars that the provider keeps to in each call, from its options, or None."""
        limit = self.options.get("max_cost_usd")
        return float(limit) if isinstance(limit, int | float) else None


def has_model_key(entry: ModelEntry, key: str) -> bool:
    """Return True if an entry sets a key, or one of its `options`."""
    _, _, option = key.partition(".")
    return option in entry.options if option else bool(getattr(entry, key) != getattr(ModelEntry, key))


LOCAL_MODEL = "smollm2-135m-instruct"
PROVIDERS_WITHOUT_MODEL = NO_MODELS | {"replay"}
"""Providers without a remote model: their answers are computed, or were recorded."""
FREE_OPTIONS: dict[str, Any] = {"prompt": "values", "per_call": 0.0}
FREE_OPTIONS |= dict.fromkeys(("usd_per_million_input_tokens", "usd_per_million_output_tokens"), 0.0)
DEFAULT_MODELS = {
    "default": ModelEntry(provider="local", model=LOCAL_MODEL, prompt="brief", max_output_tokens=220),
    "human": ModelEntry(provider="human"),
    "plan": ModelEntry(provider="plan", **FREE_OPTIONS),
    "clock": ModelEntry(provider="clock", prompt="values", per_call=0.0),
}


def add_option_hint(problem: Problem, entries: Any) -> Problem:
    """Return a problem of `config/models.json` with a better hint, if the key belongs under `options`."""
    model_key, _, key = problem.pointer[1:].partition("/")
    entry = entries.get(model_key) if isinstance(entries, dict) else None
    provider = entry.get("provider") if isinstance(entry, dict) else None
    if problem.code != UNKNOWN_KEY or not isinstance(provider, str) or "/" in key:
        return problem
    try:
        options = list_option_names(provider)
    except UnknownModel:  # it may be a plugin's
        return problem
    option = key if key in options else correct_typo(key, options)
    hint = f'move it to options.{option}: "options": {{"{option}": ...}}'
    return replace(problem, hint=hint) if option else problem
