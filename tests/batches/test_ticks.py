"""Ticks whose model calls go through a batch API: the engine, its journal, and what is promised of both."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_server import BatchServer

from lemming.capabilities.batches.batch_records import BatchWaiting
from lemming.engine import open_to_run, run_once, run_opened, ticks
from lemming.journal_tools.replay.tick_replay import replay_into, replay_ticks
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.turn_report import TickReport
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import Crash, journal_lines, make_org, resume, say

AGENTS = ("ada", "bob", "cyd")
PRICES = {"usd_per_million_input_tokens": 100, "usd_per_million_output_tokens": 1000}
DOLLARS_LIVE = (11 * 100 + 7 * 1000) / 1e6


@pytest.fixture
def server() -> Iterator[BatchServer]:
    """A server with both batch APIs."""
    server = BatchServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def org(base: Path, server: BatchServer) -> Path:
    """Three agents who read nobody, and a model with a batch API."""
    return make_org(base, *map(independent, AGENTS), models=models(server))


def independent(name: str) -> dict[str, Any]:
    return resume(name, model={"key": "batchy"}, permissions={"read_outboxes": [], "tools": []})


def models(server: BatchServer, **more: Any) -> dict[str, Any]:
    options = {"base_url": f"{server.url}/v1", "batches": True}
    return {"batchy": {"provider": "openai", "model": "m", "options": options, **PRICES, **more}}


def records(base: Path, *kinds: str) -> list[Json]:
    return [record for record in journal_lines(base, 1) if record["type"] in kinds]


def all_done(report: TickReport) -> bool:
    return report.is_complete and [turn.status for turn in report.turns] == ["done"] * 3


def test_a_batched_answer_costs_half_and_the_journal_says_why(org: Path, server: BatchServer) -> None:
    report = run_once(org, batch=True)
    assert all_done(report)
    assert [turn.cost_usd for turn in report.turns] == pytest.approx([DOLLARS_LIVE / 2] * 3)
    assert [record["batched"] for record in records(org, "model_replied")] == [True] * 3
    assert [turn.credits for turn in report.turns] == [1.0] * 3
    assert server.live == []


def test_the_price_of_a_batch_is_a_setting(base: Path, server: BatchServer) -> None:
    make_org(base, *map(independent, AGENTS), models=models(server, batch_price_factor=0.25))
    report = run_once(base, batch=True)
    assert [turn.cost_usd for turn in report.turns] == pytest.approx([DOLLARS_LIVE / 4] * 3)


def test_without_batch_calls_are_live_and_cost_the_full_price(org: Path, server: BatchServer) -> None:
    report = run_once(org)
    assert [turn.cost_usd for turn in report.turns] == pytest.approx([DOLLARS_LIVE] * 3)
    assert (len(server.live), server.batches) == (3, {})
    assert not any("batched" in record for record in records(org, "model_replied"))


def test_run_forever_batches_every_tick(org: Path, server: BatchServer) -> None:
    assert all(map(all_done, ticks(org, batch=True, interval_s=0, max_ticks=2)))
    assert (len(server.custom_ids), server.live) == (6, [])


def test_agents_who_read_nobody_are_one_batch(org: Path, server: BatchServer) -> None:
    run_once(org, batch=True)
    assert [sorted(sent.agents) for sent in server.batches.values()] == [list(AGENTS)]


def test_a_stop_leaves_the_batch_and_the_next_run_waits_for_it(org: Path, server: BatchServer) -> None:
    stop, server.looks = threading.Event(), 1000

    def stop_when_it_waits(event: Event) -> None:
        if isinstance(event, BatchWaiting):
            stop.set()

    assert not run_once(org, batch=True, notify=stop_when_it_waits, stop=stop).is_complete
    server.looks = 1
    assert all_done(run_once(org, batch=True))
    assert sorted(server.custom_ids) == sorted(set(server.custom_ids))
    assert (len(server.custom_ids), server.live) == (3, [])


def test_a_batch_is_waited_for_by_a_run_that_sends_none(org: Path, server: BatchServer) -> None:
    die_at(org, server, "batch_sent")
    sent = len(server.custom_ids)
    assert all_done(run_once(org))
    assert (len(server.custom_ids), len(server.live)) == (sent, 3 - sent)


def test_no_number_of_crashes_while_it_waits_loses_the_batch(org: Path, server: BatchServer) -> None:
    for _ in range(5):
        die_at(org, server, "batch_waiting")
    assert all_done(run_once(org, batch=True))
    assert (len(server.custom_ids), server.live) == (3, [])


def costs_recorded(base: Path) -> list[tuple[str, float]]:
    records = journal_lines(base, 1)
    return sorted((record["agent"], record["cost_usd"]) for record in records if "cost_usd" in record)


def test_a_replay_comes_to_the_same_costs(org: Path, server: BatchServer, tmp_path: Path) -> None:
    server.outcomes["bob"] = "expired"
    costs = [turn.cost_usd for turn in run_once(org, batch=True).turns]
    assert costs == pytest.approx([DOLLARS_LIVE / 2, DOLLARS_LIVE, DOLLARS_LIVE / 2])
    assert [replayed.turns for replayed in replay_ticks(org, [1])] == [3]
    assert [replayed.turns for replayed in replay_into(org, tmp_path / "again", [1])] == [3]
    assert costs_recorded(tmp_path / "again") == costs_recorded(org)


@pytest.mark.parametrize("missing", [["bob"], ["ada", "cyd"], [*AGENTS]])
def test_calls_that_the_results_lack_go_live_once_though_the_engine_dies_over_them(
    org: Path, server: BatchServer, missing: list[str]
) -> None:
    server.outcomes = dict.fromkeys(missing, "missing")
    die_at(org, server, "batch_ended", looks=1)
    assert all_done(run_once(org, batch=True))
    assert (len(server.custom_ids), len(server.live)) == (3, len(missing))
    batched = [record["agent"] for record in records(org, "model_replied") if record.get("batched")]
    assert sorted(batched) == sorted({*AGENTS} - {*missing})
    ended = records(org, "batch_ended")[-1]
    assert (ended["replies"], ended["live"]) == (3 - len(missing), len(missing))
    assert "missing in the results" in ended["problem"]
    assert [replayed.turns for replayed in replay_ticks(org, [1])] == [3]
    assert len(server.live) == len(missing)


def die_at(org: Path, server: BatchServer, kind: str, *, looks: int = 1000) -> None:
    """Run until an event of this kind, and die there."""
    server.looks = looks

    def die(event: Event) -> None:
        if event.kind == kind:
            raise Crash

    with pytest.raises(Crash):
        run_once(org, batch=True, notify=die)
    server.looks = 1


@pytest.mark.parametrize(("limit", "repairs", "made"), [(2, 0, 2), (2, 1, 2), (6, 1, 3)])
def test_a_limit_holds_for_calls_that_wait_for_a_batch(
    base: Path, server: BatchServer, limit: int, repairs: int, made: int
) -> None:
    """Turns that share a limit are taken one after another: each has a batch of its own."""
    pytest.importorskip("lemming.capabilities.gates.gate_format")
    gate = {"at": "spend", "calls": limit, "per": "organisation", "then": "block"}
    agents = [{**independent(name), "turn": {"repairs": repairs, "max_steps": 1}} for name in AGENTS]
    make_org(base, *agents, models=models(server), org={"gates": [gate]})
    report = run_once(base, batch=True)
    assert [turn.calls for turn in report.turns] == [1, 1, 1][:made] + [0] * (3 - made)
    assert len(server.batches) == made
    assert server.live == []


def test_the_wait_for_a_batch_is_no_part_of_a_turns_time_for_its_calls_either(base: Path, server: BatchServer) -> None:
    """The second wait moves the end that the first call was made under."""
    now = 0.0

    def wait_an_hour(event: Event) -> None:
        nonlocal now
        now += 3600.0 if event.kind == "batch_sent" else 0.0

    server.text = json.dumps(say("", tool_calls=[{"tool": "memory_read", "args": {"key": "k"}}]))
    ada = {**independent("ada"), "turn": {"deadline_s": 10.0, "max_steps": 3}}
    ada["permissions"] = {"read_outboxes": [], "tools": ["memory_read"]}
    make_org(base, ada, models=models(server))
    opened = {"command": "test", "clock": None, "notify": wait_an_hour, "stop": None, "batch": True}
    with open_to_run(base, **opened) as runtime:  # type: ignore[arg-type]
        runtime.monotonic = lambda: now
        run_opened(runtime, 1, advance=True)
    outputs = [record["output"] for record in records(base, "tool_finished")]
    assert len(server.batches) == 3
    assert [output for output in outputs if "not called" in output] == []


def test_the_turns_of_one_agent_that_are_taken_at_once_are_one_batch(base: Path, server: BatchServer) -> None:
    asked = {"permissions": {"read_outboxes": ["human"], "tools": []}, "turn": {"take": "one", "requests": 3}}
    make_org(
        base,
        resume("ada", model={"key": "batchy"}, **asked),
        resume("human", model={"key": "human"}),
        models={**models(server), "human": {"provider": "human"}},
    )
    for number in range(3):
        told = {"text": f"question {number}", "target": "ada", "conversation": str(number)}
        write_person_entry(base, "human", tick=1, kind="request", payload=told, tags=[], created_at="")
    report = run_once(base, batch=True)
    assert [turn.turn for turn in report.turns if turn.agent == "ada"] == [0, 1, 2]
    sent = [[item["custom_id"] for item in it.items] for it in server.batches.values()]
    assert len(sent[0]) == 3, sent
