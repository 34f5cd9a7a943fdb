"""The servers of `lemming.capabilities.hosted.servers` as providers: a class for each, by its name."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

from lemming.capabilities.hosted.openai import OpenAIProvider
from lemming.capabilities.hosted.openai_wire import JsonMode
from lemming.capabilities.hosted.servers import SERVERS, ModelServer
from lemming.kernel.base.errors import ConfigError


class ServedProvider(OpenAIProvider):
    """Asks a server that speaks OpenAI's chat completions, at its own address or at `base_url`.

    Its key goes nowhere else: at another `base_url` there is none unless `api_key_env` names one.
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
            message = f"provider {self.name}: base_url says where it is"
            raise ConfigError(message, hint=f'"options": {{"base_url": "{host.example}"}}')
        address = host.whole(base_url)
        super().__init__(
            base_url=address,
            api_key_env=host.key_variable(address, api_key_env) or None,
            extra=extra,
        )
        self.set_server(host, json)


@cache
def _class_of(name: str) -> type[ServedProvider]:
    return type(f"{name.title()}Provider", (ServedProvider,), {"name": name, "host": SERVERS[name]})


def __getattr__(name: str) -> type[ServedProvider]:
    if name in SERVERS:
        return _class_of(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
