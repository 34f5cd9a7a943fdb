"""Calls wait for as long as a provider says that nothing remains, instead of being refused."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from watched_server import WatchedServer

from lemming.capabilities.hosted_models.anthropic_provider import AnthropicProvider
from lemming.capabilities.hosted_models.openai_provider import OpenAIProvider
from lemming.capabilities.hosted_models.rate_headers import limit_wait_s, rejection_wait_s
from lemming.engine import run_once
from lemming.kernel.base.errors import RateLimited, Unavailable
from lemming.kernel.llm.rate_limit import MAX_PAUSE_S, Limits, RateLimiter
from lemming.kernel.providers import Backend, LLMProvider, Reply, Request, RetryingLLMProvider
from lemming.testing import SkippingClock, journal_lines, make_org, resume

DATE = "Sun, 06 Nov 2050 08:49:37 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0),
        ({"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "20s"}, 0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20s"}, 20),
        ({"X-RateLimit-Remaining-Requests": "0", "X-RateLimit-Reset-Requests": "20s"}, 20),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "250ms"}, 0.25),
        ({"x-ratelimit-remaining-tokens-minute": "0", "x-ratelimit-reset-tokens-minute": "12.5"}, 12.5),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2551337407", "date": DATE}, 30),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2551337407000", "date": DATE}, 30),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2050-11-06T08:50:07Z",
                "date": DATE,
            },
            30,
        ),
        (
            {
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2050-11-06T08:49:00Z",  # over already
                "date": DATE,
            },
            0,
        ),
        (
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "2s",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "9s",
            },
            9,
        ),
        ({"x-ratelimit-remaining-requests": "0"}, 0),  # nobody says until when
        ({"x-ratelimit-remaining-requests": "none", "x-ratelimit-reset-requests": "20s"}, 0),
        (
            {
                "x-ratelimit-limit-requests": "0",  # there is no limit
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "20s",
            },
            0,
        ),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "soon"}, 0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1e999"}, 0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "-5"}, 0),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2050-11-06T08:50:07Z",  # after which answer?
            },
            0,
        ),
    ],
)
def test_what_headers_say_of_the_time_until_something_remains(headers: dict[str, str], seconds: float) -> None:
    assert limit_wait_s(headers) == seconds


def test_a_refused_call_is_told_to_wait_by_its_own_header_before_others() -> None:
    limits = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20s"}
    assert rejection_wait_s({"retry-after": "2", **limits}) == 2
    assert rejection_wait_s(limits) == 20
    assert rejection_wait_s({}) is None


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_an_answer_of_a_server_says_how_long_its_provider_rests(name: str, request_: Request) -> None:
    server = WatchedServer(headers={"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "30s"})
    server.start()
    makes: dict[str, LLMProvider] = {
        "openai": OpenAIProvider(base_url=f"{server.url}/v1"),
        "anthropic": AnthropicProvider(base_url=server.url),
    }
    assert makes[name].complete(request_).rest_s == 30
    server.stop()


# --- waiting -------------------------------------------------------------------------------------


class Resting(Backend):
    """A backend that says after each answer how long it rests; `asked` holds when it was asked for what."""

    keeps_deadline = True
    can_be_down = False

    def __init__(self, clock: SkippingClock, rests: list[float]) -> None:
        self.clock, self.rests = clock, rests
        self.asked: list[tuple[str, float]] = []

    def complete(self, request: Request) -> Reply:
        self.asked.append((request.model_name, round(self.clock.monotonic())))
        seconds = self.rests.pop(0) if self.rests else 0.0
        if seconds < 0:
            raise RateLimited("slow down", retry_after_s=-seconds)
        return Reply(text="", model="m", rest_s=seconds)


def paced(backend: Resting, **more: Any) -> RetryingLLMProvider:
    clock = backend.clock
    pace = RateLimiter("a provider", clock=clock.monotonic, pause=clock.pause)
    rest: dict[str, Any] = {"clock": clock.monotonic, "sleep": clock.pause, **more}
    return RetryingLLMProvider(backend, rate_limiter=pace, limits=Limits(max_concurrent=64), **rest)


def test_further_calls_of_the_model_wait_until_something_remains(request_: Request) -> None:
    backend = Resting(SkippingClock(), [30.0])
    provider = paced(backend)
    provider.complete(request_)
    provider.complete(request_._replace(model_name="other"))
    reply = provider.complete(request_)
    assert backend.asked == [("m", 0), ("other", 0), ("m", 30)]
    assert round(reply.waited_s) == 30


def test_the_wait_is_no_part_of_the_deadline(request_: Request) -> None:
    backend = Resting(SkippingClock(), [50.0])
    provider = paced(backend)
    provider.complete(request_._replace(deadline_s=60.0))
    provider.complete(request_._replace(deadline_s=60.0))
    assert backend.asked == [("m", 0), ("m", 50)]


def test_after_a_refusal_the_other_calls_wait_as_long_as_the_refused_one(request_: Request) -> None:
    backend = Resting(SkippingClock(), [-20.0])
    provider = paced(backend, attempts=1)
    with pytest.raises(RateLimited):
        provider.complete(request_)
    provider.complete(request_)
    assert backend.asked == [("m", 0), ("m", 20)]


def test_a_call_is_not_made_where_the_wait_is_longer_than_it_may_take(request_: Request) -> None:
    backend = Resting(SkippingClock(), [90.0])
    provider = paced(backend)
    provider.complete(request_)
    with pytest.raises(RateLimited, match="m allows no calls for 90 s") as caught:
        provider.complete(request_._replace(deadline_s=60.0))
    assert (len(backend.asked), caught.value.may_be_paid) == (1, False)
    assert caught.value.retry_after_s == pytest.approx(90, abs=5)


def test_a_provider_is_asked_again_after_an_hour_whatever_it_said(request_: Request) -> None:
    backend = Resting(SkippingClock(), [1e9])
    provider = paced(backend)
    provider.complete(request_)
    provider.complete(request_._replace(deadline_s=2 * MAX_PAUSE_S))
    assert backend.asked == [("m", 0), ("m", MAX_PAUSE_S)]


def run_with(headers: dict[str, str], base: Path) -> list[dict[str, Any]]:
    """Run a tick of two agents, one after the other; return its journal, without what takes time."""
    server = WatchedServer(headers=headers)
    server.start()
    entry = {"provider": "openai", "model": "m", "options": {"base_url": f"{server.url}/v1"}}
    names = [resume(name, model={"key": "m"}, permissions={}) for name in ("ada", "bob")]
    make_org(base, *names, models={"m": entry}, org={"executor": "serial", "durability": "off"})
    clock = SkippingClock()
    report = run_once(base, clock=clock)
    server.stop()
    assert [turn.status for turn in report.turns] == ["done", "done"]
    assert (clock.monotonic() >= 30) is bool(headers)
    passing = ("duration_ms", "took_ms", "model", "settings", "boot")  # and the server's port
    return [{key: it for key, it in line.items() if key not in passing} for line in journal_lines(base, 1)]


def test_what_headers_say_leaves_no_trace_in_the_journal(tmp_path: Path) -> None:
    says = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "30s"}
    assert run_with(says, tmp_path / "rests") == run_with({}, tmp_path / "goes-on")


def test_a_stop_ends_the_wait(request_: Request) -> None:
    backend, stop = Resting(SkippingClock(), [30.0]), threading.Event()
    provider = paced(backend, stop=stop)
    provider.complete(request_)
    stop.set()
    with pytest.raises(Unavailable, match="the engine is stopping"):
        provider.complete(request_)
    assert len(backend.asked) == 1
