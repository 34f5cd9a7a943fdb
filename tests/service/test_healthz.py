"""`/healthz` says of a running engine what `lemming status --check --json` says, to this machine only."""

from __future__ import annotations

import http.client
import json
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from terminal import Lemming, read_until, start

from lemming.engine import run_once
from lemming.kernel.base.errors import CorruptState, UsageError
from lemming.operations.systemd_notify import Health, serve_health
from lemming.testing import make_org, resume


def ask(port: int, path: str = "/healthz", *, host: str = "", method: str = "GET") -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request(method, path, headers={"Host": host} if host else {})
    response = connection.getresponse()
    raw = response.read()
    connection.close()
    return response.status, json.loads(raw) if raw.startswith(b"{") else {}


@contextmanager
def serving(look: Callable[[dict[str, str]], Health]) -> Iterator[int]:
    with tempfile.TemporaryDirectory() as base, serve_health(0, look, Path(base)) as port:
        yield port


def well(_: dict[str, str]) -> Health:
    return Health(True, {"tick": 3})


def test_a_running_engine_answers_what_status_check_says(base: Path, lemming: Lemming) -> None:
    script = [{"agent": "bob", "error": "AuthenticationFailed"}, {"reply": "{}"}]
    make_org(base, resume("ada"), resume("bob"), script=script)
    run_once(base)
    with start("-C", str(base), "run-forever", "--interval", "3600", "--health", "0") as running:
        try:
            line = read_until(running.stderr, "/healthz")
            port = int(line.split("127.0.0.1:")[1].split("/")[0])
            read_until(running.stderr, "next is tick 3")
            status, facts = ask(port)
            checked = lemming("status", "--check", "--json")
            assert (status, checked.status) == (503, 1)
            assert {**facts, "findings": 0} == checked.objects[0]  # what a monitor needs not be told
            assert facts["engine"]["pid"] == running.pid
            assert {trouble["about"] for trouble in facts["troubles"]} == {"ada", "bob"}
            assert ask(port, "/healthz?max_age=soon")[0] == 400
            assert ask(port, "/healthz?age=1")[0] == 400
        finally:
            running.terminate()  # or a failed test would wait for it
        assert running.wait() == 0
    with pytest.raises(ConnectionRefusedError):
        ask(port)


def test_all_is_well_is_200() -> None:
    with serving(well) as port:
        assert ask(port) == (200, {"v": 1, "tick": 3})
        assert ask(port, method="HEAD") == (200, {})


def test_what_is_wrong_is_503_with_the_reason() -> None:
    def damaged(_: dict[str, str]) -> Health:
        raise CorruptState("cannot read the tick counter", where="tick.json")

    with serving(lambda _: Health(False, {"tick": 3})) as port:
        assert ask(port) == (503, {"v": 1, "tick": 3})
    with serving(damaged) as port:
        status, facts = ask(port)
        assert (status, facts["where"]) == (503, "tick.json")


def test_nothing_else_is_answered_and_no_other_name_is() -> None:
    with serving(well) as port:
        assert ask(port, "/")[0] == 404
        assert ask(port, "/healthz", host="evil.example")[0] == 421
        assert ask(port, "/healthz", host=f"localhost:{port}")[0] == 200
        assert ask(port, method="POST")[0] == 501


def test_the_address_is_this_machines_own() -> None:
    with serving(well) as port, socket.socket() as other:
        other.bind(("127.0.0.2", port))  # else it would be taken


def test_a_port_that_is_taken_is_said(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError), serve_health(port, well, base):
            pass
        ran = lemming("run-forever", "--health", str(port), "--max-ticks", "1")
        assert (ran.status, f"cannot listen on 127.0.0.1:{port}" in ran.err) == (2, True)


def test_secrets_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sesame-0123456789")
    from lemming.kernel.base.redaction.secrets import refresh

    refresh()
    with serving(lambda _: Health(False, {"reason": "no sesame-0123456789 today"})) as port:
        assert ask(port)[1]["reason"] == "no [redacted SOME_API_KEY] today"
