"""What a provider of one's own raises: a backend that is down is asked again, a mistake in code is not."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import subprocess
import urllib.error
from email.message import Message as Headers
from pathlib import Path
from typing import Any

import httpx
import pytest

from lemming.kernel.base.errors import (
    AuthenticationFailed,
    CircuitOpen,
    ConfigError,
    ProviderError,
    RateLimited,
    RequestRejected,
    TimedOut,
    Unavailable,
    UnknownModel,
)
from lemming.kernel.llm.circuit_breaker import FAILURES_TO_OPEN, Circuits
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.llm.retrying_provider import RetryingLLMProvider
from lemming.kernel.plugins.plugin_registry import load_plugins
from lemming.kernel.providers import LLMProvider, Message, Request
from lemming.testing import FrozenClock


class RequestException(Exception):
    """What `requests` raises, by its name."""


class ReadTimeout(RequestException, TimeoutError):
    """What `requests` raises when it takes too long."""


class OwnError(Exception):
    """What a plugin made up for itself."""


class Silent(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError


class Failing(LLMProvider):
    """Raises the same at every call, and counts them."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.calls = error, 0

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        self.calls += 1
        raise self.error


def with_status(status: int) -> httpx.HTTPStatusError:
    asked = httpx.Request("POST", "http://box/")
    return httpx.HTTPStatusError("no", request=asked, response=httpx.Response(status, request=asked))


OUT_OF_ORDER = [
    ConnectionResetError("reset"),
    ConnectionRefusedError(111, "refused"),
    BrokenPipeError(),
    OSError("unplugged"),
    socket.gaierror(-2, "no such host"),
    ssl.SSLError("bad certificate"),
    RuntimeError("the model is loading"),
    RequestException("down"),
    httpx.ConnectError("down"),
    httpx.RemoteProtocolError("cut"),
    http.client.IncompleteRead(b""),
    urllib.error.URLError("down"),
    json.JSONDecodeError("no answer", "<html>", 0),
    subprocess.CalledProcessError(1, ["model"]),
    EOFError(),
    with_status(503),
]
TOO_LATE = [
    TimeoutError("slow"),
    TimeoutError(),
    ReadTimeout("slow"),
    httpx.ReadTimeout("slow"),
    subprocess.TimeoutExpired(["model"], 3),
]
MISTAKES = [
    TypeError("no"),
    AttributeError("no"),
    NameError("no"),
    KeyError("choices"),
    ValueError("no"),
    NotImplementedError("later"),
    RecursionError("deep"),
    FileNotFoundError(2, "does not exist", "voices.json"),
    OwnError("no"),
    Silent(),
]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        *((error, Unavailable) for error in OUT_OF_ORDER),
        *((error, TimedOut) for error in TOO_LATE),
        (with_status(429), RateLimited),
    ],
    ids=repr,
)
def test_a_backend_that_is_out_of_order_is_asked_again(
    error: Exception, kind: type[ProviderError], request_: Request
) -> None:
    provider = Failing(error)
    with pytest.raises(kind):
        RetryingLLMProvider(provider, attempts=3, sleep=lambda _: None).complete(request_)
    assert provider.calls == 3


@pytest.mark.parametrize("error", MISTAKES, ids=lambda error: type(error).__name__)
def test_a_mistake_in_a_plugin_is_not_asked_again_and_names_its_line(error: Exception, request_: Request) -> None:
    provider = Failing(error)
    with pytest.raises(RequestRejected) as caught:
        RetryingLLMProvider(provider, sleep=lambda _: None).complete(request_)
    assert provider.calls == 1
    line = Path(__file__).read_text().splitlines().index("        raise self.error") + 1
    assert caught.value.where == f"{__file__}:{line}"
    assert type(error).__name__ in caught.value.message
    assert "lemming.errors.Unavailable" in caught.value.hint


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, AuthenticationFailed), (403, AuthenticationFailed), (404, UnknownModel), (422, RequestRejected)],
)
def test_a_status_that_says_no_for_good_is_not_asked_again(
    status: int, kind: type[ProviderError], request_: Request
) -> None:
    for error in (with_status(status), urllib.error.HTTPError("http://box", status, "no", Headers(), None)):
        provider = Failing(error)
        with pytest.raises(kind):
            RetryingLLMProvider(provider, sleep=lambda _: None).complete(request_)
        assert provider.calls == 1


def test_a_backend_that_keeps_failing_opens_its_circuit(base: Path, request_: Request) -> None:
    base.mkdir()
    provider = Failing(ConnectionResetError("reset"))
    circuit = Circuits(base, FrozenClock()).get_circuit("mine")
    retrying = RetryingLLMProvider(provider, attempts=10, circuit=circuit, sleep=lambda _: None)
    with pytest.raises(CircuitOpen, match="ConnectionResetError: reset"):
        retrying.complete(request_._replace(deadline_s=600.0))
    assert provider.calls == FAILURES_TO_OPEN


def test_the_line_is_the_plugins_own_and_not_that_of_a_library(request_: Request) -> None:
    class Parsing(LLMProvider):
        def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
            return str(json.loads(None))  # type: ignore[arg-type]

    with pytest.raises(RequestRejected) as caught:
        call_provider(Parsing(), request_)
    assert caught.value.where.startswith(f"{__file__}:")


PLUGINS = {
    "broken_by_type": ("value = 1\nvalue()\n", "TypeError", 2, "fix it there"),
    "broken_by_syntax": ("value = (\n", "SyntaxError", 1, "fix it there"),
    "broken_by_import": ("import json\nimport no_such_package\n", "no_such_package", 2, "fix it there"),
}


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_whose_own_code_fails_is_shown_with_its_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, what, line, hint = PLUGINS[name]
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_plugins((name,))
    assert what in str(caught.value)
    assert f"{tmp_path / name}.py:{line}" in str(caught.value)
    assert hint in str(caught.value)
    assert "Python path" not in str(caught.value)


def test_a_plugin_that_is_not_there_is_to_be_put_on_the_path() -> None:
    with pytest.raises(ConfigError, match="Python path"):
        load_plugins(("not_there.inside",))
