"""Query servers for their models: quickly, concurrently, and never with a key.

Formats: GET `/v1/models` (OpenAI's list of models), `/props` of llama.cpp's server, `/api/tags` of Ollama.
"""

from __future__ import annotations

import http.client
import os
import ssl
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from lemming.kernel.base.blocking_deadline import Deadline, WorkAbandoned, run_on_thread
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.org.model_entries import ModelEntry
from lemming.libraries.compatible_servers import KINDS, find_server

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
    try:
        return _query_server(server, timeout_s)
    except ValueError:  # from urlsplit, also for an invalid port
        return ServedModels(problem="not the address of a server")
    except (OSError, http.client.HTTPException) as error:
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
    models = _extract_models(answer)
    if models is None:
        return ServedModels(problem=f"the server did not return a list of models (HTTP {status})")
    names = tuple(name for model in models if isinstance(name := model.get("id", model.get("name")), str))
    if not any(model.get("owned_by") == _LLAMA_CPP for model in models):
        return ServedModels(names)
    return ServedModels(names, has_one=len(names) == 1, context=_fetch_context_size(root, timeout_s))


def _extract_models(answer: Any) -> list[dict[str, Any]] | None:
    """Return the models of an answer, or None for another format."""
    models = answer.get("data", answer.get("models")) if isinstance(answer, dict) else None
    return [model for model in models if isinstance(model, dict)] if isinstance(models, list) else None


def _fetch_context_size(root: str, timeout_s: float) -> int | None:
    _, answer = _get_json(f"{root}/props", timeout_s)
    settings = answer.get("default_generation_settings") if isinstance(answer, dict) else None
    tokens = settings.get("n_ctx") if isinstance(settings, dict) else None
    return tokens if type(tokens) is int and 0 < tokens < 1 << 40 else None


def _get_json(url: str, timeout_s: float) -> tuple[int, Any]:
    """Return the status and the JSON value of a response. The value is None for invalid JSON."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=timeout_s, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request("GET", parts.path)
        response = connection.getresponse()
        raw = response.read(_LIMIT_BYTES)
    finally:
        connection.close()
    try:
        return response.status, parse(raw)
    except JsonProblem:
        return response.status, None
