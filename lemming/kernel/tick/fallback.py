"""Who is asked in the place of a model that gives no answer: the resume's `model.fallback`, in its order."""

from __future__ import annotations

from collections.abc import Callable

from lemming.kernel.base.errors import LemmingError, OutOfCredits, ProviderError, TurnTooLong
from lemming.kernel.org.config import Config
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.plugins.capabilities import capability
from lemming.kernel.providers import Reply
from lemming.kernel.turn.values import TurnInputs

Answered = tuple[str, ModelEntry, Reply]
"""Who gave a reply, and the reply. The key is empty for the one that the resume's `model.key` stands for."""


def ask_in_turn(
    inputs: TurnInputs, config: Config, model: str, ask: Callable[[str, ModelEntry], Reply]
) -> Answered:
    """Ask the agent's model, then its fallbacks, until one answers; failures are `earlier` of what comes out.

    Another `model`, by its key, has no fallbacks. Each is looked up when it is its turn. Raises the last
    `ProviderError` when nobody answers (of those after which asking again may help, if there is one), and
    `OutOfCredits` when the agent's own model cannot be paid for; of a fallback that is one more failure. When
    the turn's time is over nobody else is asked: `TurnTooLong`.
    """
    failures: list[LemmingError] = []
    ends: list[ProviderError] = []
    for key in (model,) if model else ("", *inputs.agent.model.fallback):
        try:
            entry = entry_for(inputs, config, key)
            reply = ask(key, entry)
            if reply.key:  # out of a recording, in which another one had answered
                key, entry = reply.key, entry_for(inputs, config, reply.key)
            if failures:
                reply = reply._replace(earlier=(*failures, *reply.earlier))
            return key, entry, reply
        except (ProviderError, OutOfCredits) as error:
            if isinstance(error, TurnTooLong) or (key in ("", model) and isinstance(error, OutOfCredits)):
                error.earlier = (*failures, *error.earlier)
                raise
            failures += [*getattr(error, "earlier", ()), error]
            ends += [error] if isinstance(error, ProviderError) else []
    last = next((failure for failure in reversed(ends) if not failure.is_for_good), ends[-1])
    last.earlier = tuple(failure for failure in failures if failure is not last)
    raise last


def entry_for(inputs: TurnInputs, config: Config, key: str) -> ModelEntry:
    """Return what a key stands for; one that a capability asks need be no line of a file."""
    if not key:
        return inputs.model
    for name, given in inputs.given.items():
        entry: ModelEntry | None = capability(name, config.org.plugins).model_of(given, key)
        if entry:
            return entry
    return config.model(key)
