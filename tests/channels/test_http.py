"""Webhooks and questions: signed or with a token, once each, answered when the entry is on the disk."""

from __future__ import annotations

import hmac
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path

import pytest
from callers import SECRET, TOKEN, Caller, receiver, served
from channel_polls import poll_once
from doorway import answer_to, arrived, noted, with_channel
from patience import PATIENCE_S

from lemming.capabilities.channels import http_api
from lemming.engine import run_once
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import ConfigError, OrgBusy, Problem, UsageError
from lemming.kernel.org.organisation import Organisation
from lemming.testing import FrozenClock, make_org, resume

NO_SCHEMA = rb'{"text": "x", "schema": {"patternProperties": {"\\p{Foo}": {}}}}'
LONG_DEADLINE = b'{"text": "x", "deadline": %s}' % (b"9" * 4300)
DEEP = b'{"text": "x", "a": %s1%s}' % (b"[" * 60, b"]" * 60)
WITH_TOKEN = {"Authorization": f"Bearer {TOKEN}"}
OPTIONS = {"to": "desk", "secret_env": "DOOR_SECRET", "token_env": "DOOR_TOKEN"}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOOR_SECRET", SECRET)
    monkeypatch.setenv("DOOR_TOKEN", TOKEN)


@pytest.fixture
def door(base: Path) -> Iterator[Caller]:
    with_channel(base, OPTIONS, provider="http")
    with served(base) as caller:
        yield caller


def test_a_signed_webhook_is_an_entry_and_its_repetitions_are_answered_the_same(base: Path, door: Caller) -> None:
    body = json.dumps({"type": "invoice.paid", "amount": 12}).encode()
    answers = [door.hook(body) for _ in range(3)]
    [entry] = arrived(base)
    assert {answer.status for answer in answers} == {202}
    assert [answer.facts for answer in answers] == [{"id": entry.id, "status": "accepted"}] * 3
    assert entry.payload == {
        "text": "webhook invoice.paid",
        "target": "desk",
        "from": "127.0.0.1",
        "channel": "http",
        "message_id": "m-1",
        "event": "invoice.paid",
        "body": {"type": "invoice.paid", "amount": 12},
    }


def test_a_repetition_in_a_later_tick_and_of_a_server_started_anew_is_known(base: Path) -> None:
    with_channel(base, OPTIONS, provider="http")
    with served(base) as caller:
        first = caller.hook(b'{"text": "hello"}')
    run_once(base, clock=FrozenClock())
    (base / "agents/door/channel.jsonl").unlink()  # killed between the entry and the log
    with served(base) as caller:
        assert caller.hook(b'{"text": "hello"}').facts == first.facts
        for file in (base / "agents/door/outbox").iterdir():
            file.unlink()  # past its retention
        assert caller.hook(b'{"text": "hello"}').facts == first.facts
    assert arrived(base) == []


def test_the_same_message_at_once_is_one_entry(base: Path, door: Caller) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: door.hook(b"{}", ident=f"m-{number % 3}"), range(24)))
    assert {answer.status for answer in answers} == {202}
    assert len(arrived(base)) == 3


def test_what_github_sends_is_taken(base: Path, door: Caller) -> None:
    body = json.dumps({"action": "opened"}).encode()
    signed = "sha256=" + hmac.new(SECRET.encode(), body, sha256).hexdigest()
    told = {"X_GitHub_Delivery": "d-1", "X_GitHub_Event": "issues"}
    assert door.call("POST", "/hooks/door", body, X_Hub_Signature_256=signed, **told).status == 202
    assert arrived(base)[0].payload["text"] == "webhook issues"
    wrong = door.call("POST", "/hooks/door", body + b" ", X_Hub_Signature_256=signed, **told)
    assert wrong.status == 401


@pytest.mark.parametrize(
    ("headers", "at", "said"),
    [
        ({"webhook_signature": "v1,AAAA"}, None, "the signature is wrong"),
        ({}, time.time() - 400, "webhook-timestamp must be within 300 seconds of the current time"),
        (
            {"webhook_timestamp": "soon"},
            None,
            "webhook-id must be present, and webhook-timestamp must be a number of seconds",
        ),
    ],
    ids=["forged", "old", "no time"],
)
def test_a_webhook_that_is_not_rightly_signed_is_refused(
    base: Path, door: Caller, headers: dict[str, str], at: float | None, said: str
) -> None:
    answer = door.hook(b"{}", at=at, **headers)
    assert (answer.status, answer.facts["error"]["message"]) == (401, said)
    assert arrived(base) == []


def test_a_question_is_a_request_and_its_answer_is_fetched(base: Path, door: Caller) -> None:
    asked = door.ask(text="What is new?", id="q-1", conversation="c-1")
    assert asked.status == 202
    assert door.ask(text="What is new?", id="q-1").facts == asked.facts
    [entry] = arrived(base)
    assert (entry.kind, entry.payload["conversation"]) == ("request", "c-1")
    opened = door.request(asked.facts["href"])
    assert (opened.status, opened.facts["status"], opened.facts["holders"]) == (200, "open", ["desk"])
    run_once(base, clock=FrozenClock())
    answer_to(base, entry, "Rain.")
    run_once(base, clock=FrozenClock())
    answered = door.request(f"/requests/{asked.facts['id']}").facts
    assert (answered["status"], answered["answers"][0]["answer"]) == ("answered", "Rain.")


def test_a_mistake_in_an_answer_is_told_and_ends_no_other(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(_: object) -> None:
        raise ValueError("a mistake of ours")

    with_channel(base, OPTIONS, provider="http")
    told: list[Problem] = []
    with served(base, told.append) as other, monkeypatch.context() as patched:
        patched.setattr(http_api, "load_requests", mistaken)
        answer = other.request("/requests/0123456789ab")
        patched.undo()
        assert (answer.status, other.request("/requests/0123456789ab").status) == (500, 404)
    assert [(it.message, it.file) for it in told] == [("ValueError: a mistake of ours", "/requests/0123456789ab")]
    assert "test_http.py" in told[0].hint


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("POST", "/ask", b'{"text": "x"}', {}, 401),
        ("POST", "/ask", b'{"text": "x"}', {"Authorization": "Bearer wrong"}, 401),
        ("POST", "/ask", b"no json", WITH_TOKEN, 400),
        ("POST", "/ask", b'{"text": ""}', WITH_TOKEN, 400),
        ("POST", "/ask", b'{"text": "x", "target": "boss"}', WITH_TOKEN, 400),
        ("POST", "/ask", b'{"text": "x", "deadline": "soon"}', WITH_TOKEN, 400),
        pytest.param("POST", "/ask", DEEP, WITH_TOKEN, 400, id="deep"),
        pytest.param("POST", "/ask", LONG_DEADLINE, WITH_TOKEN, 400, id="long-deadline"),
        ("POST", "/ask", NO_SCHEMA, WITH_TOKEN, 400),
        ("POST", "/hooks/desk", b"{}", {}, 404),
        ("POST", "/hooks/door", b"{}", {}, 401),
        ("POST", "/elsewhere", b"{}", {}, 404),
        ("GET", "/", b"", {}, 404),
        ("GET", "/requests/0123456789ab", b"", WITH_TOKEN, 404),
        ("GET", "/requests/0123456789ab", b"", {}, 401),
        ("DELETE", "/ask", b"", {}, 501),
        ("POST", "/ask", b"x" * 300_000, WITH_TOKEN, 413),
    ],
)
def test_mistakes_are_answered_in_json(
    base: Path, door: Caller, method: str, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = door.call(method, path, body, **headers)
    assert answer.status == status
    assert answer.facts["error"]["message"]
    assert "Traceback" not in str(answer.facts)
    assert arrived(base) == []


@pytest.mark.parametrize("length", ["9" * 20, "0" * 12 + "99999999"], ids=["digits", "zeros"])
def test_a_body_that_is_said_to_be_too_long_is_refused_unread(door: Caller, length: str) -> None:
    answer = door.call("POST", "/ask", b"", **WITH_TOKEN, **{"Content-Length": length})
    assert answer.status == 413


def test_a_length_of_thousands_of_digits_is_no_request(door: Caller) -> None:
    with socket.create_connection(("127.0.0.1", door.port), timeout=PATIENCE_S) as caller:
        caller.sendall(b"POST /ask HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n\r\n" % (b"9" * 5000))
        assert caller.recv(12) == b"HTTP/1.1 400"


def test_a_body_of_no_known_length_is_refused(door: Caller) -> None:
    connection = HTTPConnection("127.0.0.1", door.port, timeout=PATIENCE_S)
    connection.putrequest("POST", "/ask")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.putheader("Authorization", f"Bearer {TOKEN}")
    connection.endheaders()  # what comes after them is not waited for
    assert connection.getresponse().status == 411
    connection.close()


def test_a_sender_of_too_much_is_told_when_to_come_again(base: Path) -> None:
    with_channel(base, {**OPTIONS, "per_sender_an_hour": 2}, provider="http")
    with served(base) as caller:
        answers = [caller.hook(b"{}", ident=f"m-{number}") for number in range(3)]
    assert [answer.status for answer in answers] == [202, 202, 429]
    assert 3500 < int(answers[2].headers["retry-after"]) < 3700
    assert len(arrived(base)) == 2


def test_requests_of_others_are_nobodys_business(base: Path, door: Caller) -> None:
    from lemming.libraries.outbox_files import write_person_entry

    theirs = {"text": "secret", "target": "desk"}
    other = write_person_entry(base, "desk", tick=1, kind="request", payload=theirs, tags=[], created_at="")
    assert door.request(f"/requests/{other.id}").status == 404


def test_answers_are_sent_signed_with_one_key_until_they_are_taken(base: Path) -> None:
    with receiver(503, 204) as far:
        address = f"http://127.0.0.1:{far.port}/answers"
        out = {"deliver_to": address, "deliver_secret_env": "DOOR_SECRET"}
        with_channel(base, {**OPTIONS, **out}, provider="http")
        with served(base) as caller:
            caller.hook(b'{"text": "hello"}')
        run_once(base, clock=FrozenClock())
        answer_to(base, arrived(base)[0], "Hello back.")
        run_once(base, clock=FrozenClock())
        clock, org = FrozenClock(), Organisation(base)
        clock.time = SystemClock().now()
        for seconds in (0, 5, 6, 20):
            clock.advance(seconds)
            poll_once(org, clock.now, lambda _: None)
    assert [line["did"] for line in noted(base)] == ["received", "failed", "delivered"]
    (first, body), (second, _) = far.came
    assert first["idempotency-key"] == second["idempotency-key"] == first["webhook-id"]
    assert (body["text"], body["answers"]["message_id"]) == ("Hello back.", "m-1")
    assert first["webhook-signature"].startswith("v1,")


def test_what_the_other_end_refuses_for_good_is_given_up(base: Path) -> None:
    with receiver(410) as far:
        with_channel(base, {"to": "desk", "deliver_to": f"http://127.0.0.1:{far.port}/"}, provider="http")
        run_once(base, clock=FrozenClock())
        from lemming.libraries.outbox_files import write_person_entry

        write_person_entry(
            base, "desk", tick=1, kind="message", payload={"text": "x", "target": "door"}, tags=[], created_at=""
        )
        poll_once(Organisation(base), SystemClock().now, lambda _: None)
    assert [line["did"] for line in noted(base)] == ["gave_up"]


def test_serving_needs_what_the_options_name(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_org(base, resume("desk"))
    with pytest.raises(UsageError, match="nothing to serve"), served(base):
        pass
    with_channel(base, OPTIONS, provider="http")
    with served(base), pytest.raises(OrgBusy, match="already serves the channels"), served(base):
        pass
    monkeypatch.delenv("DOOR_TOKEN")
    with pytest.raises(ConfigError, match="environment variable DOOR_TOKEN"), served(base):
        pass
