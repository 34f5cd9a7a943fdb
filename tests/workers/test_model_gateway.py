"""The model gateway: it holds the key, passes on the harness's API alone, counts tokens and enforces the cost limit."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from model_servers import ModelServer
from patience import until
from worker_runs import KEY, MODEL, PRICES, REQUEST, make_run

from lemming.capabilities.workers.harnesses.harness_types import ModelApi
from lemming.capabilities.workers.harnesses.json_fields import RunTokens
from lemming.capabilities.workers.running import relay
from lemming.capabilities.workers.running.model_gateway import ModelGateway
from lemming.capabilities.workers.running.vendor_apis import UsageCounter, load_api
from lemming.kernel.base.errors import Unusable


@contextmanager
def open_gateway(folder: Path, url: str, *, api: ModelApi = "anthropic", **changes: Any) -> Iterator[ModelGateway]:
    """Yield a gateway on loopback in front of a server."""
    run = make_run(folder, api=api, base_url=url, is_confined=False, **changes)
    with ModelGateway(run, lambda: None) as gateway:
        yield gateway


def open_answer(
    gateway: ModelGateway, path: str = "/v1/messages", body: Any = REQUEST, *, method: str = "POST", **headers: str
) -> http.client.HTTPResponse:
    """Send a request as a harness does, and return the answer before its body is read."""
    connection = http.client.HTTPConnection(urlsplit(gateway.url).netloc, timeout=30)
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, content, {"x-api-key": gateway.token, **headers})
    return connection.getresponse()


def send(gateway: ModelGateway, *arguments: Any, **options: Any) -> tuple[int, str]:
    """Send a request and return the status and the body of its answer."""
    answer = open_answer(gateway, *arguments, **options)
    return answer.status, answer.read().decode()


def read_usage(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of `usage.jsonl`."""
    return [json.loads(line) for line in (folder / "usage.jsonl").read_text().splitlines()]


def test_the_server_gets_the_key_and_the_harness_never_has_it(tmp_path: Path) -> None:
    with ModelServer([{"say": "Hello."}]) as server, open_gateway(tmp_path, server.url) as gateway:
        status, body = send(gateway)
        assert status == 200
        assert "Hello." in body
        assert [request.key for request in server.requests] == [KEY]
        assert KEY not in gateway.token + gateway.url


HARNESS = """
import sys, urllib.request
url, token, body = sys.argv[1:]
headers = {"x-api-key": token, "content-type": "application/json"}
print(urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers)).read().decode())
"""


def test_a_confined_worker_reaches_it_through_the_relay(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with ModelServer([{"say": "Hello."}]) as server:
        run = make_run(tmp_path, api="anthropic", base_url=server.url, is_confined=True)
        (control, signals), (report, status) = os.pipe(), os.pipe()
        with ModelGateway(run, lambda: None) as gateway:
            harness = (sys.executable, "-c", HARNESS, f"http://127.0.0.1:{port}/v1/messages", gateway.token)
            ended = subprocess.run(
                (sys.executable, "-I", "-S", relay.__file__, str(control), str(status), port, str(gateway.socket),
                 *harness, json.dumps({**REQUEST, "stream": True})),
                stdin=subprocess.DEVNULL, capture_output=True, text=True, pass_fds=(control, status), check=True,
            )  # fmt: skip
        assert "message_stop" in ended.stdout
        assert os.read(report, 8) == b"0"
        for descriptor in (control, signals, report, status):
            os.close(descriptor)
    assert [entry["is_estimate"] for entry in read_usage(tmp_path)] == [False]


@pytest.mark.parametrize("token", ["", "x", KEY])
def test_another_key_than_the_run_s_is_refused(tmp_path: Path, token: str) -> None:
    with ModelServer([]) as server, open_gateway(tmp_path, server.url) as gateway:
        status, body = send(gateway, **{"x-api-key": token})
        assert status == 401
        assert json.loads(body)["error"]["type"] == "permission_error"
        assert server.requests == []


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/files"), ("POST", "/v1/messages/batches"), ("POST", "/v1/messages/../files"), ("GET", "/v1/messages"),
     ("POST", "/v1/responses"), ("POST", "http://127.0.0.1:1/v1/files"), ("POST", "//evil.example/v1/messages/")],
)  # fmt: skip
def test_only_paths_of_the_harness_s_api_are_passed_on(tmp_path: Path, method: str, path: str) -> None:
    with ModelServer([]) as server, open_gateway(tmp_path, server.url) as gateway:
        assert send(gateway, path, method=method)[0] == 404
        assert server.requests == []


CHAT = {**REQUEST, "tools": [{"type": "function", "function": {"name": "t"}}]}
GEMINI = {
    "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
    "tools": [{"functionDeclarations": [{"name": "t"}]}],
}
RESPONSES = {"model": MODEL, "input": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "name": "t"}]}
GEMINI_PATH = f"/v1beta/models/{MODEL}"


@pytest.mark.parametrize(
    ("api", "path", "body", "written"),
    [
        ("anthropic", "/v1/messages?beta=true", REQUEST, 30),
        ("anthropic", "/v1/messages", {**REQUEST, "stream": True}, 30),
        ("openai-responses", "/v1/responses", RESPONSES, 0),
        ("openai-responses", "/v1/responses", {**RESPONSES, "stream": True}, 0),
        ("openai-chat", "/v1/chat/completions", CHAT, 0),
        ("openai-chat", "/v1/chat/completions", {**CHAT, "stream": True}, 0),
        ("gemini", f"{GEMINI_PATH}:generateContent", GEMINI, 0),
        ("gemini", f"{GEMINI_PATH}:streamGenerateContent?alt=sse", GEMINI, 0),
    ],
)
def test_tokens_of_each_api_are_counted(
    tmp_path: Path, api: ModelApi, path: str, body: dict[str, Any], written: int
) -> None:
    with ModelServer([{"say": "Hello.", "usage": [1000, 50, 200, 30]}]) as server:
        with open_gateway(tmp_path, server.url, api=api, prices=PRICES) as gateway:
            assert send(gateway, path, body)[0] == 200
        assert gateway.tokens == RunTokens(input=1000, output=50, cached=200, written=written)
        assert gateway.cost_usd == pytest.approx(1.05)
    (entry,) = read_usage(tmp_path)
    assert entry["model"] == MODEL
    assert not entry["is_estimate"]


def test_usage_is_on_disk_before_the_end_of_an_answer_is_passed_on(tmp_path: Path) -> None:
    with ModelServer([{"say": "one two three"}]) as server, open_gateway(tmp_path, server.url) as gateway:
        answer = open_answer(gateway, body={**REQUEST, "stream": True})
        assert any(b"message_stop" in line for line in iter(answer.readline, b""))
        assert [entry["output"] for entry in read_usage(tmp_path)] == [20]


def test_a_request_beyond_the_cost_limit_never_reaches_the_server(tmp_path: Path) -> None:
    with ModelServer([{"say": "Hello.", "usage": [1000, 200]}]) as server:
        with open_gateway(tmp_path, server.url, prices=PRICES, max_cost_usd=1.0) as gateway:
            assert send(gateway)[0] == 200
            assert not gateway.is_exhausted
            status, body = send(gateway)
            assert status == 400
            assert json.loads(body)["error"]["message"] == "the run must cost at most $1, got $1.2000"
            assert gateway.is_exhausted
        assert len(server.requests) == 1


def test_earlier_runs_count_against_the_cost_limit(tmp_path: Path) -> None:
    with ModelServer([]) as server:
        limits = {"prices": PRICES, "max_cost_usd": 1.0, "spent_usd": 1.0}
        with open_gateway(tmp_path, server.url, **limits) as gateway:
            assert send(gateway)[0] == 400
        assert server.requests == []


def test_requests_at_once_do_not_overtake_the_cost_limit(tmp_path: Path) -> None:
    with ModelServer([{"say": "Hello.", "usage": [1000, 200], "wait": 0.05}]) as server:
        with open_gateway(tmp_path, server.url, prices=PRICES, max_cost_usd=1.0) as gateway:
            with ThreadPoolExecutor(4) as pool:
                statuses = sorted(pool.map(lambda _: send(gateway)[0], range(4)))
            assert statuses == [200, 400, 400, 400]
        assert len(server.requests) == 1


def test_a_cost_limit_needs_a_price(tmp_path: Path) -> None:
    run = make_run(tmp_path, api="anthropic", base_url="http://127.0.0.1:1", max_cost_usd=1.0)
    with pytest.raises(Unusable, match="must have a known price, got model 'claude-sonnet-4-5' without one"):
        ModelGateway(run, lambda: None)


def test_another_model_is_refused_under_a_cost_limit(tmp_path: Path) -> None:
    with ModelServer([{}]) as server:
        with open_gateway(tmp_path, server.url, prices=PRICES, max_cost_usd=1.0) as gateway:
            status, body = send(gateway, body={**REQUEST, "model": "claude-opus-4-5"})
            assert status == 400
            assert "model must be claude-sonnet-4-5" in body
            assert send(gateway, body={**REQUEST, "model": f"{MODEL}-20250929"})[0] == 200
        assert len(server.requests) == 1


def test_an_answer_that_is_cut_costs_an_estimate(tmp_path: Path) -> None:
    with ModelServer([{"say": "Hello.", "drop": True}]) as server, open_gateway(tmp_path, server.url) as gateway:
        assert "message_stop" not in send(gateway, body={**REQUEST, "stream": True})[1]
    (entry,) = read_usage(tmp_path)
    assert entry["is_estimate"]
    assert entry["input"] == 100
    assert entry["output"] >= 1


def test_the_end_of_a_run_cuts_a_request_that_hangs(tmp_path: Path) -> None:
    with ModelServer([{"say": "Hello.", "hang": True}]) as server:
        with open_gateway(tmp_path, server.url) as gateway:
            answer = open_answer(gateway, body={**REQUEST, "stream": True})
            assert b"message_start" in answer.readline()
        with pytest.raises(http.client.IncompleteRead) as cut:
            answer.read()
    assert b"message_stop" not in cut.value.partial
    assert [entry["is_estimate"] for entry in read_usage(tmp_path)] == [True]


def test_a_worker_that_goes_away_ends_its_request(tmp_path: Path) -> None:
    with ModelServer([{"say": "Hello.", "hang": True}]) as server, open_gateway(tmp_path, server.url) as gateway:
        answer = open_answer(gateway, body={**REQUEST, "stream": True})
        assert b"message_start" in answer.readline()
        answer.close()
        until(lambda: gateway.requests == 1)
    assert [entry["is_estimate"] for entry in read_usage(tmp_path)] == [True]


def test_the_end_of_a_run_cuts_a_request_without_any_answer(tmp_path: Path) -> None:
    with ModelServer([{"say": "Hello.", "wait": 60}]) as server, ThreadPoolExecutor(1) as pool:
        with open_gateway(tmp_path, server.url) as gateway:
            answer = pool.submit(send, gateway)
            while not server.requests and not answer.done():
                pass
        assert answer.result(10)[0] == 502


def test_a_server_that_is_not_there_is_an_error_of_the_api(tmp_path: Path) -> None:
    with open_gateway(tmp_path, "http://user:password@127.0.0.1:1") as gateway:
        status, body = send(gateway)
    assert status == 502
    assert json.loads(body)["error"] == {
        "type": "api_error",
        "message": "the model's server cannot be reached: ConnectError",
    }


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [(b"{", {}, 400), ([], {}, 400), (REQUEST, {"content-encoding": "gzip"}, 411), (b"", {"content-length": "9" * 12}, 413)],
)  # fmt: skip
def test_a_request_that_is_not_understood_is_refused(
    tmp_path: Path, body: Any, headers: dict[str, str], status: int
) -> None:
    with ModelServer([]) as server, open_gateway(tmp_path, server.url) as gateway:
        assert send(gateway, body=body, **headers)[0] == status
        assert server.requests == []


class EchoHandler(BaseHTTPRequestHandler):
    """A server that answers with an error that holds the key, or with a redirect."""

    def do_POST(self) -> None:
        content = f"no such key: {self.headers['x-api-key']}".encode()
        self.send_response(307 if "beta" in self.path else 401)
        for name, value in {
            "location": "http://127.0.0.1:1/",
            "set-cookie": KEY,
            "content-length": str(len(content)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_a_key_in_the_server_s_error_and_a_redirect_do_not_come_through(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), EchoHandler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with open_gateway(tmp_path, f"http://127.0.0.1:{server.server_address[1]}") as gateway:
            answer = open_answer(gateway)
            assert (answer.status, answer.read()) == (401, b"no such key: [redacted key]")
            assert "set-cookie" not in answer.headers
            status, body = send(gateway, "/v1/messages?beta=true")
            assert status == 502
            assert "redirect" in body
        server.shutdown()


def test_a_chat_stream_is_asked_for_its_usage(tmp_path: Path) -> None:
    with ModelServer([{}]) as server, open_gateway(tmp_path, server.url, api="openai-chat") as gateway:
        send(gateway, "/v1/chat/completions", {**CHAT, "stream": True})
        assert json.loads(server.requests[0].text)["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("api", "base", "target", "url"),
    [
        ("anthropic", "https://h.example/v1/", "/v1/messages?beta=true&key=x", "https://h.example/v1/messages?beta=true"),
        ("openai-responses", "https://h.example", "/v1/responses", "https://h.example/v1/responses"),
        ("openai-responses", "https://h.example/v1", "/v1/responses", "https://h.example/v1/responses"),
        ("openai-chat", "https://h.example/a/v3", "/v1/chat/completions", "https://h.example/a/v3/chat/completions"),
        ("gemini", "https://h.example", "/v1beta/models/m:countTokens?key=x", "https://h.example/v1beta/models/m:countTokens"),
    ],
)  # fmt: skip
def test_addresses_follow_the_server_s_own(api: ModelApi, base: str, target: str, url: str) -> None:
    assert load_api(api).build_url(base, target) == url


def test_only_answers_of_a_model_cost() -> None:
    assert load_api("anthropic").parse_request("POST", "/v1/messages/count_tokens", {}) == ("count", "")
    assert load_api("openai-chat").parse_request("GET", "/v1/models", {}) == ("list", "")
    assert load_api("gemini").parse_request("POST", "/v1beta/models/a/b:generateContent", {}) == ("", "")


@pytest.mark.parametrize(
    "chunk", [b"data: {\n", b"data: [1]\n", b'data: {"usage": 3}\n', b'data: {"message": {"usage": []}}\n']
)
def test_garbage_in_a_stream_tells_no_usage(chunk: bytes) -> None:
    counter = UsageCounter(load_api("anthropic"), 400)
    counter.feed(chunk)
    assert not counter.is_final
    assert counter.count_tokens().input == 100


def test_events_are_read_across_chunks() -> None:
    counter = UsageCounter(load_api("anthropic"), 400)
    stream = (
        b'data: {"type":"message_start","message":{"usage":{"input_tokens":7}}}\n\ndata: {"type":"message_stop"}\n\n'
    )
    for byte in stream:
        counter.feed(bytes([byte]))
    assert counter.is_final
    assert counter.count_tokens() == RunTokens(input=7)
