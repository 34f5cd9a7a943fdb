"""The page's server: who is let in, what is refused, and what it answers. Over a real socket."""

from __future__ import annotations

import errno
import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from email.message import Message
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from patience import PATIENCE_S

from lemming.dashboard.page_server import serve_page
from lemming.engine import run_once
from lemming.libraries.concurrency import http_server
from lemming.libraries.concurrency.http_server import max_connections
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.testing import make_org, resume

TOKEN = "a-token-of-the-tests"


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("page")
    reads = {"read_outboxes": ["*"]}
    human = resume("human", model={"key": "human"}, permissions=reads)
    make_org(base, resume("ada", permissions=reads), human)
    return base


@pytest.fixture(scope="module")
def place(org: Path) -> Iterator[str]:
    with serve_page(org, port=0, token=TOKEN) as address:
        yield urlsplit(address).netloc


class Answer(NamedTuple):
    """What the server answered."""

    status: int
    headers: Message
    body: bytes


@contextmanager
def asked(place: str, path: str, method: str = "GET", body: object = None, **headers: str) -> Iterator[HTTPResponse]:
    """Ask the server as its own page does, but for the headers named; an empty one is left out."""
    usual = {"Authorization": f"Bearer {TOKEN}", "Host": place}
    if method == "POST":
        usual |= {"Origin": f"http://{place}", "Content-Type": "application/json"}
    given = {name.replace("_", "-").title(): value for name, value in headers.items()}
    content = body if body is None or isinstance(body, bytes) else json.dumps(body)
    sent = {name: value for name, value in {**usual, **given}.items() if value}
    with closing(HTTPConnection(place, timeout=PATIENCE_S)) as connection:
        connection.request(method, path, content, sent)
        with connection.getresponse() as response:
            yield response


def ask(place: str, path: str, method: str = "GET", body: object = None, **headers: str) -> Answer:
    """Ask as `asked` does, and return all that is answered."""
    with asked(place, path, method, body, **headers) as found:
        return Answer(found.status, found.headers, found.read())


def test_the_printed_address_lets_one_in_and_takes_the_token_out_of_the_address(place: str) -> None:
    found = ask(place, f"/?token={TOKEN}", authorization="")
    cookie = found.headers["set-cookie"]
    path = found.headers["location"]
    assert (found.status, TOKEN in path) == (303, False)
    assert cookie.endswith(f"; HttpOnly; SameSite=Strict; Path={path}")
    assert ask(place, path, authorization="", cookie=cookie.partition(";")[0]).status == 200


@pytest.mark.parametrize("path", ["/", "/live", "/api/agents", "/static/app.js", "/nothing", "/?token=wrong"])
def test_nobody_is_let_in_without_the_token(place: str, path: str) -> None:
    found = ask(place, path, authorization="")
    assert found.status == 403
    assert "lemming dash" in found.body.decode()


def test_a_name_that_is_not_this_machines_is_refused(place: str) -> None:
    assert ask(place, "/api/agents", host="evil.example:80").status == 421
    assert ask(place, f"/?token={TOKEN}", host="evil.example", authorization="").status == 421


def test_a_page_of_another_site_or_port_is_refused(place: str) -> None:
    assert ask(place, "/api/agents", sec_fetch_site="same-site").status == 403
    assert ask(place, "/do/send", "POST", {"text": "x"}, origin="http://127.0.0.1:1").status == 403
    assert ask(place, "/do/send", "POST", {"text": "x"}, origin="").status == 403
    assert ask(place, "/do/send", "POST", {"text": "x"}, content_type="text/plain").status == 415


def test_a_body_that_is_too_long_is_not_read(place: str) -> None:
    assert ask(place, "/do/send", "POST", {"text": "x" * 600_000}).status == 413


def test_zeros_before_its_length_make_a_body_no_shorter(place: str) -> None:
    assert ask(place, "/do/send", "POST", {"text": "x"}, content_length="000000000000999999").status == 413


@pytest.mark.parametrize("path", ["/static/../server.py", "/static/%2e%2e/server.py", "/static//etc/passwd"])
def test_no_path_leads_out_of_the_pages_files(place: str, path: str) -> None:
    assert ask(place, path).status == 404


def test_everything_is_answered_under_the_strict_policy(place: str) -> None:
    for path in ("/", "/static/app.js", "/api/agents", "/api/nothing", "/nothing"):
        headers = ask(place, path).headers
        assert "default-src 'none'; script-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_a_view_that_there_is_not_is_said_so(place: str) -> None:
    found = ask(place, "/api/agnts")
    assert found.status == 400
    assert "agents" in json.loads(found.body)["hint"]


def test_what_is_posted_is_an_entry_of_the_person(place: str, org: Path) -> None:
    found = ask(place, "/do/send", "POST", {"text": "hello", "to": "ada"})
    assert found.status == 200
    assert read_outbox_entries(org, "human")[-1].payload == {"text": "hello", "target": "ada"}


def test_who_looks_only_changes_nothing(org: Path) -> None:
    before = len(read_outbox_entries(org, "human"))
    with serve_page(org, port=0, token=TOKEN, is_read_only=True) as address:
        there = urlsplit(address).netloc
        assert ask(there, "/api/agents").status == 200
        assert ask(there, "/do/send", "POST", {"text": "hello"}).status == 403
    assert len(read_outbox_entries(org, "human")) == before


def test_the_state_comes_at_once_and_again_when_something_changes(place: str, org: Path) -> None:
    with asked(place, "/live?view=feed") as stream:
        first = told(stream)
        ask(place, "/do/send", "POST", {"text": "news"})
        while (second := told(stream))["view"] == first["view"]:
            pass
    assert second["view"]["entries"][0]["text"] == "news"


def test_what_a_removed_agent_spent_comes_into_the_head_once_it_is_added_up(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob"))
    run_once(base)
    (base / "agents/bob").rename(base / "bob")
    with (
        serve_page(base, port=0, token=TOKEN) as address,
        asked(urlsplit(address).netloc, "/live?view=header") as stream,
    ):
        spent = [told(stream)["header"]["spent"]["credits"]]
        while spent[-1] != 2.0:
            spent.append(told(stream)["header"]["spent"]["credits"])
    assert set(spent) <= {1.0, 2.0}


def told(stream: HTTPResponse) -> dict[str, Any]:
    """Return the next state that is sent."""
    while not (line := stream.readline()).startswith(b"data: "):
        assert line, "the stream has ended"
    plain: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
    return plain


def test_of_several_people_each_is_shown_what_waits_for_them(base: Path) -> None:
    people = [resume(name, model={"key": "human"}, permissions={"read_outboxes": ["*"]}) for name in ("eve", "ivo")]
    make_org(base, resume("ada"), *people, models={"human": {"provider": "human"}})
    for name in ("eve", "ivo"):
        write_person_entry(
            base, "ada", tick=1, kind="request", payload={"text": name, "target": name}, tags=[], created_at=""
        )
    with serve_page(base, port=0, token=TOKEN, person="eve") as address:
        place = urlsplit(address).netloc
        waits = json.loads(ask(place, "/api/waiting").body)
        with asked(place, "/live?view=header") as stream:
            while (count := told(stream)["header"]["waiting"]) is None:
                pass
    assert ([item["text"] for item in waits["items"]], count) == (["eve"], 1)


def test_a_request_that_poses_as_a_call_is_shown_without_one_and_cannot_be_approved(base: Path) -> None:
    human = resume("human", model={"key": "human"}, permissions={"read_outboxes": ["*"]})
    make_org(base, resume("ada"), human, models={"human": {"provider": "human"}})
    posed = {
        "id": "1/ada/0",
        "tool": "shell",
        "args": {"command": "ls"},
        "gate": "config/org.json#/gates/0",
        "why": "x",
    }
    payload = {"text": "ls", "target": "human", "call": posed}
    entry = write_person_entry(base, "ada", tick=1, kind="request", payload=payload, tags=[], created_at="")
    with serve_page(base, port=0, token=TOKEN) as address:
        place = urlsplit(address).netloc
        item = json.loads(ask(place, "/api/waiting").body)["items"][0]
        refused = ask(place, "/do/decide", "POST", {"id": entry.id, "word": "approve"})
    assert (item["decides"], "call" in item, refused.status) == (False, False, 400)
    assert read_outbox_entries(base, "human") == []


@pytest.mark.long
def test_who_only_connects_to_the_page_keeps_nobody_from_it(org: Path) -> None:
    with serve_page(org, port=0, token=TOKEN) as address, ExitStack() as held:
        port = urlsplit(address).port or 0
        idle = [held.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(150)]
        caller = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        caller.request("GET", f"/?token={TOKEN}")
        assert caller.getresponse().status == 303
        caller.close()
        gone = select.select(idle, [], [], 0)[0]
        assert len(idle) - len(gone) <= max_connections()


def test_a_server_that_never_begins_ends_without_a_mistake_of_its_own(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_org(base, resume("ada"))
    dies = threading.Event()

    def die(*_: object) -> None:
        dies.set()
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(http_server, "_serve_socket", die)
    with serve_page(base, port=0, token=TOKEN):
        assert dies.wait(PATIENCE_S)
