"""Which models somebody has: keys in the environment, and servers that answer on this machine."""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from lemming.capabilities.hosted.servers import SERVERS
from lemming.kernel.base.deadlines import Deadline, LeftBehind, run_on_thread
from lemming.kernel.base.jsontext import JsonProblem, parse

LIMIT_BYTES = 1 << 20
_PATIENCE_S = 0.5
_OLLAMA = "http://localhost:11434/v1"
_USUAL = {"openai": ("OPENAI_API_KEY", "gpt-6-luna"), "anthropic": ("ANTHROPIC_API_KEY", "claude-haiku-5-5")}


class ModelHere(NamedTuple):
    """One that can be asked: its provider, its name (empty: somebody has to say it), and how one knows."""

    provider: str
    model: str
    because: str

    @property
    def line(self) -> dict[str, Any]:
        """Its line in `config/models.json`."""
        return {"provider": self.provider, "model": self.model}


def models_here(variables: Mapping[str, str] = os.environ) -> list[ModelHere]:
    """Return what there is, servers of this machine last: these alone are asked, for their models."""
    return [*_with_keys(variables), *_on_this_machine()]


def _with_keys(variables: Mapping[str, str]) -> Iterator[ModelHere]:
    for provider, (key, model) in _USUAL.items():
        if variables.get(key, "").strip():
            yield ModelHere(provider, model, f"{key} is set")
    for provider, server in SERVERS.items():
        if server.address and server.key_env and variables.get(server.key_env, "").strip():
            yield ModelHere(provider, "", f"{server.key_env} is set")


def _on_this_machine() -> Iterator[ModelHere]:
    local = {name: server.address for name, server in SERVERS.items() if not server.key_env}
    for provider, address in {"ollama": _OLLAMA, **local}.items():
        for model in names_at(address)[:3]:
            yield ModelHere(provider, model, f"a server answers at {address}")


def names_at(address: str) -> list[str]:
    """Return the models of a server with OpenAI's API; none where none answers in half a second."""
    try:
        return run_on_thread(partial(_fetch_model_names, address), Deadline(_PATIENCE_S), name="lemming-look")
    except LeftBehind:  # it answers, and comes to no end
        return []


def _fetch_model_names(address: str) -> list[str]:
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", f"{place.path}/models")
        found = parse(connection.getresponse().read(LIMIT_BYTES))
        names = [it["id"] for it in found["data"]]
    except (OSError, http.client.HTTPException, JsonProblem, LookupError, TypeError):
        return []
    finally:
        connection.close()
    return [name for name in names if isinstance(name, str)]
