"""Detection of available models: keys in the environment, local servers, and a suitable embedded model.

Servers are queried quickly, concurrently, and never with a key. Formats: GET `/v1/models` (OpenAI's list of models),
`/props` of llama.cpp's server, `/api/tags` of Ollama.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from lemming.kernel.base import paths
from lemming.kernel.base.blocking_deadline import Deadline, WorkAbandoned, run_on_thread
from lemming.kernel.base.errors import UnknownModel
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.org.model_entries import LOCAL_MODEL, ModelEntry
from lemming.libraries.compatible_servers import KINDS, SERVERS, find_server
from lemming.libraries.concurrency.process_chunks import count_usable_processors
from lemming.libraries.lenient_json import parse_or_default
from lemming.libraries.model_catalogue import CATALOGUE, is_on_this_machine

DEFAULT_TIMEOUT_S = 1.0
_LIMIT_BYTES = 1 << 20
_MAX_CONCURRENT = 16
_LLAMA_CPP = "llamacpp"
"""Owner name in the model list of llama.cpp's server, whatever its address."""


class KeylessServer(NamedTuple):
    """A server without a key: the kind (a key of `KINDS`, or empty) and the address."""

    kind: str
    address: str


class ServedModels(NamedTuple):
    """Answer of a server: the names of the models, or the problem.

    `has_one`: the server always answers with the only model, regardless of the requested name. `context`:
    maximum tokens of a prompt and its answer, if known.
    """

    names: tuple[str, ...] = ()
    problem: str = ""
    has_one: bool = False
    context: int | None = None


def get_server(entry: ModelEntry) -> KeylessServer | None:
    """Return the server of a model entry, or None if the server needs a key."""
    try:
        return _find_server(entry)
    except ValueError:  # from urlsplit; validation reports the entry
        return None


def _find_server(entry: ModelEntry) -> KeylessServer | None:
    provider = entry.provider
    if (kind := KINDS.get(provider)) is None:
        return None
    key_variable, base_url = entry.options.get("api_key_env"), entry.options.get("base_url")
    if provider == "ollama":
        host = str(entry.options.get("host") or os.environ.get("OLLAMA_HOST") or kind.address)
        return KeylessServer(provider, host if "://" in host else f"http://{host}")
    if key_variable or kind.key_variable(base_url, None):
        return None
    if provider == "openai":
        server_kind = find_server(base_url)
        provider = next((name for name, kind_of_name in KINDS.items() if kind_of_name is server_kind), "")
    address = kind.get_url(base_url)
    return KeylessServer(provider, address) if address else None


def ask_servers(
    servers: Iterable[KeylessServer], timeout_s: float | None = None
) -> Mapping[KeylessServer, ServedModels]:
    """Query servers concurrently and return the answer of each, by default within a second."""
    distinct_servers, timeout_s = list(dict.fromkeys(servers)), timeout_s or DEFAULT_TIMEOUT_S
    if not distinct_servers:
        return {}
    with ThreadPoolExecutor(min(len(distinct_servers), _MAX_CONCURRENT), thread_name_prefix="lemming-look") as threads:
        return dict(
            zip(distinct_servers, threads.map(partial(ask_server, timeout_s=timeout_s), distinct_servers), strict=True)
        )


def ask_server(server: KeylessServer, timeout_s: float) -> ServedModels:
    """Query a server. A slow, stopped or unexpected server gives a `problem`."""
    try:
        return run_on_thread(partial(_ask_server, server, timeout_s), Deadline(timeout_s), name="lemming-look")
    except WorkAbandoned:
        return ServedModels(problem=f"the server does not answer within {timeout_s:g} s")


def _ask_server(server: KeylessServer, timeout_s: float) -> ServedModels:
    from http.client import HTTPException  # imported here: most who read this module ask no server

    # caught in the thread: an error carried to another one would keep the socket open
    try:
        return _query_server(server, timeout_s)
    except ValueError:  # from urlsplit, also for an invalid port
        return ServedModels(problem="not the address of a server")
    except (OSError, HTTPException) as error:
        return ServedModels(problem=f"no server answers ({getattr(error, 'strerror', None) or error})")


def _query_server(server: KeylessServer, timeout_s: float) -> ServedModels:
    parts = urlsplit(server.address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return ServedModels(problem="not the address of a server")
    root = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    is_ollama = server.kind == "ollama"
    listing = f"{root}/api/tags" if is_ollama else f"{root}{parts.path.rstrip('/')}/models"
    status, answer = _get_json(listing, timeout_s)
    if status in (401, 403):
        return ServedModels(problem="the server requires a key: name its variable in options.api_key_env")
    listed = answer.get("data", answer.get("models")) if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        return ServedModels(problem=f"the server did not return a list of models (HTTP {status})")
    models = [model for model in listed if isinstance(model, dict)]
    names = tuple(name for model in models if isinstance(name := model.get("id", model.get("name")), str))
    if not any(model.get("owned_by") == _LLAMA_CPP for model in models):
        return ServedModels(names)
    _, answer = _get_json(f"{root}/props", timeout_s)
    settings = answer.get("default_generation_settings") if isinstance(answer, dict) else None
    tokens = settings.get("n_ctx") if isinstance(settings, dict) else None
    context = tokens if type(tokens) is int and 0 < tokens < 1 << 40 else None
    return ServedModels(names, has_one=len(names) == 1, context=context)


def _get_json(url: str, timeout_s: float) -> tuple[int, Any]:
    """Return the status and the JSON value of a response. The value is None for invalid JSON."""
    from http.client import HTTPConnection, HTTPSConnection

    parts = urlsplit(url)
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    with contextlib.closing(connect(parts.hostname or "", parts.port, timeout=timeout_s)) as connection:
        connection.request("GET", parts.path)
        response = connection.getresponse()
        raw = response.read(_LIMIT_BYTES)
    return response.status, parse_or_default(raw, None)


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
    return UnknownModel(f'no model "{text}"', where=paths.MODELS_FILE, hint=hint)


def detect_models() -> list[AvailableModel]:
    """Return the available models: by keys, on local servers, and the best embedded model for this machine."""
    embedded = find_best_embedded(Machine(_measure_free_bytes(), count_usable_processors()))
    return [*find_models_by_keys(), *_find_local_server_models(), *([embedded] if embedded else [])]


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


def _find_local_server_models() -> Iterator[AvailableModel]:
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
