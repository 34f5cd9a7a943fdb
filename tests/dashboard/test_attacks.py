"""What other programs and pages of the same machine may try at the page's server. Over a real socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from page_org import make_desk
from patience import PATIENCE_S
from test_server import TOKEN, ask, asked, told

from lemming.dashboard.page_server import serve_page
from lemming.queries.views.view_registry import VIEWS, find_view_function
from lemming.testing import tree

NEEDED = {"tick": "&number=2", "agent": "&name=desk"}
LARGEST = 10**12 - 1


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_desk(tmp_path_factory.mktemp("attacked") / "org")


@pytest.fixture(scope="module")
def place(org: Path) -> Iterator[str]:
    with serve_page(org, port=0, token=TOKEN) as address:
        yield urlsplit(address).netloc


@pytest.fixture(scope="module")
def secret(place: str) -> str:
    """The path that only the browser which was let in knows."""
    return ask(place, f"/?token={TOKEN}", authorization="").headers["location"]


def test_a_server_on_another_port_is_never_sent_the_cookie(place: str, secret: str) -> None:
    """Cookies are not told apart by port (RFC 6265, 8.5), but by path: this one is nobody's to guess."""
    cookie = ask(place, f"/?token={TOKEN}", authorization="").headers["set-cookie"]
    assert cookie.endswith(f"Path={secret}")
    assert len(secret.strip("/")) == 32
    for path in ("/", "/api/agents", "/live", f"/x{secret}"):
        assert ask(place, path, authorization="", cookie=f"lemming={TOKEN}").status == 403


@pytest.mark.parametrize("others", ['a={"b": 1}; ', "x; =; ;; ", 'q="unended; ', "lemming=forged; ", "naïve=\xff; "])
def test_cookies_that_other_servers_have_set_keep_nobody_out(place: str, secret: str, others: str) -> None:
    assert ask(place, f"{secret}api/agents", authorization="", cookie=f"{others}lemming={TOKEN}").status == 200


def test_the_path_alone_lets_nobody_in(place: str, secret: str) -> None:
    assert ask(place, secret, authorization="").status == 403
    assert ask(place, secret, authorization="", cookie="lemming=").status == 403


def test_the_token_in_the_address_opens_the_page_and_nothing_else(place: str) -> None:
    for path in ("/api/agents", "/live", "/static/app.js", "/do/send"):
        assert ask(place, f"{path}?token={TOKEN}", authorization="").status == 403
    assert ask(place, f"/do/send?token={TOKEN}", "POST", {"text": "x"}, authorization="").status == 403
    assert ask(place, f"/?token={TOKEN}", "POST", {"text": "x"}, authorization="").status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HEAD", "GET"])
def test_only_a_post_changes_anything(place: str, org: Path, method: str) -> None:
    before = tree(org, without=())
    assert ask(place, "/do/send?text=x&to=desk", method).status == 405
    assert tree(org, without=()) == before


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "0.0.0.0", "localhost."]
)
def test_of_names_only_this_machines_own_are_answered(place: str, host: str) -> None:
    assert ask(place, "/api/header", host=host).status == 421


def test_a_body_that_does_not_say_how_long_it_is_is_not_read(place: str) -> None:
    head = f"POST /do/send HTTP/1.1\r\nHost: {place}\r\nAuthorization: Bearer {TOKEN}\r\n"
    head += f"Origin: http://{place}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert said_to(place, head.encode()).startswith(b"HTTP/1.1 411 ")


def test_what_is_no_request_is_refused(place: str) -> None:
    assert said_to(place, b"GET / HTTP/1.1\r\nHost: a\r\nX : y\n: \r\n\r\n").startswith(b"HTTP/1.1 4")
    two = f"GET /api/header HTTP/1.1\r\nHost: {place}\r\nHost: evil.example\r\n"
    two += f"Authorization: Bearer {TOKEN}\r\n\r\n"
    assert said_to(place, two.encode()).startswith(b"HTTP/1.1 4")


def said_to(place: str, raw: bytes) -> bytes:
    """Send bytes, and return the beginning of what is answered."""
    host, _, port = place.partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(raw)
        return connection.recv(200)


@pytest.mark.long
def test_slow_clients_and_many_streams_keep_nobody_waiting(place: str) -> None:
    host, _, port = place.partition(":")
    with ExitStack() as held:
        for _ in range(30):
            slow = held.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
            slow.sendall(b"GET /api/agents HTTP/1.1\r\nHost:")
        streams = [held.enter_context(asked(place, "/live?view=agents")) for _ in range(30)]
        assert [told(stream)["header"]["state"] for stream in streams] == ["stopped"] * 30
        assert ask(place, "/api/agents").status == 200


HOSTILE = [
    "",
    "-1",
    str(LARGEST),
    "9" * 40,
    "1e9",
    "²",
    "٣",
    "../../../../etc/passwd",
    "/etc/passwd",
    "a\0b",
    "%2e%2e/x",
    "\r\nX-Owned: yes",
    "<script>",
    "x" * 20_000,
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("view", VIEWS)
def test_no_name_or_number_breaks_a_view_leads_out_of_the_folder_or_writes(place: str, org: Path, view: str) -> None:
    before = tree(org, without=())
    for key in signature(find_view_function(view)).parameters:
        for value in HOSTILE:
            needed = NEEDED.get(view, "") if f"&{key}=" not in NEEDED.get(view, "") else ""
            found = ask(place, f"/api/{view}?{key}={quote(value)}{needed}")
            assert found.status in (200, 400), (key, value[:40], found.body[:300])
            assert b"root:x:0" not in found.body
            assert found.headers["x-owned"] is None
    assert tree(org, without=()) == before


def test_a_link_that_an_agent_laid_does_not_lead_out_of_the_folder(place: str, org: Path) -> None:
    laid = org / "agents" / "desk" / "workspace" / "etc"
    laid.parent.mkdir(exist_ok=True)
    laid.symlink_to("/etc")
    try:
        found = ask(place, "/api/why?target=agents/desk/workspace/etc/passwd")
        read = ask(place, "/api/agent?name=desk&file=etc/passwd")
    finally:
        laid.unlink()
    assert (found.status, read.status) == (400, 400)


BODIES: list[Any] = [
    b"",
    b"[]",
    b"1",
    b"{",
    b"[" * 100_000,
    b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b"\xff\xfe",
    b'{"text": 1e999}',
    b'{"to":"desk","text":NaN}',
    b'{"text":"\\ud800","to":"desk","name":"desk","id":"x","at":"1","folder":"f"}',
    {"id": 5},
    {"text": ["x"], "to": "desk"},
    {"to": "../x", "text": "x"},
    {"to": "desk", "text": "x", "person": "desk"},
    {"to": "desk", "text": "x", "person": "../../x"},
    {"at": "2", "folder": "../x"},
    {"at": "2", "folder": "org"},
    {"at": "../x", "folder": "zz"},
    {"at": "2", "folder": "..", "name": "..", "text": "{}", "to": "..", "was": ""},
    {"name": "../desk", "text": "{}", "to": "../desk"},
]


@pytest.mark.parametrize("action", ["decide", "answer", "cancel", "send", "say", "ask", "save", "fork", "__class__"])
def test_what_is_posted_amiss_is_named_and_writes_nothing(place: str, org: Path, action: str) -> None:
    before = tree(org.parent, without=())
    for body in BODIES:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        found = ask(place, f"/do/{action}", "POST", raw)
        assert (found.status, "message" in json.loads(found.body)) == (400, True), (body, found.body[:300])
    assert tree(org.parent, without=()) == before
