"""Providers for the servers of `lemming.libraries.compatible_servers`: a class for each, by name."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

from lemming.capabilities.hosted_models.openai_provider import OpenAIProvider
from lemming.capabilities.hosted_models.openai_wire import JsonMode
from lemming.ext import ConfigError
from lemming.libraries.compatible_servers import SERVERS, ModelServer


class OpenAICompatibleProvider(OpenAIProvider):
    """Provider for a server with OpenAI's chat completions, at its default address or at `base_url`.

    The server's key is sent only to its own address. Another `base_url` gets no key unless `api_key_env` names one.
    """

    host: ClassVar[ModelServer]

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key_env: str | None = None,
        json: JsonMode | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        host = self.host
        if not (base_url or host.address):
            message = f"provider {self.name} requires options.base_url"
            raise ConfigError(message, hint=f'set "options": {{"base_url": "{host.example}"}}')
        address = host.get_url(base_url)
        super().__init__(base_url=address, api_key_env=host.key_variable(address, api_key_env) or None, extra=extra)
        self.set_server(host, json)


@cache
def _make_provider_class(name: str) -> type[OpenAICompatibleProvider]:
    return type(f"{name.title()}Provider", (OpenAICompatibleProvider,), {"name": name, "host": SERVERS[name]})


def __getattr__(name: str) -> type[OpenAICompatibleProvider]:
    if name in SERVERS:
        return _make_provider_class(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
