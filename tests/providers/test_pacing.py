"""Calls wait until their backend has room for them, in order, for as long as it takes."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from patience import PATIENCE_S

from lemming.kernel.base.errors import ProviderError, Unavailable
from lemming.kernel.llm.rate_limit import Limits, RateLimiter
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import Backend, Reply, Request, RetryingLLMProvider, register_provider
from lemming.kernel.tick.runtime import Runtime


class Time:
    """Time that passes only while somebody waits. `then` happens during the first wait."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.now_s, self.waits, self.then = 1000.0, 0, then

    def clock(self) -> float:
        return self.now_s

    def wait(self, place: threading.Condition, seconds: float | None) -> None:
        self.now_s += seconds or 0
        self.waits += 1
        if self.waits == 1:
            place.release()
            self.then()
            place.acquire()

    def pace(self) -> RateLimiter:
        return RateLimiter("a backend", clock=self.clock, wait=self.wait)


@pytest.fixture
def question() -> Request:
    """10 tokens in, at most 90 out, within five minutes."""
    prompt = [{"role": "user", "content": "x" * 40}]
    return Request(model_name="m", messages=prompt, max_output_tokens=90, deadline_s=300.0)


def reply_of(tokens: int) -> Reply:
    return Reply(text="", input_tokens=1, output_tokens=tokens - 1)


@contextlib.contextmanager
def turn(
    pace: RateLimiter, limits: Limits, request: Request, stop: threading.Event | None = None
) -> Iterator[Callable[[Reply], None]]:
    """Run one call in the block; call what is yielded with the reply."""
    with pace.acquire(limits, request, stop=stop or threading.Event()) as sent:
        yield lambda reply: pace.record_usage(sent, request, reply)


def times(time: Time, pace: RateLimiter, limits: Limits, request: Request, *, replies: list[Reply]) -> list[float]:
    """Return when each of several calls, one after another, went off, in seconds from the start."""
    began, went = time.now_s, []
    for reply in replies:
        with turn(pace, limits, request) as settle:
            went.append(time.now_s - began)
            settle(reply)
    return went


def test_no_more_requests_go_in_any_minute_than_the_line_allows(question: Request) -> None:
    time = Time()
    limits = Limits(requests_per_minute=2)
    assert times(time, time.pace(), limits, question, replies=[reply_of(1)] * 5) == [0, 0, 60, 60, 120]


def test_the_minute_slides(question: Request) -> None:
    time = Time()
    pace, limits = time.pace(), Limits(requests_per_minute=2)
    times(time, pace, limits, question, replies=[reply_of(1)])
    time.now_s += 40
    assert times(time, pace, limits, question, replies=[reply_of(1)] * 3) == [0, 20, 60]


def test_tokens_count_as_the_replies_say(question: Request) -> None:
    time = Time()
    replies = [reply_of(50), reply_of(50), reply_of(100), reply_of(1)]
    went = times(time, time.pace(), Limits(tokens_per_minute=200), question, replies=replies)
    assert went == [0, 0, 0, 60]


def test_a_call_under_way_counts_with_the_longest_answer_it_may_get(question: Request) -> None:
    time = Time()
    pace, limits = time.pace(), Limits(tokens_per_minute=150)
    with turn(pace, limits, question) as settle:
        assert times(time, pace, limits, question, replies=[reply_of(50)]) == [60]
        time.now_s += 60
    with turn(pace, limits, question) as settle:
        settle(reply_of(50))
        assert times(time, pace, limits, question, replies=[reply_of(1)]) == [0]


def test_a_call_that_failed_goes_on_counting_with_what_it_may_have_used(question: Request) -> None:
    time = Time()
    pace, limits = time.pace(), Limits(tokens_per_minute=150)
    with pytest.raises(Unavailable), turn(pace, limits, question):
        raise Unavailable("cut off")
    assert times(time, pace, limits, question, replies=[reply_of(1)]) == [60]


def test_a_call_larger_than_the_limit_goes_alone(question: Request) -> None:
    time = Time()
    replies = [reply_of(1), reply_of(1)]
    assert times(time, time.pace(), Limits(tokens_per_minute=50), question, replies=replies) == [0, 60]


def test_setting_stop_ends_a_wait(question: Request) -> None:
    stop = threading.Event()
    time = Time(then=stop.set)
    pace, limits = time.pace(), Limits(requests_per_minute=1)
    times(time, pace, limits, question, replies=[reply_of(1)])
    with pytest.raises(Unavailable, match="stopping"), turn(pace, limits, question, stop):
        pass
    assert time.waits == 1


def test_lines_of_one_backend_share_the_count_and_keep_their_own_limits(question: Request) -> None:
    time = Time()
    pace = time.pace()
    few, many = Limits(requests_per_minute=1), Limits(requests_per_minute=3)
    assert times(time, pace, many, question, replies=[reply_of(1)] * 2) == [0, 0]
    assert times(time, pace, few, question, replies=[reply_of(1)]) == [60]
    assert times(time, pace, many, question, replies=[reply_of(1)]) == [0]


class Crowded(Backend):
    """Answers when `room` calls are there together, and keeps how many there ever were at once."""

    keeps_deadline = True

    def __init__(self, room: int) -> None:
        self.together = threading.Barrier(room, timeout=PATIENCE_S)
        self.lock, self.now, self.most = threading.Lock(), 0, 0

    def complete(self, request: Request) -> Reply:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.together.wait()
        with self.lock:
            self.now -= 1
        return Reply(text="here")


def test_no_more_calls_are_under_way_than_the_line_allows(question: Request) -> None:
    backend = Crowded(2)
    paced = RetryingLLMProvider(backend, rate_limiter=RateLimiter(), limits=Limits(max_concurrent=2))
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(paced.complete, [question] * 12))
    assert (len(replies), backend.most) == (12, 2)


def test_a_wait_for_room_is_not_counted_against_the_deadline(question: Request) -> None:
    time = Time()
    hasty = question._replace(deadline_s=1)
    paced = RetryingLLMProvider(
        Plain(), rate_limiter=time.pace(), limits=Limits(requests_per_minute=1), clock=time.clock, sleep=pytest.fail
    )
    assert [paced.complete(hasty).waited_s for _ in range(3)] == [0, 60, 60]
    assert time.now_s == 1120


def test_each_attempt_counts_as_a_request(question: Request) -> None:
    class Down(Backend):
        keeps_deadline = True

        def complete(self, request: Request) -> Reply:
            raise Unavailable("down", retry_after_s=0)

    time = Time()
    paced = RetryingLLMProvider(
        Down(), attempts=3, rate_limiter=time.pace(), limits=Limits(requests_per_minute=2), clock=time.clock,
        sleep=lambda _: None,
    )  # fmt: skip
    with pytest.raises(Unavailable):
        paced.complete(question)
    assert time.now_s == 1060


class Plain(Backend):
    """Answers at once."""

    keeps_deadline = True

    def complete(self, request: Request) -> Reply:
        return reply_of(100)


@pytest.mark.parametrize("setting", ["requests_per_minute", "tokens_per_minute"])
def test_a_limit_in_models_json_holds_for_all_calls_of_the_engine(
    setting: str, question: Request, tmp_path: Path
) -> None:
    register_provider("plain", Plain)
    runtime = Runtime(Organisation(tmp_path))
    entry = ModelEntry(provider="plain", **{setting: 1})
    runtime.complete(entry, question)
    runtime.stop.set()  # else the next one would wait for a minute
    with pytest.raises(Unavailable, match="stopping"):
        runtime.complete(dataclasses.replace(entry, attempts=2), question)
    runtime.complete(dataclasses.replace(entry, **{setting: None}), question)


def test_a_limit_on_calls_at_once_in_models_json_holds(question: Request, tmp_path: Path) -> None:
    backend = Crowded(3)

    class Shared(Backend):
        keeps_deadline = True

        def complete(self, request: Request) -> Reply:
            return backend.complete(request)

    register_provider("shared", Shared)
    runtime, entry = Runtime(Organisation(tmp_path)), ModelEntry(provider="shared", max_concurrent=3)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: runtime.complete(entry, question), range(9)))
    assert backend.most == 3


def test_a_backend_that_works_on_one_call_at_a_time_makes_nobody_miss_the_deadline(
    question: Request, tmp_path: Path
) -> None:
    class OneAtATime(Crowded):
        max_concurrent = 1

        def __init__(self) -> None:
            super().__init__(1)
            made.append(self)

    made: list[Crowded] = []
    register_provider("one-at-a-time", OneAtATime)
    runtime, entry = Runtime(Organisation(tmp_path)), ModelEntry(provider="one-at-a-time")
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: runtime.complete(entry, question), range(20)))
    assert (len(replies), made[0].most) == (20, 1)
    runtime.complete(dataclasses.replace(entry, max_concurrent=2), question)


def test_a_reply_tells_how_long_all_its_attempts_waited_for_room(question: Request) -> None:
    class Shaky(Plain):
        failures = 2

        def complete(self, request: Request) -> Reply:
            self.failures -= 1
            if self.failures >= 0:
                raise Unavailable("down", retry_after_s=0)
            return super().complete(request)

    time = Time()
    paced = RetryingLLMProvider(
        Shaky(), attempts=3, rate_limiter=time.pace(), limits=Limits(requests_per_minute=1), clock=time.clock,
        sleep=lambda _: None,
    )  # fmt: skip
    assert paced.complete(question).waited_s == 120


def test_a_call_whose_time_is_over_before_it_is_sent_is_not_paid(question: Request) -> None:
    with pytest.raises(ProviderError) as failed:
        RetryingLLMProvider(Plain(), attempts=1).complete(question._replace(deadline_s=0))
    assert failed.value.may_be_paid is False
