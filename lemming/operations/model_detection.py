"""Detection of available models: keys in the environment, local servers, and a suitable embedded model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lemming.kernel.base.errors import UnknownModel
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.org.config import MODELS_FILE
from lemming.kernel.org.model_entries import LOCAL_MODEL
from lemming.libraries.compatible_servers import KINDS, SERVERS
from lemming.libraries.model_catalogue import CATALOGUE, count_usable_processors, is_on_this_machine
from lemming.operations.served_models import KeylessServer, ask_servers

_SERVER_TIMEOUT_S = 0.5
_MAX_MODELS_PER_SERVER = 3
_DEFAULT_MODELS = {"openai": ("OPENAI_API_KEY", "gpt-6-luna"), "anthropic": ("ANTHROPIC_API_KEY", "claude-haiku-5-5")}
_EMBEDDED_DEADLINE_S = 300.0
"""The deadline of an answer of an embedded model: on two busy cores it writes a few words a second."""


class Machine(NamedTuple):
    """Resources for a model: free memory in bytes (None: unknown), and processors."""

    free_bytes: int | None
    processors: int


class AvailableModel(NamedTuple):
    """An available model: provider, name (empty: to be chosen by the user), and the evidence."""

    provider: str
    model: str
    evidence: str

    @property
    def key(self) -> str:
        """The model's key in `config/models.json`."""
        return self.model if self.provider == "local" else self.provider

    @property
    def config_entry(self) -> dict[str, Any]:
        """The model's entry in `config/models.json`."""
        return make_model_entry(self.provider, self.model)

    @property
    def command(self) -> str:
        """The command to make the model an organisation's default."""
        if self.provider == "local":
            return f"lemming models use {self.model}"
        return f"lemming models use {self.provider}/{self.model or 'MODEL'}"


def make_model_entry(provider: str, model: str) -> dict[str, Any]:
    """Return the default entry of a model for `config/models.json`."""
    if provider != "local":
        return {"provider": provider, "model": model}
    entry: dict[str, Any] = {"provider": "local", "model": model, "prompt": "brief", "max_output_tokens": 256}
    return entry if model == LOCAL_MODEL else {**entry, "deadline_s": _EMBEDDED_DEADLINE_S}


def parse_model_name(text: str) -> AvailableModel | None:
    """Return the model for an embedded model's name or PROVIDER/MODEL, or None for any other text."""
    if text in CATALOGUE:
        return AvailableModel("local", text, "named")
    provider, slash, model = text.partition("/")
    return AvailableModel(provider, model, "named") if slash and model and provider in KINDS else None


def make_unknown_model_error(text: str, keys: Iterable[str]) -> UnknownModel:
    """Return the error for an unknown model name, with the nearest match as a hint."""
    candidates = {*keys, *CATALOGUE}
    hint = did_you_mean(text, sorted(candidates)) or f"use one of {', '.join(sorted(candidates))}, or PROVIDER/MODEL"
    return UnknownModel(f'no model "{text}"', where=MODELS_FILE, hint=hint)


def detect_models(variables: Mapping[str, str] = os.environ, machine: Machine | None = None) -> list[AvailableModel]:
    """Return the available models: by keys, on local servers, and the best embedded model for this machine."""
    embedded = find_best_embedded(machine or Machine(_measure_free_bytes(), count_usable_processors()))
    return [*find_models_by_keys(variables), *find_local_server_models(), *([embedded] if embedded else [])]


def recommend_model(models: Sequence[AvailableModel]) -> AvailableModel | None:
    """Return the model to recommend: from a local server (free), then by a key, then embedded."""
    local = [name for name, server in KINDS.items() if server.is_local]
    ranked = sorted(models, key=lambda model: (model.provider not in local, model.provider == "local"))
    return ranked[0] if ranked else None


def find_models_by_keys(variables: Mapping[str, str] = os.environ) -> Iterator[AvailableModel]:
    """Yield the providers with a key in the environment."""
    for provider, (key, model) in _DEFAULT_MODELS.items():
        if variables.get(key, "").strip():
            yield AvailableModel(provider, model, f"{key} is set")
    for provider, server in SERVERS.items():
        if server.address and server.key_env and variables.get(server.key_env, "").strip():
            yield AvailableModel(provider, "", f"{server.key_env} is set")


def find_local_server_models() -> Iterator[AvailableModel]:
    """Yield the models of local servers with an answer within half a second; all servers are queried concurrently."""
    servers = {name: KeylessServer(name, kind.address) for name, kind in KINDS.items() if kind.is_local}
    answers = ask_servers(servers.values(), _SERVER_TIMEOUT_S)
    for provider, server in servers.items():
        for model in answers[server].names[:_MAX_MODELS_PER_SERVER]:
            yield AvailableModel(provider, model, f"a server answers at {server.address}")


def find_best_embedded(machine: Machine) -> AvailableModel | None:
    """Return the best embedded model for a machine, or None if the default embedded model is the best."""
    for name in reversed(CATALOGUE):
        weights = CATALOGUE[name]
        has_little_memory = machine.free_bytes is not None and machine.free_bytes < weights.memory_bytes
        if name == LOCAL_MODEL or has_little_memory or machine.processors < weights.processors:
            continue
        size = "its weights are here" if is_on_this_machine(name) else f"{weights.size_bytes / 1e6:.0f} MB to fetch"
        return AvailableModel("local", name, f"runs on this machine, without a key; {size}")
    return None


def _measure_free_bytes() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # Linux includes reclaimable memory
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, LookupError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):
        return None
