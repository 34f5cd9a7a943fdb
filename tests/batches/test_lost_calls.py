"""What a kill takes along of a batch counts as spent only if it went out, and once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from batch_server import BatchServer

from lemming.engine import run_once
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.ledger import read_state
from lemming.testing import Crash, journal_lines, make_org, resume

AGENTS = ("ada", "bob", "cyd")
GATE = {"at": "spend", "calls": 9, "per": "agent", "then": "block"}


@pytest.fixture
def org(base: Path, server: BatchServer) -> Path:
    """Three agents with a limit each, and a model with a batch API."""
    pytest.importorskip("lemming.capabilities.gates.gate_format")
    options = {"base_url": f"{server.url}/v1", "batches": True}
    independent: dict[str, Any] = {"model": {"key": "batchy"}, "permissions": {"read_outboxes": [], "tools": []}}
    models = {"batchy": {"provider": "openai", "model": "m", "options": options}}
    return make_org(base, *(resume(name, **independent) for name in AGENTS), models=models, org={"gates": [GATE]})


def die_at(org: Path, kind: str, agent: str = "") -> None:
    """Run until an event of this kind, and die there."""

    def die(event: Event) -> None:
        if event.kind == kind and agent in ("", getattr(event, "agent", "")):
            raise Crash

    with pytest.raises(Crash):
        run_once(org, batch=True, notify=die)


def lost_calls(org: Path) -> list[int]:
    """Finish the tick, and return how many calls each agent lost."""
    assert [turn.status for turn in run_once(org, batch=True).turns] == ["done"] * 3
    return [read_state(org, name).lost.calls for name in AGENTS]


def test_a_call_that_waited_for_a_batch_and_never_went_out_costs_nothing(org: Path, server: BatchServer) -> None:
    for _ in range(2):
        die_at(org, "model_asked", "cyd")
    assert server.batches == {}
    assert lost_calls(org) == [0, 0, 0]


def test_a_batch_that_is_waited_for_over_several_kills_is_no_lost_call(org: Path, server: BatchServer) -> None:
    server.looks = 1000
    for _ in range(3):
        die_at(org, "batch_waiting")
    server.looks = 1
    assert lost_calls(org) == [0, 0, 0]
    assert len(server.batches) == 1


def test_a_call_that_goes_live_after_its_batch_is_recorded_once_more(org: Path, server: BatchServer) -> None:
    server.outcomes["bob"] = "expired"
    assert lost_calls(org) == [0, 0, 0]
    kinds = [(line["type"], line.get("agent")) for line in journal_lines(org, 1)]
    live = kinds[kinds.index(("batch_ended", None)) :]
    assert live.count(("model_reserved", "bob")) == 1
    assert kinds.count(("model_reserved", "ada")) == 1


def test_what_a_batch_may_cost_is_on_the_disk_before_it_is_announced(org: Path, server: BatchServer) -> None:
    stop = threading.Event()
    run_once(org, batch=True, notify=lambda event: stop.set() if event.kind == "batch_sent" else None, stop=stop)
    kinds = [line["type"] for line in journal_lines(org, 1)]
    assert kinds[: kinds.index("batch_announced")].count("model_reserved") == 3
