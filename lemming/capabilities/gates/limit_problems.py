"""What is wrong with limits, before a call is refused for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lemming.capabilities.gates.format import Gate
from lemming.capabilities.gates.keys import gates_in
from lemming.capabilities.gates.limit import window_of
from lemming.capabilities.money.prices import price_of
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem
from lemming.kernel.llm.credits import AROUND_A_CALL
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.plugins.shipped import NO_MODELS
from lemming.kernel.tick.firing_plan import takes_turns


def problems_of_limits(base: OrgPath, agent: Agent | None, config: Config) -> Iterator[Problem]:
    """Yield what is wrong with the limits of a resume; None: of the settings."""
    file = paths.resume_file(agent.name) if agent else paths.ORG_FILE
    concerned = [agent] if agent else survey_agents(base).agents.values()
    asking = (it for it in concerned if agent or takes_turns(it, config))
    keys = {key for it in asking for key in (it.model.key, *it.model.fallback)}
    for place, gate in enumerate(gates_in(agent or config.org)):
        if gate.at != "spend":
            continue
        pointer = f"/gates/{place}"
        if why := _why_too_long(gate, config):
            hint = "shorten it, or raise kept_journals: what was spent is read from journals"
            yield Problem(why, file, pointer=f"{pointer}/window", hint=hint)
        if gate.dollars is not None and (unpriced := _unpriced(keys, config)):
            message = f"a limit in dollars refuses {', '.join(unpriced)}: no price is known"
            hint = (
                "set usd_per_million_input_tokens and usd_per_million_output_tokens in config/models.json; "
                "0 for one that costs nothing"
            )
            yield Problem(message, file, pointer=f"{pointer}/dollars", hint=hint, severity="warning")
        if gate.tokens is not None and (never := _never_asked(gate.tokens, keys, config)):
            message = f"a limit of {gate.tokens} tokens never lets {', '.join(never)} be asked"
            hint = f"what a question can have at most counts: max_output_tokens, {AROUND_A_CALL}, its prompt"
            yield Problem(message, file, pointer=f"{pointer}/tokens", hint=hint, severity="warning")


def _never_asked(tokens: int, keys: Iterable[str], config: Config) -> list[str]:
    """Return the keys of models of which one question can have more tokens than a limit allows."""
    entries = ((key, config.models.get(key)) for key in keys)
    return sorted(
        key
        for key, entry in entries
        if entry is not None
        and entry.provider not in NO_MODELS
        and entry.max_output_tokens + AROUND_A_CALL > tokens
    )


def _why_too_long(gate: Gate, config: Config) -> str:
    """Return why what a limit adds up is not all kept; empty when it is."""
    kept, window = config.org.kept_journals, window_of(gate.window)
    if kept is None or gate.per in (None, "turn"):
        return ""
    if window is None:
        is_counted = gate.calls is not None and gate.per != "request"
        return f"calls are counted from the first tick on, and journals of {kept} ticks are kept" * is_counted
    ticks = window.ticks or (window.seconds or 0) / max(config.org.tick_interval_s, 1e-3)
    return f"{window} is longer than the {kept} ticks whose journals are kept" if ticks > kept else ""


def _unpriced(keys: Iterable[str], config: Config) -> list[str]:
    """Return the keys that stand for models without a price."""
    entries = ((key, config.models.get(key)) for key in keys)
    return sorted(
        key
        for key, entry in entries
        if entry is not None and entry.provider not in NO_MODELS and price_of(entry) is None
    )
