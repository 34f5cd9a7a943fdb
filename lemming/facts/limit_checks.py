"""What is wrong with limits, before a call is refused for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lemming.capabilities.gates.gate import Gate
from lemming.capabilities.gates.limit import window_of
from lemming.errors import Problem
from lemming.llm.prices import price_of
from lemming.org.config import Config
from lemming.tick.turn_limits import NO_MODELS


def problems_of_limits(
    file: str, gates: Sequence[Gate], config: Config, keys: Iterable[str]
) -> Iterator[Problem]:
    """Yield what is wrong with the limits of a file; `keys` are those of the models that they concern."""
    for place, gate in enumerate(gates):
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
