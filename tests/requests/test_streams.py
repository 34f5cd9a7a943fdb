"""What happens while something runs, taken event by event, in plain and in async programs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from asked import org_of
from patience import PATIENCE_S

import lemming
from lemming.client import event_stream
from lemming.kernel.base.errors import OrgBusy, UsageError
from lemming.kernel.journal.engine_events import Event, TickBegins, TickEnds
from lemming.kernel.journal.journal_records import ModelReplied, TurnEnded
from lemming.kernel.tick.tick_counter import load_tick
from lemming.operations.open_org import open_org
from lemming.testing import resume, say


@pytest.fixture
def org(base: Path) -> Path:
    script = [{"agent": "ada", "reply": say("four", kind="response")}]
    return org_of(base, resume("ada", schedule={"wake": "addressed"}), script=script)


def kinds(events: list[Event]) -> list[type]:
    return [type(it) for it in events if isinstance(it, TickBegins | ModelReplied | TurnEnded | TickEnds)]


def test_a_question_gives_what_happens_and_then_its_outcome(org: Path) -> None:
    stream = lemming.stream_ask(org, "ada", "two and two?")
    events = list(stream)
    first, *rest = kinds(events)
    assert (first, set(rest)) == (TickBegins, {*rest, ModelReplied, TickEnds})
    assert stream.result.value == "four"
    with pytest.raises(UsageError, match="already been read"):
        next(iter(stream))


def test_an_async_program_gets_the_same(org: Path) -> None:
    async def run() -> tuple[list[Event], object]:
        stream = lemming.stream_ask(org, "ada", "two and two?")
        return [event async for event in stream], stream.result.value

    events, value = asyncio.run(run())
    assert value == "four"
    assert ModelReplied in kinds(events)


def test_ticks_give_what_happens_and_then_the_last_report(org: Path) -> None:
    stream = lemming.stream_ticks(org, max_ticks=2, interval_s=0)
    with pytest.raises(UsageError, match="has not ended"):
        _ = stream.result
    ticks = [event.tick for event in stream if isinstance(event, TickBegins)]
    assert (ticks, stream.result and stream.result.tick) == ([1, 2], 2)


def test_who_leaves_the_loop_ends_the_run_and_the_tick_is_whole(org: Path) -> None:
    heard: list[Event] = []
    stopped = threading.Event()
    for event in lemming.stream_ticks(org, interval_s=0, notify=heard.append, stop=stopped):
        if isinstance(event, TickEnds):
            break
    assert not stopped.is_set()
    assert load_tick(org) == 1 + len([it for it in heard if isinstance(it, TickEnds) and it.report.is_complete])
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lemming-stream")]
    with lemming.stream_ticks(org, interval_s=0, max_ticks=9) as stream:
        next(iter(stream))
    lemming.ask(org, "ada", "is it free?", timeout_s=PATIENCE_S)


def test_an_async_loop_that_is_cancelled_ends_the_run(org: Path) -> None:
    async def first_of_each(begun: asyncio.Event) -> None:
        async for _ in lemming.stream_ticks(org, interval_s=0):
            begun.set()

    async def run() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(first_of_each(begun))
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    lemming.ask(org, "ada", "is it free?", timeout_s=PATIENCE_S)


def test_a_run_waits_for_who_is_far_behind(org: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MAX_BUFFERED", 1)
    stream = lemming.stream_ticks(org, max_ticks=3, interval_s=0)
    assert sum(isinstance(event, TickEnds) for event in stream) == 3


@pytest.mark.parametrize("how", ["for", "async for"])
def test_what_the_run_raises_is_raised_where_its_events_end(org: Path, how: str) -> None:
    async def drained() -> list[Event]:
        return [event async for event in lemming.stream_ticks(org, max_ticks=1)]

    with open_org(org, command="test"), pytest.raises(OrgBusy):
        asyncio.run(drained()) if how == "async for" else list(lemming.stream_ticks(org, max_ticks=1))


def test_nothing_runs_before_an_event_is_asked_for(org: Path) -> None:
    events: Iterator[Event] = iter(lemming.stream_ticks(org, max_ticks=1))
    assert load_tick(org) == 1
    assert isinstance(next(events), TickBegins)
    list(events)
    assert load_tick(org) == 2
