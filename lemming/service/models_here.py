"""Which models somebody has: keys in the environment, servers on this machine, an embedded model for it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lemming.capabilities.embedded.local import usable_processors
from lemming.capabilities.embedded.weights import CATALOGUE, is_on_this_machine
from lemming.capabilities.hosted.servers import KINDS, SERVERS
from lemming.kernel.base.errors import UnknownModel
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.org.config import MODELS_FILE
from lemming.kernel.org.models import LOCAL_MODEL
from lemming.service.served_models import ServerPlace, ask_servers

_PATIENCE_S = 0.5
_NAMES_OF_ONE = 3
_USUAL = {"openai": ("OPENAI_API_KEY", "gpt-6-luna"), "anthropic": ("ANTHROPIC_API_KEY", "claude-haiku-5-5")}
_SLOW_S = 300.0
"""The deadline of an answer of an embedded model: on two busy cores it writes a few words a second."""


class Machine(NamedTuple):
    """What a model may use: bytes of memory that are free (None: unknown), and processors."""

    free_bytes: int | None
    processors: int


class ModelHere(NamedTuple):
    """One that can be asked: its provider, its name (empty: somebody has to say it), and how one knows."""

    provider: str
    model: str
    because: str

    @property
    def key(self) -> str:
        """Its key in `config/models.json`."""
        return self.model if self.provider == "local" else self.provider

    @property
    def line(self) -> dict[str, Any]:
        """Its line in `config/models.json`."""
        return line_of(self.provider, self.model)

    @property
    def command(self) -> str:
        """The command that makes it the default of an organisation."""
        if self.provider == "local":
            return f"lemming models use {self.model}"
        return f"lemming models use {self.provider}/{self.model or 'MODEL'}"


def line_of(provider: str, model: str) -> dict[str, Any]:
    """Return the line of `config/models.json` for a model that nobody has set anything else for."""
    if provider != "local":
        return {"provider": provider, "model": model}
    plain: dict[str, Any] = {"provider": "local", "model": model, "prompt": "brief", "max_output_tokens": 256}
    return plain if model == LOCAL_MODEL else {**plain, "deadline_s": _SLOW_S}


def model_meant(words: str) -> ModelHere | None:
    """Return the model that an embedded model's name or PROVIDER/MODEL means; None for anything else."""
    if words in CATALOGUE:
        return ModelHere("local", words, "named")
    provider, slash, model = words.partition("/")
    return ModelHere(provider, model, "named") if slash and model and provider in KINDS else None


def unknown_model(words: str, keys: Iterable[str]) -> UnknownModel:
    """Return the error for words that mean neither a key nor a model, with the nearest of both."""
    known = {*keys, *CATALOGUE}
    hint = (
        nearest(words, sorted(known))
        or f"keys and embedded models: {', '.join(sorted(known))}; or PROVIDER/MODEL"
    )
    return UnknownModel(f'no model "{words}"', where=MODELS_FILE, hint=hint)


def models_here(variables: Mapping[str, str] = os.environ, machine: Machine | None = None) -> list[ModelHere]:
    """Return what there is: keys, servers that answer on this machine, the embedded model that fits it."""
    embedded = best_embedded(machine or this_machine())
    return [*models_with_keys(variables), *models_served_here(), *([embedded] if embedded else [])]


def recommended(found: Sequence[ModelHere]) -> ModelHere | None:
    """Return the model to recommend: of a server on this machine, which is free; with a key; embedded."""
    local = [name for name, server in KINDS.items() if server.is_local]
    by_rank = sorted(found, key=lambda it: (it.provider not in local, it.provider == "local"))
    return by_rank[0] if by_rank else None


def models_with_keys(variables: Mapping[str, str] = os.environ) -> Iterator[ModelHere]:
    """Yield the providers whose keys are in the environment."""
    for provider, (key, model) in _USUAL.items():
        if variables.get(key, "").strip():
            yield ModelHere(provider, model, f"{key} is set")
    for provider, server in SERVERS.items():
        if server.address and server.key_env and variables.get(server.key_env, "").strip():
            yield ModelHere(provider, "", f"{server.key_env} is set")


def models_served_here() -> Iterator[ModelHere]:
    """Yield the models of servers that answer on this machine within half a second; all are asked at once."""
    places = {name: ServerPlace(name, kind.address) for name, kind in KINDS.items() if kind.is_local}
    answers = ask_servers(places.values(), _PATIENCE_S)
    for provider, place in places.items():
        for model in answers[place].names[:_NAMES_OF_ONE]:
            yield ModelHere(provider, model, f"a server answers at {place.address}")


def best_embedded(machine: Machine) -> ModelHere | None:
    """Return the best embedded model that a machine runs well; None where that is the one by default."""
    for name in reversed(CATALOGUE):
        weights = CATALOGUE[name]
        is_tight = machine.free_bytes is not None and machine.free_bytes < weights.memory_bytes
        if name == LOCAL_MODEL or is_tight or machine.processors < weights.processors:
            continue
        size = (
            "its weights are here"
            if is_on_this_machine(name)
            else f"{weights.size_bytes / 1e6:.0f} MB to fetch"
        )
        return ModelHere("local", name, f"runs on this machine, without a key; {size}")
    return None


def this_machine() -> Machine:
    """Return what this process may use of this machine."""
    return Machine(_free_bytes(), usable_processors())


def _free_bytes() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # Linux counts what it can give back at once
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, LookupError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):
        return None
