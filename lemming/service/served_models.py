"""Asking servers which models they serve: quick, all at once, and never with a key.

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

from lemming.capabilities.hosted.servers import KINDS, server_at
from lemming.kernel.base.deadlines import Deadline, LeftBehind, run_on_thread
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.kernel.org.models import ModelEntry

PATIENCE_S = 1.0
_LIMIT_BYTES = 1 << 20
_AT_ONCE = 16
_LLAMA_CPP = "llamacpp"
"""As whose llama.cpp's server lists its models, whatever its address."""


class ServerPlace(NamedTuple):
    """A server that takes no key: its kind, a key of `KINDS` (or empty), and its address."""

    kind: str
    address: str


class ServedModels(NamedTuple):
    """The answer of a server: the names of its models, or the reason why there are none.

    `has_one`: it answers with its only model, whatever name is asked for. `context`: how many tokens a prompt
    and its answer may have together, where the server says so.
    """

    names: tuple[str, ...] = ()
    problem: str = ""
    has_one: bool = False
    context: int | None = None


def place_of(entry: ModelEntry) -> ServerPlace | None:
    """Return the server of a line if it can be asked without a key."""
    try:
        return _place_of(entry)
    except ValueError:  # of urlsplit: the line is refused elsewhere
        return None


def _place_of(entry: ModelEntry) -> ServerPlace | None:
    provider = entry.provider
    if (kind := KINDS.get(provider)) is None:
        return None
    named, base_url = entry.options.get("api_key_env"), entry.options.get("base_url")
    if provider == "ollama":
        host = str(entry.options.get("host") or os.environ.get("OLLAMA_HOST") or kind.address)
        return ServerPlace(provider, host if "://" in host else f"http://{host}")
    if named or kind.key_variable(base_url, None):
        return None
    if provider == "openai":
        here = server_at(base_url)
        provider = next((name for name, each in KINDS.items() if each is here), "")
    address = kind.whole(base_url)
    return ServerPlace(provider, address) if address else None


def ask_servers(
    places: Iterable[ServerPlace], patience_s: float | None = None
) -> Mapping[ServerPlace, ServedModels]:
    """Return the answer of each server, all of which are asked at once; by default for a second."""
    asked, patience_s = list(dict.fromkeys(places)), patience_s or PATIENCE_S
    if not asked:
        return {}
    with ThreadPoolExecutor(min(len(asked), _AT_ONCE), thread_name_prefix="lemming-look") as threads:
        return dict(zip(asked, threads.map(partial(ask_server, patience_s=patience_s), asked), strict=True))


def ask_server(place: ServerPlace, patience_s: float) -> ServedModels:
    """Return what a server serves; a server that is slow, down or something else is a `problem`."""
    try:
        return run_on_thread(
            partial(_ask_server, place, patience_s), Deadline(patience_s), name="lemming-look"
        )
    except LeftBehind:
        return ServedModels(problem=f"the server does not answer within {patience_s:g} s")


def _ask_server(place: ServerPlace, patience_s: float) -> ServedModels:
    try:
        return _ask_at(place, patience_s)
    except ValueError:  # of urlsplit, also for a port
        return ServedModels(problem="this is not the address of a server")
    except (OSError, http.client.HTTPException) as error:
        return ServedModels(problem=f"no server answers ({getattr(error, 'strerror', None) or error})")


def _ask_at(place: ServerPlace, patience_s: float) -> ServedModels:
    parts = urlsplit(place.address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return ServedModels(problem="this is not the address of a server")
    root = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    is_ollama = place.kind == "ollama"
    listing = f"{root}/api/tags" if is_ollama else f"{root}{parts.path.rstrip('/')}/models"
    status, answer = _get(listing, patience_s)
    if status in (401, 403):
        return ServedModels(problem="the server wants a key: name its variable in options.api_key_env")
    lines = _lines_in(answer)
    if lines is None:
        return ServedModels(problem=f"no list of models, but HTTP {status}")
    names = tuple(name for it in lines if isinstance(name := it.get("id", it.get("name")), str))
    if not any(it.get("owned_by") == _LLAMA_CPP for it in lines):
        return ServedModels(names)
    return ServedModels(names, has_one=len(names) == 1, context=_context_of(root, patience_s))


def _lines_in(answer: Any) -> list[dict[str, Any]] | None:
    """Return the lines of a list of models; None where it is no such list."""
    lines = answer.get("data", answer.get("models")) if isinstance(answer, dict) else None
    return [it for it in lines if isinstance(it, dict)] if isinstance(lines, list) else None


def _context_of(root: str, patience_s: float) -> int | None:
    _, answer = _get(f"{root}/props", patience_s)
    settings = answer.get("default_generation_settings") if isinstance(answer, dict) else None
    tokens = settings.get("n_ctx") if isinstance(settings, dict) else None
    return tokens if type(tokens) is int and 0 < tokens < 1 << 40 else None


def _get(url: str, patience_s: float) -> tuple[int, Any]:
    """Return the status and the JSON of an answer; None for what is not JSON."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=patience_s, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=patience_s)
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
