"""How hosted models are reached: connections, proxies, certificates and logins, over real sockets."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import file_name_of, server_context, write_certificate
from fault_server import ANSWER, FaultServer, refused_url
from patience import PATIENCE_S
from watched_server import WatchedServer

from lemming.capabilities.hosted_models.anthropic_provider import AnthropicProvider
from lemming.capabilities.hosted_models.ollama_provider import OllamaProvider
from lemming.capabilities.hosted_models.openai_provider import OpenAIProvider
from lemming.kernel.base.errors import ProviderError, TimedOut, Unavailable
from lemming.kernel.llm.model_call import call_provider
from lemming.kernel.providers import LLMProvider, Reply, Request

Make = Callable[[str], LLMProvider]

BACKENDS: dict[str, Make] = {
    "openai": lambda url: OpenAIProvider(base_url=f"{url}/v1"),
    "anthropic": lambda url: AnthropicProvider(base_url=url),
    "ollama": lambda url: OllamaProvider(host=url),
}
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(params=list(BACKENDS))
def make(request: pytest.FixtureRequest) -> Make:
    """A backend for a server's address."""
    return BACKENDS[request.param]


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def server() -> Iterator[WatchedServer]:
    """A server whose connections are watched."""
    watched = WatchedServer()
    watched.start()
    yield watched
    watched.may_answer.set()
    watched.stop()


def ask_at_once(provider: LLMProvider, request: Request, count: int) -> list[threading.Thread]:
    """Ask so many times, each on a thread of its own."""
    threads = [threading.Thread(target=call_provider, args=(provider, request)) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


# --- connections ---------------------------------------------------------------------------------


@pytest.mark.long
def test_aiohttp_is_loaded_once_a_hosted_model_is_asked_and_not_before(faults: FaultServer, tmp_path: Path) -> None:
    script = (
        "import sys; import lemming.engine, lemming.cli\n"
        "from lemming.capabilities.hosted_models.openai_provider import OpenAIProvider\n"
        "from lemming.kernel.providers import Request\n"
        f"provider = OpenAIProvider(base_url={faults.url('ok')!r} + '/v1')\n"
        "print('aiohttp' in sys.modules)\n"
        "provider.complete(Request(model_name='m', messages=[{'role': 'user', 'content': 'hi'}]))\n"
        "print('aiohttp' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert ran.stdout.split() == ["False", "True"], ran.stderr


def test_a_connection_is_kept_for_the_next_question(make: Make, server: WatchedServer, request_: Request) -> None:
    provider = make(server.url)
    for _ in range(3):
        call_provider(provider, request_)
    assert (len(server.requests), server.connections) == (3, 1)


def test_a_connection_that_the_server_has_closed_meanwhile_is_not_used_again(
    make: Make, server: WatchedServer, request_: Request
) -> None:
    server.closes = True
    provider = make(server.url)
    assert call_provider(provider, request_).text == ANSWER
    assert server.left.wait(PATIENCE_S)
    assert call_provider(provider, request_).text == ANSWER
    assert server.connections == 2


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_each_of_many_calls_at_once_has_a_connection(name: str, server: WatchedServer, request_: Request) -> None:
    server.may_answer.clear()
    threads = ask_at_once(BACKENDS[name](server.url), request_, 150)  # more than 100, where clients often stop
    for _ in threads:
        assert server.came.acquire(timeout=PATIENCE_S)
    assert server.connections == 150
    server.may_answer.set()
    for thread in threads:
        thread.join()


def test_a_call_whose_time_is_over_leaves_no_connection(make: Make, server: WatchedServer, request_: Request) -> None:
    provider = make(server.url)
    call_provider(provider, request_)
    server.may_answer.clear()
    with pytest.raises(TimedOut, match=r"no answer within 0\.05 s"):
        call_provider(provider, request_._replace(deadline_s=0.05))
    server.may_answer.set()
    assert server.left.wait(PATIENCE_S)
    assert call_provider(provider, request_).text == ANSWER


@pytest.mark.parametrize(("scenario", "may_be_paid"), [("reset", True), ("cut", True), ("refused", False)])
def test_a_call_may_be_paid_once_it_was_sent(
    make: Make, scenario: str, may_be_paid: bool, faults: FaultServer, request_: Request
) -> None:
    url = refused_url() if scenario == "refused" else faults.url(scenario)
    with pytest.raises(Unavailable, match=r"connection to 127\.0\.0\.1:\d+ failed") as caught:
        call_provider(make(url), request_)
    assert caught.value.may_be_paid is may_be_paid


def test_an_answer_that_is_no_http_is_unavailable(make: Make, request_: Request) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def say_something_else() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")

        thread = threading.Thread(target=say_something_else)
        thread.start()
        with pytest.raises(Unavailable, match=r"connection to 127\.0\.0\.1:\d+ failed"):
            call_provider(make(f"http://127.0.0.1:{listening.getsockname()[1]}"), request_)
        thread.join()


# --- proxies -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:BasicAuth is deprecated", "ignore:The 'proxy_auth' parameter")  # of the SDKs
def test_a_proxy_of_the_environment_is_asked_with_its_login(
    make: Make, server: WatchedServer, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url.replace("//", "//me:pw@"))
    assert call_provider(make("http://model.invalid:81"), request_).text == ANSWER
    path, headers, _ = server.requests[0]
    assert path.startswith("http://model.invalid:81/")
    assert headers["host"] == "model.invalid:81"
    assert headers["proxy-authorization"] == f"Basic {base64.b64encode(b'me:pw').decode()}"


def test_no_proxy_names_the_servers_that_are_asked_directly(
    make: Make, server: WatchedServer, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", refused_url())
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert call_provider(make(server.url), request_).text == ANSWER


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_a_socks_proxy_is_left_to_the_default_transport(
    name: str, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", refused_url().replace("http", "socks5"))
    with pytest.raises(ProviderError, match=r"socksio|connection to"):  # without socksio it cannot be asked
        call_provider(BACKENDS[name]("http://model.invalid"), request_)


def test_a_login_in_the_address_takes_the_place_of_the_key(
    make: Make, server: WatchedServer, request_: Request
) -> None:
    assert call_provider(make(server.url.replace("//", "//me:p%40w@")), request_).text == ANSWER
    ((path, headers, _),) = server.requests
    assert "p%40w" not in path
    assert headers["authorization"] == f"Basic {base64.b64encode(b'me:p@w').decode()}"


# --- certificates --------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[WatchedServer, Path]]:
    """A server behind TLS, and its certificate, which nobody else has signed."""
    public, private = write_certificate(tmp_path)
    watched = WatchedServer()
    watched.secure(server_context(public, private))
    watched.start()
    yield watched, public
    watched.stop()


def ask_guarded(make: Make, server: WatchedServer, request: Request) -> Reply:
    return call_provider(make(server.url.replace("http:", "https:")), request)


def test_a_certificate_that_nobody_knows_is_refused(
    make: Make, guarded: tuple[WatchedServer, Path], request_: Request
) -> None:
    server, _ = guarded
    with pytest.raises(Unavailable, match="certificate verify failed") as caught:
        ask_guarded(make, server, request_)
    assert not caught.value.may_be_paid
    assert server.requests == []


def test_a_certificate_in_ssl_cert_file_is_trusted(
    make: Make, guarded: tuple[WatchedServer, Path], request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, certificate = guarded
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert ask_guarded(make, server, request_).text == ANSWER


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl to name the file")
def test_a_certificate_in_ssl_cert_dir_is_trusted(
    make: Make, guarded: tuple[WatchedServer, Path], request_: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, certificate = guarded
    folder = tmp_path / "certificates"
    folder.mkdir()
    shutil.copy(certificate, folder / file_name_of(certificate))
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))
    assert ask_guarded(make, server, request_).text == ANSWER
