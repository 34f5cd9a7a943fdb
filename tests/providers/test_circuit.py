"""Circuit breakers: opening, probing, closing, and their one file."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.errors import (
    AuthenticationFailed,
    CircuitOpen,
    ProviderError,
    RateLimited,
    TimedOut,
    Unavailable,
)
from lemming.kernel.files import fs
from lemming.kernel.llm.circuit_breaker import Circuit, Circuits, circuit_name
from lemming.testing import FrozenClock


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def circuit(tmp_path: Path, clock: FrozenClock) -> Circuit:
    return Circuits(tmp_path, clock).get_circuit("openai")


def fail(circuit: Circuit, *errors: ProviderError) -> None:
    """Let calls through the circuit that fail with these errors."""
    for error in errors:
        with pytest.raises(type(error)), circuit.guard():
            raise error


def succeed(circuit: Circuit) -> None:
    with circuit.guard():
        pass


def open_circuit(circuit: Circuit) -> None:
    fail(circuit, *(Unavailable("HTTP 503") for _ in range(5)))


def is_open(circuit: Circuit) -> bool:
    """Return whether a call is refused; the call itself shows nothing."""
    try:
        with circuit.guard():
            raise RateLimited("later")
    except CircuitOpen:
        return True
    except RateLimited:
        return False


def test_five_failures_in_a_row_open_it_for_a_minute(circuit: Circuit, clock: FrozenClock) -> None:
    fail(circuit, Unavailable("1"), TimedOut("2"), Unavailable("3"), TimedOut("4"))
    assert not is_open(circuit)
    fail(circuit, Unavailable("5"))
    clock.advance(59)
    assert is_open(circuit)
    clock.advance(1)
    assert not is_open(circuit)


def test_the_refusal_says_until_when_and_why_and_what_to_do(circuit: Circuit) -> None:
    open_circuit(circuit)
    with pytest.raises(CircuitOpen) as caught:
        succeed(circuit)
    assert "until 2026-01-01T00:01:00.000Z" in caught.value.message
    assert "Unavailable: HTTP 503" in caught.value.message
    assert ".lemming/circuits.json" in caught.value.hint
    assert not caught.value.is_retryable


def test_a_success_starts_the_count_again(circuit: Circuit) -> None:
    fail(circuit, *(Unavailable("down") for _ in range(4)))
    succeed(circuit)
    fail(circuit, *(Unavailable("down") for _ in range(4)))
    assert not is_open(circuit)


def test_errors_of_a_backend_that_is_up_do_not_count(circuit: Circuit) -> None:
    fail(circuit, *(error for _ in range(5) for error in (RateLimited("slow"), AuthenticationFailed("key"))))
    assert not is_open(circuit)


def test_one_probe_at_a_time(circuit: Circuit, clock: FrozenClock) -> None:
    open_circuit(circuit)
    clock.advance(60)
    with circuit.guard():
        assert is_open(circuit)
    assert not is_open(circuit)


def test_a_probe_that_shows_nothing_leaves_the_next_call_to_be_the_probe(circuit: Circuit, clock: FrozenClock) -> None:
    open_circuit(circuit)
    clock.advance(60)
    fail(circuit, RateLimited("slow down"))
    with circuit.guard():
        assert is_open(circuit)


def test_each_failed_probe_doubles_the_time_up_to_a_quarter_of_an_hour(circuit: Circuit, clock: FrozenClock) -> None:
    open_circuit(circuit)
    for seconds in (60, 120, 240, 480, 900, 900):
        clock.advance(seconds - 1)
        assert is_open(circuit)
        clock.advance(1)
        fail(circuit, Unavailable("still down"))


def test_a_call_that_was_under_way_when_it_opened_does_not_lengthen_it(circuit: Circuit, clock: FrozenClock) -> None:
    with contextlib.suppress(Unavailable), circuit.guard():
        open_circuit(circuit)
        raise Unavailable("late")
    clock.advance(60)
    assert not is_open(circuit)


def test_it_survives_a_restart(circuit: Circuit, tmp_path: Path, clock: FrozenClock) -> None:
    open_circuit(circuit)
    assert is_open(Circuits(tmp_path, clock).get_circuit("openai"))
    assert not is_open(Circuits(tmp_path, clock).get_circuit("anthropic"))


def test_the_count_survives_a_restart(tmp_path: Path, clock: FrozenClock) -> None:
    for _ in range(5):
        fail(Circuits(tmp_path, clock).get_circuit("openai"), Unavailable("down"))
    assert is_open(Circuits(tmp_path, clock).get_circuit("openai"))


def test_deleting_the_file_closes_it_at_once(circuit: Circuit, tmp_path: Path) -> None:
    open_circuit(circuit)
    (tmp_path / ".lemming/circuits.json").unlink()
    assert not is_open(circuit)


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"openai": {"failures": "many"}}', b"\xff"])
def test_an_unreadable_file_means_closed(circuit: Circuit, tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".lemming").mkdir()
    (tmp_path / ".lemming/circuits.json").write_bytes(content)
    assert not is_open(circuit)


def test_the_file_is_written_only_when_something_changes(circuit: Circuit, tmp_path: Path) -> None:
    changes: list[str] = []
    with fs.observe_changes(lambda operation, path: changes.append(path)):
        succeed(circuit)
        assert changes == []
        fail(circuit, Unavailable("down"))
        assert ".lemming/circuits.json" in changes
    succeed(circuit)
    assert json.loads((tmp_path / ".lemming/circuits.json").read_bytes()) == {}


def test_a_disk_that_refuses_the_file_does_not_end_a_call(circuit: Circuit, tmp_path: Path) -> None:
    (tmp_path / ".lemming").write_text("a file stands where the folder should be")
    fail(circuit, Unavailable("down"))


def test_a_clock_that_was_set_back_does_not_hold_it_open(circuit: Circuit, clock: FrozenClock) -> None:
    open_circuit(circuit)
    clock.advance(-86_400)
    assert not is_open(circuit)


def test_the_file_is_plain(circuit: Circuit, tmp_path: Path, clock: FrozenClock) -> None:
    open_circuit(circuit)
    clock.advance(60)
    assert json.loads((tmp_path / ".lemming/circuits.json").read_bytes()) == {
        "openai": {
            "failures": 5,
            "openings": 1,
            "open_until": timestamp(clock.now()),
            "reason": "Unavailable: HTTP 503",
        }
    }


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "openai"),
        ({"base_url": "http://10.0.0.1:8000/v1"}, "openai http://10.0.0.1:8000/v1"),
        ({"base_url": "https://user:password@host/v1?key=secret"}, "openai https://host/v1"),
        ({"host": "gpu:11434"}, "openai gpu:11434"),
        ({"command": ["claude"]}, "openai claude"),
        ({"command": ["claude", "-p"]}, "openai claude (7fede808)"),
    ],
)
def test_a_circuit_is_named_after_provider_and_address(options: dict[str, object], name: str) -> None:
    assert circuit_name("openai", options) == name
