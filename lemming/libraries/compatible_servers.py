"""Model servers by kind: addresses, keys, and supported parts of a request.

No server gets a schema together with native tools: llama.cpp turns the schema into the grammar of the whole
reply, without room for a call, and the other servers gain nothing. The table is printed in docs/models.md; a
test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

HOSTED_CALLS, LOCAL_CALLS = 64, 4
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ModelServer(NamedTuple):
    """Profile of a model server: address, variable of its key (empty: no key), and supported request
    features.

    `path` is appended to an address without a path. Without an `address`, a model entry must set `base_url`,
    such as `example`, and `domain` is the domain of the server's own addresses.

    `prefers_tools`: a turn with tools uses the server's native calls; otherwise each reply holds one action
    under a schema. `json`: the JSON mode. `root`: "object" if the root of a schema must be an object.
    `temperature`: the default, or None for no default. `fields`: extra fields of each request.
    `has_cache_key`: `prompt_cache_key` routes an agent's requests to one cache. `has_const`: schemas may have
    constants; otherwise each becomes an enumeration of a single value. `is_local`: the server usually runs on
    a machine of the user, without cost per call. `max_concurrent`: default number of concurrent calls; for a
    local server, `elsewhere` is the number on another machine. `context_tokens`: minimum context window of
    the models, for prompt and answer together.
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

    def get_url(self, base_url: str | None) -> str:
        """Return the address with scheme and path, or the empty string without an address.

        >>> SERVERS["vllm"].get_url("gpu:8000"), SERVERS["azure"].get_url("https://a.openai.azure.com/")
        ('http://gpu:8000/v1', 'https://a.openai.azure.com/openai/v1')
        """
        if not base_url:
            return self.address
        scheme = "https" if self.key_env else "http"
        url = strip_endpoint(base_url if "://" in base_url else f"{scheme}://{base_url}")
        return url if urlsplit(url).path else f"{url}{self.path}"

    def key_variable(self, base_url: str | None, configured: str | None) -> str:
        """Return the variable of the key: the configured variable, or the server's own for its own domain.

        The empty string means no key: the server's key is never sent to another domain.
        """
        domain = self.domain or urlsplit(self.address).hostname or ""
        host = urlsplit(self.get_url(base_url)).hostname or ""
        is_own = host == domain or host.endswith(f".{domain}")
        return configured or (self.key_env if is_own else "")

    def max_calls(self, base_url: str | None) -> int:
        """Return the default number of concurrent calls to the server at an address.

        >>> SERVERS["vllm"].max_calls(None), SERVERS["vllm"].max_calls("gpu:8000")
        (4, 64)
        """
        is_elsewhere = self.is_local and urlsplit(self.get_url(base_url)).hostname not in _LOOPBACK
        return self.elsewhere if is_elsewhere else self.max_concurrent


def strip_endpoint(address: str) -> str:
    """Return an address without a copied endpoint path.

    >>> strip_endpoint("http://gpu:8000/v1/chat/completions")
    'http://gpu:8000/v1'
    """
    return address.rstrip("/").removesuffix("/chat/completions").rstrip("/")


def local_server(title: str, address: str, **fields: Any) -> ModelServer:
    """Return the profile of a user's own server: any schema, and temperature 0 instead of the usual 0.8."""
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
    "llamacpp": local_server("llama.cpp's server on this machine", "http://localhost:8080/v1", cache_prompt=True),
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
"""Profile of an `openai` entry whose `base_url` is in no other profile. A server in a private network counts
as one that constrains replies to any schema, including bounds of texts."""

KINDS = {"openai": OPENAI, "anthropic": ANTHROPIC, "ollama": OLLAMA, **SERVERS}
"""The servers by the provider that a line names."""

FALLBACKS = {
    "json_schema": 'is asked for JSON without a schema (as with `"options": {"json": "object"}`)',
    "json_object": 'is asked for JSON in the prompt only (as with `"options": {"json": "text"}`)',
    "tools": 'gets the tools in the prompt (as with `"tools": "contract"`)',
    "encrypted_content": "loses its reasoning between the steps of a turn",
    "stream": "does not stream: its answers arrive complete",
    "seed": "is called without a seed",
    "temperature": "is called without a temperature",
    "prompt_cache_key": "gets no cache key",
    "max_completion_tokens": "is called with max_tokens instead",
}
"""Fallback for each part of a request that a server does not accept."""


def find_server(base_url: str | None) -> ModelServer:
    """Return the kind of server at the `base_url` of an `openai` entry, by host and port.

    >>> find_server(None).title, find_server("http://127.0.0.1:8080/v1").title
    ('OpenAI', "llama.cpp's server on this machine")
    >>> find_server("https://eu.api.openai.com/v1").title, find_server("http://127.0.0.1:9999/v1").title
    ('OpenAI', "another server with OpenAI's API")
    """
    if base_url is None:
        return OPENAI
    parts = urlsplit(base_url)
    name = parts.hostname or ""
    for server in (OPENAI, *SERVERS.values()):
        server_url = urlsplit(server.address)
        if server.is_local:
            is_match = name in _LOOPBACK and parts.port == server_url.port
        else:
            domain = server.domain or server_url.hostname or ""
            is_match = name == domain or name.endswith(f".{domain}")
        if is_match:
            return server
    return OTHER_LOCAL if _is_private_host(name) else OTHER


def _is_private_host(name: str) -> bool:
    """Return True for a host of the user's own network: a private address, or a name without a domain.

    >>> _is_private_host("gpu"), _is_private_host("10.0.0.7"), _is_private_host("api.example.com")
    (True, True, False)
    """
    try:
        return ip_address(name).is_private
    except ValueError:
        return "." not in name
