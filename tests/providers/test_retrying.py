"""Asking again: when, how long after, and when not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_server import FaultServer

from lemming.capabilities.hosted_models.openai_provider import OpenAIProvider
from lemming.kernel.base.errors import (
    AuthenticationFailed,
    CircuitOpen,
    ProviderError,
    RateLimited,
    RequestRejected,
    TimedOut,
    Unavailable,
)
from lemming.kernel.llm.circuit_breaker import Circuits
from lemming.kernel.providers import Backend, Reply, Request, RetryingLLMProvider
from lemming.testing import FrozenClock


class Flaky(Backend):
    """Raises the errors it is given, one a call, and then answers. Each call takes `takes_s`."""

    keeps_deadline = True
    takes_schema = True

    def __init__(self, *failures: Exception, time: Time | None = None, takes_s: float = 0.0) -> None:
        self.failures, self.time, self.takes_s = list(failures), time or Time(), takes_s
        self.deadlines: list[float] = []

    def complete(self, request: Request) -> Reply:
        self.deadlines.append(request.deadline_s)
        self.time.now_s += self.takes_s
        if self.failures:
            raise self.failures.pop(0)
        return Reply(text="at last")


class Time:
    """Time that passes only in pauses."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


def retrying(provider: Flaky, *, attempts: int = 4, jitter: Callable[[], float] = lambda: 0.0) -> RetryingLLMProvider:
    """A provider that retries in the given provider's own time."""
    time = provider.time
    return RetryingLLMProvider(provider, attempts=attempts, sleep=time.sleep, clock=time.clock, jitter=jitter)


def test_pauses_double(request_: Request) -> None:
    provider = Flaky(Unavailable("1"), TimedOut("2"), RateLimited("3"))
    patient = request_._replace(deadline_s=60)
    assert retrying(provider).complete(patient).text == "at last"
    assert provider.time.pauses == [1.0, 2.0, 4.0]


def test_a_pause_is_shortened_by_up_to_half(request_: Request) -> None:
    provider = Flaky(Unavailable("1"), Unavailable("2"))
    retrying(provider, jitter=lambda: 0.5).complete(request_._replace(deadline_s=60))
    assert provider.time.pauses == [0.75, 1.5]


def test_a_pause_is_as_long_as_the_server_asks(request_: Request) -> None:
    provider = Flaky(RateLimited("slow down", retry_after_s=2.5))
    retrying(provider).complete(request_)
    assert provider.time.pauses == [2.5]


def test_a_wait_that_would_outlast_the_deadline_is_given_up_at_once(request_: Request) -> None:
    provider = Flaky(RateLimited("slow down", retry_after_s=20))
    with pytest.raises(RateLimited, match="slow down"):
        retrying(provider).complete(request_._replace(deadline_s=5))
    assert provider.time.pauses == []


def test_the_deadline_holds_for_all_attempts_together(request_: Request) -> None:
    provider = Flaky(*(Unavailable("down") for _ in range(9)), takes_s=1.5)
    with pytest.raises(Unavailable):
        retrying(provider, attempts=9).complete(request_._replace(deadline_s=5))
    assert provider.deadlines == [5.0, 2.5]
    assert provider.time.now_s <= 105.0


@pytest.mark.parametrize("error", [AuthenticationFailed("no"), RequestRejected("no"), KeyError("bug")])
def test_an_error_that_asking_again_cannot_help_is_raised_at_once(error: Exception, request_: Request) -> None:
    provider = Flaky(error)
    with pytest.raises(ProviderError):
        retrying(provider).complete(request_)
    assert len(provider.deadlines) == 1


def test_the_last_error_is_raised_when_the_attempts_are_used_up(request_: Request) -> None:
    provider = Flaky(Unavailable("first"), RateLimited("second"), Unavailable("third"))
    with pytest.raises(RateLimited, match="second"):
        retrying(provider, attempts=2).complete(request_._replace(deadline_s=60))


def test_no_time_left_means_no_call(request_: Request) -> None:
    provider = Flaky()
    with pytest.raises(TimedOut):
        retrying(provider).complete(request_._replace(deadline_s=0.0))
    assert provider.deadlines == []


def test_stopping_the_engine_ends_a_pause(request_: Request) -> None:
    stop, provider = threading.Event(), Flaky(Unavailable("down"))
    waiting = RetryingLLMProvider(provider, stop=stop, sleep=lambda seconds: stop.set())
    with pytest.raises(Unavailable, match="stopping"):
        waiting.complete(request_)
    assert len(provider.deadlines) == 1


def test_a_stopped_engine_does_not_begin_to_wait(request_: Request) -> None:
    stop, provider = threading.Event(), Flaky(Unavailable("down"))
    stop.set()
    with pytest.raises(Unavailable, match="down"):
        RetryingLLMProvider(provider, stop=stop).complete(request_)


def test_it_answers_for_the_provider_inside() -> None:
    provider = retrying(Flaky())
    assert (provider.takes_schema, provider.is_person) == (True, False)
    assert provider.call("m", [], None) == "at last"


def test_two_failures_of_a_real_server_and_then_an_answer(faults: FaultServer, request_: Request) -> None:
    provider = RetryingLLMProvider(OpenAIProvider(base_url=f"{faults.url('503-twice')}/v1"), sleep=lambda seconds: None)
    assert provider.complete(request_).output_tokens == 7


def test_an_open_circuit_ends_the_attempts(request_: Request, tmp_path: Path) -> None:
    circuit = Circuits(tmp_path, FrozenClock()).get_circuit("x")
    provider = Flaky(*(Unavailable("down") for _ in range(9)))
    guarded = RetryingLLMProvider(
        provider, attempts=9, circuit=circuit, sleep=provider.time.sleep, clock=provider.time.clock
    )
    with pytest.raises(CircuitOpen, match="down"):
        guarded.complete(request_._replace(deadline_s=600))
    assert len(provider.deadlines) == 5
