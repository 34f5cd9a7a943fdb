"""Model servers by kind: their addresses, keys, and which parts of a request go together on each.

A schema is sent beside native tools to none of them: llama.cpp makes the schema the grammar of the whole
reply, in which there is no place for a call, and the others gain nothing. The table is printed in
docs/models.md; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

HOSTED_CALLS, LOCAL_CALLS = 64, 4
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ModelServer(NamedTuple):
    """Where a server is, what variable holds its key (empty: it takes none), and what it is asked.

    `path` is what an address gets that names none. Without an `address` a line has to say `base_url`, such as
    `example`, and `domain` says which are its own.

    `prefers_tools`: whether a turn with tools is asked in the server's own calls; else one action a reply is
    asked for, under a schema. `json`: how JSON is asked for. `root`: whether the root of a schema must be an
    object. `temperature`: the one that is sent where no line sets one; null: none. `fields`: further fields
    of each request. `has_cache_key`: whether `prompt_cache_key` keeps an agent's requests at one cache.
    `has_const`: whether schemas may have constants; else each is an enumeration of one value.
    `is_local`: whether it usually runs on a machine of the user, who pays for no call. `max_concurrent`: how
    many calls it is sent at once where no line says so; of a local one, `elsewhere` where it is on another
    machine.
    `context_tokens`: the longest prompt and answer that its models take together at least.
    """

    title: str
    address: str = ""
    key_env: str = ""
    path: str = "/v1"
    json: Literal["schema", "object", "text"] = "schema"
    example: str = ""
    domain: str = ""
    prefers_tools: bool = True
    root: Literal["any", "object"] = "object"
    temperature: float | None = None
    fields: Mapping[str, Any] = {}
    has_cache_key: bool = False
    has_const: bool = True
    is_local: bool = False
    max_concurrent: int = HOSTED_CALLS
    elsewhere: int = LOCAL_CALLS
    context_tokens: int = 128_000

    def whole(self, base_url: str | None) -> str:
        """Return the address with scheme and path; empty where there is none.

        >>> SERVERS["vllm"].whole("gpu:8000"), SERVERS["azure"].whole("https://a.openai.azure.com/")
        ('http://gpu:8000/v1', 'https://a.openai.azure.com/openai/v1')
        """
        if not base_url:
            return self.address
        scheme = "https" if self.key_env else "http"
        whole = without_call(base_url if "://" in base_url else f"{scheme}://{base_url}")
        return whole if urlsplit(whole).path else f"{whole}{self.path}"

    def key_variable(self, base_url: str | None, named: str | None) -> str:
        """Return the variable whose key is sent: the one that is named, else its own, to its own domain.

        Empty: none. A line of somebody else's sends no key to a place of his.
        """
        domain = self.domain or urlsplit(self.address).hostname or ""
        host = urlsplit(self.whole(base_url)).hostname or ""
        is_own = host == domain or host.endswith(f".{domain}")
        return named or (self.key_env if is_own else "")

    def calls_at(self, base_url: str | None) -> int:
        """Return how many calls the server at an address is sent at once.

        >>> SERVERS["vllm"].calls_at(None), SERVERS["vllm"].calls_at("gpu:8000")
        (4, 64)
        """
        is_elsewhere = self.is_local and urlsplit(self.whole(base_url)).hostname not in _LOOPBACK
        return self.elsewhere if is_elsewhere else self.max_concurrent


def without_call(address: str) -> str:
    """Return an address without the name of the call that somebody copied with it.

    >>> without_call("http://gpu:8000/v1/chat/completions")
    'http://gpu:8000/v1'
    """
    return address.rstrip("/").removesuffix("/chat/completions").rstrip("/")


def local_server(title: str, address: str, **fields: Any) -> ModelServer:
    """Return a server of the user's own: it takes any schema, and samples at 0.8 or so unless told not to."""
    return ModelServer(
        title,
        address,
        prefers_tools=False,
        root="any",
        temperature=0.0,
        fields=fields,
        is_local=True,
        max_concurrent=LOCAL_CALLS,
        context_tokens=8192,
    )


SERVERS = {
    "azure": ModelServer(
        "Azure OpenAI, whose models are named by their deployments",
        key_env="AZURE_OPENAI_API_KEY",
        path="/openai/v1",
        example="https://RESOURCE.openai.azure.com",
        domain="azure.com",
        has_cache_key=True,
    ),
    "cerebras": ModelServer("Cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "deepseek": ModelServer("DeepSeek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", json="object"),
    "fireworks": ModelServer("Fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "gemini": ModelServer(
        "Google's Gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        "/v1beta/openai",
        has_const=False,
    ),
    "groq": ModelServer("Groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "/openai/v1", "object"),
    "huggingface": ModelServer("Hugging Face's router", "https://router.huggingface.co/v1", "HF_TOKEN"),
    "llamacpp": local_server(
        "llama.cpp's server on this machine", "http://localhost:8080/v1", cache_prompt=True
    ),
    "lmstudio": local_server("LM Studio on this machine", "http://localhost:1234/v1"),
    "mistral": ModelServer("Mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "openrouter": ModelServer("OpenRouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "/api/v1"),
    "together": ModelServer("Together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "vllm": local_server("vLLM's server, here or elsewhere", "http://localhost:8000/v1")._replace(
        elsewhere=HOSTED_CALLS, context_tokens=32_768
    ),
    "xai": ModelServer("xAI's Grok", "https://api.x.ai/v1", "XAI_API_KEY"),
}
"""Servers with OpenAI's chat completions that a line of `config/models.json` may name as its provider."""

OPENAI = ModelServer("OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY", has_cache_key=True)
ANTHROPIC = ModelServer("Anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", path="")
OLLAMA = local_server("Ollama", "http://127.0.0.1:11434")._replace(key_env="OLLAMA_API_KEY", path="")
OTHER = ModelServer("another server with OpenAI's API")
OTHER_LOCAL = OTHER._replace(root="any")
"""One at the `base_url` of an `openai` line that no other line of this table is about. In a network of the
user's own it is taken to be one of those that hold a reply to any schema, bounds of texts included."""

KINDS = {"openai": OPENAI, "anthropic": ANTHROPIC, "ollama": OLLAMA, **SERVERS}
"""The servers by the provider that a line names."""


def server_at(base_url: str | None) -> ModelServer:
    """Return the kind of server at the `base_url` of an `openai` line, by its host and port.

    >>> server_at(None).title, server_at("http://127.0.0.1:8080/v1").title
    ('OpenAI', "llama.cpp's server on this machine")
    >>> server_at("https://eu.api.openai.com/v1").title, server_at("http://127.0.0.1:9999/v1").title
    ('OpenAI', "another server with OpenAI's API")
    """
    if base_url is None:
        return OPENAI
    parts = urlsplit(base_url)
    name = parts.hostname or ""
    for server in (OPENAI, *SERVERS.values()):
        own = urlsplit(server.address)
        if server.is_local:
            is_own = name in _LOOPBACK and parts.port == own.port
        else:
            domain = server.domain or own.hostname or ""
            is_own = name == domain or name.endswith(f".{domain}")
        if is_own:
            return server
    return OTHER_LOCAL if _is_near(name) else OTHER


def _is_near(name: str) -> bool:
    """Return True for a host of the user's own network: a private address, or a name without a domain.

    >>> _is_near("gpu"), _is_near("10.0.0.7"), _is_near("api.example.com")
    (True, True, False)
    """
    try:
        return ip_address(name).is_private
    except ValueError:
        return "." not in name
