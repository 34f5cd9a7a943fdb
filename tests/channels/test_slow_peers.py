"""A server that says a letter now and then, or nothing: it is given up in time, named, and stops no other."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from callers import receiver
from channel_polls import poll_once
from doorway import noted
from dripping_server import dripping
from patience import PATIENCE_S

from lemming.capabilities.channels.channel_service import run_channel_server
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.outbox_files import write_person_entry
from lemming.operations.model_detection import KeylessServer, ask_server
from lemming.queries.checks.check_registry import CheckRun
from lemming.queries.checks.health_checks import find_health_issues
from lemming.testing import make_org, resume


def with_channels(base: Path, **models: dict[str, Any]) -> Path:
    """Make an organisation in which `ada` has written an entry for the agent of each of these channels."""
    ada = resume("ada", model={"key": "human"})
    reads = {"read_outboxes": ["ada"], "tools": []}
    agents = [resume(name, model={"key": name}, permissions=reads) for name in models]
    make_org(base, ada, *agents, models={"human": {"provider": "human"}, **models})
    for name in models:
        payload = {"text": "hello", "target": name, "to": "bob@far.example"}
        write_person_entry(base, "ada", tick=1, kind="message", payload=payload, tags=[], created_at="")
    (base / "tick.json").write_text('{"current_tick": 2}')
    return base


def http_to(port: int, **more: Any) -> dict[str, Any]:
    return {"provider": "http", "options": {"deliver_to": f"http://127.0.0.1:{port}/x", **more}}


def mail_at(**options: Any) -> dict[str, Any]:
    plain = {"address": "desk@example.org", "allow_to": ["@far.example"], "timeout_s": 0.3}
    return {"provider": "mail", "options": {**plain, **options}}


def look_at(base: Path) -> list[str]:
    """Look once, and return what is told."""
    told: list[str] = []
    poll_once(Organisation(base), SystemClock().now, lambda problem: told.append(str(problem)))
    return told


def troubles_in(base: Path) -> str:
    return " ".join(str(trouble.message) for trouble in find_health_issues(CheckRun(Organisation(base))))


@pytest.mark.parametrize("letter", [b"x", b"HTTP/1.1 200 OK\r\nX: "], ids=["status", "headers"])
def test_a_target_that_drips_its_answer_is_given_up_in_time_and_named(base: Path, letter: bytes) -> None:
    with dripping(letter) as port:
        with_channels(base, door=http_to(port, timeout_s=0.3))
        (told,) = look_at(base)
    assert "the channel of door could not send an entry" in told
    assert "127.0.0.1" in told
    assert [line["did"] for line in noted(base)] == ["failed"]
    assert "1 waiting to be sent" in troubles_in(base)
    assert "127.0.0.1" in troubles_in(base)


def test_a_mail_server_that_drips_its_greeting_is_given_up_in_time_and_named(base: Path) -> None:
    with dripping(b"x") as port:
        reads = {"imap_host": "127.0.0.1", "imap_port": port, "imap_encryption": "none"}
        with_channels(base, door=mail_at(**reads))
        (told,) = look_at(base)
    assert "the channel of door is unreachable: 127.0.0.1 did not answer completely within 0.3 s" in told
    assert [line["did"] for line in noted(base)] == ["down"]
    assert "127.0.0.1 did not answer completely" in troubles_in(base)


def test_a_mail_server_that_drips_when_mail_is_sent_is_given_up_in_time_and_named(base: Path) -> None:
    with dripping(b"2") as port:
        sends = {"smtp_host": "127.0.0.1", "smtp_port": port, "smtp_encryption": "none"}
        with_channels(base, door=mail_at(**sends))
        (told,) = look_at(base)
    assert "127.0.0.1 did not answer completely within 0.3 s" in told
    assert [line["did"] for line in noted(base)] == ["failed"]


def test_a_peer_that_hangs_keeps_no_other_waiting_and_a_stop_breaks_it_off(base: Path) -> None:
    arrived = threading.Event()
    with ExitStack() as stack:
        hangs = stack.enter_context(dripping(b""))
        good = stack.enter_context(receiver(202, heard=arrived.set))
        with_channels(base, door=http_to(hangs, timeout_s=600.0), other=http_to(good.port))
        stack.enter_context(run_channel_server(base, port=0, stop=threading.Event(), report=lambda _: None))
        assert arrived.wait(PATIENCE_S)
    assert noted(base) == []  # a stop is no failure of the other end


def test_a_server_of_this_machine_that_drips_is_taken_for_none() -> None:
    with dripping(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n") as port:
        served = ask_server(KeylessServer("vllm", f"http://127.0.0.1:{port}/v1"), 0.3)
    assert (served.names, served.problem) == ((), "the server does not answer within 0.3 s")
