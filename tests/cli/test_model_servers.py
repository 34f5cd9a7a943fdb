"""`lemming models list` and `use`: servers say what they serve, and one command takes a model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from terminal import Lemming

from lemming.capabilities.embedded_models import model_weights
from lemming.kernel.org.config import load_config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.operations import model_detection
from lemming.operations.model_detection import KeylessServer, ask_server, ask_servers, get_server
from lemming.testing import make_org, resume

LLAMA_CPP = {
    "/v1/models": {"data": [{"id": "qwen.gguf", "owned_by": "llamacpp"}]},
    "/props": {"default_generation_settings": {"n_ctx": 8192}},
}
VLLM = {"/v1/models": {"data": [{"id": "org/small"}, {"id": "org/large"}, {"id": 3}, "odd"]}}
OLLAMA = {"/api/tags": {"models": [{"name": "llama3.2:latest"}, {"name": "qwen3:4b"}]}}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_detection, "DEFAULT_TIMEOUT_S", PATIENCE_S)
    monkeypatch.delenv("OLLAMA_HOST", raising=False)


@contextmanager
def serving(pages: dict[str, Any], heard: list[dict[str, str]] | None = None) -> Iterator[str]:
    """Serve JSON pages; yield the address. A page that is a number is that status."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if heard is not None:
                heard.append(dict(self.headers))
            page = pages.get(self.path, 404)
            self.send_response(page if isinstance(page, int) else 200)
            self.end_headers()
            self.wfile.write(b"<html>" if isinstance(page, int) else json.dumps(page).encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def listed(base: Path, lemming: Lemming, *words: str, **models: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the lines of `models list` by their keys."""
    make_org(base, resume("ada"), models=models)
    return {line["key"]: line for line in lemming("models", "list", "--json", *words).objects}


def at(provider: str, model: str, address: str) -> dict[str, Any]:
    """Return a line for a server that takes no key."""
    option = "host" if provider == "ollama" else "base_url"
    return {"provider": provider, "model": model, "options": {option: address}}


def test_each_kind_of_server_says_what_it_serves(base: Path, lemming: Lemming) -> None:
    with serving(LLAMA_CPP) as cpp, serving(VLLM) as vllm, serving(OLLAMA) as ollama:
        lines = listed(
            base,
            lemming,
            any=at("openai", "whatever", f"{cpp}/v1"),
            small=at("vllm", "org/small", f"{vllm}/v1"),
            typo=at("vllm", "org/smal", f"{vllm}/v1"),
            llama=at("ollama", "llama3.2", ollama),
            other=at("ollama", "mistral", ollama),
        )
    ready = {key: line["is_ready"] for key, line in lines.items()}
    assert ready | {"any": True, "small": True, "typo": False, "llama": True, "other": False} == ready
    assert lines["any"]["remark"] == f"{cpp}/v1 serves qwen.gguf, 8,192 tokens of context"
    assert "which serves org/small, org/large" in lines["typo"]["remark"]
    assert lines["typo"]["fix"] == 'did you mean "org/small"?'
    assert lines["other"]["fix"] == "ollama pull mistral"


@pytest.mark.long
def test_a_server_that_is_down_or_something_else_is_told_in_clear_words(base: Path, lemming: Lemming) -> None:
    with serving(VLLM) as gone:
        pass
    with serving({}) as page, serving({"/v1/models": 401}) as locked, serving({"/v1/models": [1]}) as odd:
        lines = listed(
            base,
            lemming,
            down=at("vllm", "m", f"{gone}/v1"),
            page=at("vllm", "m", f"{page}/v1"),
            locked=at("vllm", "m", f"{locked}/v1"),
            odd=at("vllm", "m", f"{odd}/v1"),
        )
    assert lines["down"]["remark"] == f"{gone}/v1: no server answers (Connection refused)"
    assert lines["page"]["remark"] == f"{page}/v1: the server did not return a list of models (HTTP 404)"
    assert "options.api_key_env" in lines["locked"]["remark"]
    assert lines["odd"]["remark"] == f"{odd}/v1: the server did not return a list of models (HTTP 200)"


def test_no_key_is_sent_and_a_line_with_a_key_asks_nobody(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[dict[str, str]] = []
    for name in ("OPENAI_API_KEY", "OLLAMA_API_KEY", "MINE"):
        monkeypatch.setenv(name, "sk-not-to-be-sent")
    with serving(VLLM | OLLAMA, heard) as server:
        keyed = {**at("openai", "m", f"{server}/v1")}
        keyed["options"] = {**keyed["options"], "api_key_env": "MINE"}
        listed(base, lemming, keyed=keyed)
        assert heard == []
        listed(base, lemming, open=at("openai", "m", f"{server}/v1"), ollama=at("ollama", "m", server))
    assert len(heard) == 2
    assert "sk-not" not in json.dumps(heard)


def test_hosted_providers_are_never_asked() -> None:
    for provider in ("openai", "anthropic", "groq", "gemini", "azure", "local", "human"):
        assert get_server(ModelEntry(provider=provider, model="m")) is None


def test_a_server_is_asked_once_for_all_its_lines(base: Path, lemming: Lemming) -> None:
    heard: list[dict[str, str]] = []
    with serving(VLLM, heard) as server:
        listed(base, lemming, one=at("vllm", "org/small", server), two=at("vllm", "org/large", server))
    assert len(heard) == 1


def test_nobody_is_asked_where_that_is_not_wanted(base: Path, lemming: Lemming) -> None:
    heard: list[dict[str, str]] = []
    with serving(VLLM, heard) as server:
        lines = listed(base, lemming, "--no-servers", one=at("vllm", "org/small", server))
    assert (lines["one"]["is_ready"], heard) == (None, [])


def test_all_servers_are_asked_at_once() -> None:
    both = threading.Barrier(2, timeout=PATIENCE_S)

    class Waits(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            both.wait()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"data": [{"id": "m"}]}')

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Waits) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        places = [KeylessServer("vllm", f"{address}/{path}") for path in ("a", "b")]
        assert [it.names for it in ask_servers(places, PATIENCE_S).values()] == [("m",), ("m",)]
        server.shutdown()


@pytest.mark.parametrize("address", ["nowhere", "ftp://x/v1", "http:///v1", "http://[/v1", "http://x:y/v1"])
def test_an_address_that_is_none_is_a_problem_and_no_error(address: str) -> None:
    assert ask_server(KeylessServer("vllm", address), PATIENCE_S).problem


def test_an_embedded_model_is_taken_by_one_command(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
    fetched: list[str] = []
    monkeypatch.setattr(model_weights, "pull_weights", lambda name, **_: fetched.append(name) or base)
    make_org(base, resume("ada"), models={"default": {"provider": "local", "model": "smollm2-135m-instruct"}})
    ran = lemming("models", "use", "qwen2.5-coder-0.5b-instruct")
    entry = load_config(base).model("default")
    assert (ran.status, entry.provider, entry.model) == (0, "local", "qwen2.5-coder-0.5b-instruct")
    assert fetched == ["qwen2.5-coder-0.5b-instruct"]
    again = lemming("models", "use", "qwen2.5-coder-0.5b-instruct")
    assert "no change" in again.err


def test_a_provider_and_its_model_are_taken_by_one_command(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), models={"ollama": {"provider": "ollama", "model": "kept"}})
    assert lemming("models", "use", "ollama/llama3.2").status == 0
    config = load_config(base)
    assert (config.model("default").provider, config.model("default").model) == ("ollama", "llama3.2")
    assert (config.model("ollama").model, config.model("ollama/llama3.2").model) == ("kept", "llama3.2")
    assert "no change" in lemming("models", "use", "ollama/llama3.2").err


def test_a_model_that_is_meant_and_mistyped_is_named(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    ran = lemming("models", "use", "qwen2.5-coder-0.5b")
    assert (ran.status, 'did you mean "qwen2.5-coder-0.5b-instruct"?' in ran.err) == (2, True)
