"""Servers with OpenAI's chat completions that a line of `config/models.json` may name as its provider."""

from __future__ import annotations

from typing import Literal, NamedTuple
from urllib.parse import urlsplit


class ModelServer(NamedTuple):
    """Where a server is, what variable holds its key (empty: it takes none), and how it is asked for JSON.

    `path` is what an address gets that names none. Without an `address` a line has to say `base_url`, such as
    `example`, and `domain` says which are its own.
    """

    title: str
    address: str = ""
    key_env: str = ""
    path: str = "/v1"
    json: Literal["schema", "object", "text"] = "schema"
    example: str = ""
    domain: str = ""

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


def without_call(address: str) -> str:
    """Return an address without the name of the call that somebody copied with it.

    >>> without_call("http://gpu:8000/v1/chat/completions")
    'http://gpu:8000/v1'
    """
    return address.rstrip("/").removesuffix("/chat/completions").rstrip("/")


SERVERS = {
    "azure": ModelServer(
        "Azure OpenAI, whose models are named by their deployments",
        key_env="AZURE_OPENAI_API_KEY",
        path="/openai/v1",
        example="https://RESOURCE.openai.azure.com",
        domain="azure.com",
    ),
    "cerebras": ModelServer("Cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "deepseek": ModelServer("DeepSeek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", json="object"),
    "fireworks": ModelServer("Fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "gemini": ModelServer(
        "Google's Gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        "/v1beta/openai",
    ),
    "groq": ModelServer("Groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "/openai/v1", "object"),
    "huggingface": ModelServer("Hugging Face's router", "https://router.huggingface.co/v1", "HF_TOKEN"),
    "llamacpp": ModelServer("llama.cpp's server on this machine", "http://localhost:8080/v1"),
    "lmstudio": ModelServer("LM Studio on this machine", "http://localhost:1234/v1"),
    "mistral": ModelServer("Mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "openrouter": ModelServer("OpenRouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "/api/v1"),
    "together": ModelServer("Together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "vllm": ModelServer("vLLM's server, here or elsewhere", "http://localhost:8000/v1"),
    "xai": ModelServer("xAI's Grok", "https://api.x.ai/v1", "XAI_API_KEY"),
}
