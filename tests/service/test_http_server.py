"""The HTTP server that everything shares: how long a caller may take, and what is said where it is not installed."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from lemming.capabilities.channels.channel_service import run_channel_server
from lemming.kernel.base.errors import UsageError
from lemming.libraries.concurrency.http_server import ServerLimits, bind_port, serve_in_thread
from lemming.operations.systemd_notify import Health, serve_health
from lemming.testing import make_org, resume

GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
BRIEF_S, MUCH = 0.2, 64 << 20
SENT = threading.Event()


async def answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer at once, never, or with more than a socket holds."""
    if scope["path"] == "/never":
        await asyncio.sleep(math.inf)
    length = MUCH if scope["path"] == "/much" else 2
    headers = [(b"content-length", b"%d" % length), (b"x-client", str(scope["client"]).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"x" * (length - 1), "more_body": True})
    await send({"type": "http.response.body", "body": b"x"})
    SENT.set()


@contextlib.contextmanager
def caller(limits: ServerLimits) -> Iterator[socket.socket]:
    """Connect to a server with these limits."""
    with (
        serve_in_thread(answer, bind_port("127.0.0.1", 0), name="lemming-x", limits=limits) as port,
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection,
    ):
        yield connection


def is_closed(connection: socket.socket) -> bool:
    """Read all that comes, and return True once the server has closed the connection."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(1 << 20):
            pass
    return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx"])
def test_a_request_that_does_not_arrive_is_given_up(sent: bytes) -> None:
    with caller(ServerLimits(arrive_s=BRIEF_S)) as connection:
        connection.sendall(sent)
        assert is_closed(connection)


def test_a_second_request_that_does_not_arrive_is_given_up(base: Path) -> None:
    with caller(ServerLimits(arrive_s=BRIEF_S)) as connection:
        connection.sendall(GET % b"/")
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        connection.sendall(b"GET / HTT")
        assert is_closed(connection)


def test_an_answer_that_does_not_come_is_given_up() -> None:
    with caller(ServerLimits(answer_s=BRIEF_S)) as connection:
        connection.sendall(GET % b"/never")
        assert is_closed(connection)


def test_an_answer_that_is_not_read_is_given_up() -> None:
    with caller(ServerLimits(read_s=BRIEF_S)) as connection:
        SENT.clear()
        connection.sendall(GET % b"/much")
        assert SENT.wait(PATIENCE_S)  # or cut: nothing is read before
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(1 << 20):
                received += len(chunk)
    assert received < MUCH


def test_a_request_for_an_upgrade_is_answered_as_any_other(capfd: pytest.CaptureFixture[str]) -> None:
    upgrade = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    with caller(ServerLimits()) as connection:
        connection.sendall(upgrade)
        assert b"".join(iter(lambda: connection.recv(4096), b"")).startswith(b"HTTP/1.1 200 ")
    assert "websocket" not in capfd.readouterr().err.lower()


def test_no_caller_chooses_the_address_that_is_recorded() -> None:
    with caller(ServerLimits()) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 10.9.8.7\r\nConnection: close\r\n\r\n")
        answered = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert b"127.0.0.1" in answered
    assert b"10.9.8.7" not in answered


def test_a_plain_install_names_the_extra(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"to": "ada", "secret_env": "DOOR_SECRET"}
    door = resume("door", model={"key": "door"})
    make_org(base, resume("ada"), door, models={"door": {"provider": "http", "options": options}})
    monkeypatch.setenv("DOOR_SECRET", "whsec_" + "c2VjcmV0" * 4)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    message = "the HTTP server of channels needs the packages starlette and uvicorn"
    with (
        pytest.raises(UsageError, match=message) as error,
        run_channel_server(base, port=0, stop=threading.Event(), report=lambda _: None),
    ):
        pass
    assert error.value.hint == "pip install 'lemming-engine[serve]'"
    with pytest.raises(UsageError, match="/healthz needs"), serve_health(0, lambda _: Health(True, {}), base):
        pass
