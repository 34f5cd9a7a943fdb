"""Fallback models for a failed model call: the resume's `model.fallback`, in order."""

from __future__ import annotations

from collections.abc import Callable

from lemming.kernel.base.errors import LemmingError, MayHaveActed, OutOfCredits, ProviderError, TurnTooLong
from lemming.kernel.inboxes.capability_state import StateQuery
from lemming.kernel.org.config import Config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.plugins.capability_loader import get_capability
from lemming.kernel.providers import Reply
from lemming.kernel.turn.turn_values import TurnInputs

FallbackReply = tuple[str, ModelEntry, Reply]
"""The model key of a reply, and the reply. The key is empty for the resume's own `model.key`."""


def complete_with_fallbacks(
    inputs: TurnInputs, config: Config, model: str, complete: Callable[[str, ModelEntry], Reply]
) -> FallbackReply:
    """Call the agent's model, then its fallbacks, until a model replies.

    Failures before the result are its `earlier`. Another `model`, given by key, has no fallbacks. Each model
    is resolved when its turn comes. Raises the last `ProviderError` when all models fail (preferring errors
    after which a retry may help), and `OutOfCredits` when the agent's own model is not affordable; for a
    fallback, `OutOfCredits` counts as a failure. Raises `TurnTooLong` without further calls when the turn's
    time is over, and `MayHaveActed` without further calls: the question may have been acted on.
    """
    failures: list[LemmingError] = []
    provider_errors: list[ProviderError] = []
    for key in (model,) if model else ("", *inputs.agent.model.fallback):
        try:
            entry = resolve_entry(inputs, config, key)
            reply = complete(key, entry)
            if reply.key:  # in a replay another model may have answered
                key, entry = reply.key, resolve_entry(inputs, config, reply.key)
            if failures:
                reply = reply._replace(earlier=(*failures, *reply.earlier))
            return key, entry, reply
        except (ProviderError, OutOfCredits) as error:
            if isinstance(error, (TurnTooLong, MayHaveActed)) or (
                key in ("", model) and isinstance(error, OutOfCredits)
            ):
                error.earlier = (*failures, *error.earlier)
                raise
            failures += [*getattr(error, "earlier", ()), error]
            provider_errors += [error] if isinstance(error, ProviderError) else []
    last = next((failure for failure in reversed(provider_errors) if not failure.is_for_good), provider_errors[-1])
    last.earlier = tuple(failure for failure in failures if failure is not last)
    raise last


def resolve_entry(inputs: TurnInputs, config: Config, key: str) -> ModelEntry:
    """Return the model entry of a key; a model of a capability needs no entry in a file."""
    if not key:
        return inputs.model
    for name, snapshot in inputs.given.items():
        for entry in StateQuery(ModelEntry, snapshot).ask(get_capability(name, config.org.plugins)):
            if entry.model == key:
                return entry
    return config.model(key)
