"""What a person is given until a moment: no number of ticks takes it away, only time does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked import ask, person, prompts

from lemming.capabilities.gates.gate_format import Gate
from lemming.engine import ticks
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.files.fast_decoder import TypeMismatch
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.memory import list_memories
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.testing import FrozenClock, make_org, resume, say

Json = dict[str, Any]
WRITE = {"outbox_entries": [], "tool_calls": [{"tool": "memory_write", "args": {"key": "x", "value": 1}}]}
DONE = say("done", kind="response")


def org(base: Path, expires: Any, parallel: int = 8) -> Path:
    gate = {"at": "call", "tool": "memory_write", "then": "ask", "persons": ["human"], "expires": expires}
    return make_org(
        base,
        person(),
        *(resume(name, schedule={"wake": "addressed"}, gates=[gate]) for name in ("ann", "bob")),
        resume("busy"),
        script=[
            {"contains": "REFUSED", "reply": say("refused", kind="response")},
            {"contains": "go", "reply": {**WRITE, "memory_updates": [], "notes": ""}},
            {"reply": DONE},
        ],
        models={"human": {"provider": "human"}},
        org={"max_parallel": parallel},
    )


def run(base: Path, clock: FrozenClock, number: int) -> list[TickReport]:
    return list(ticks(base, clock=clock, interval_s=0, max_ticks=number))


def asked_of_human(base: Path, name: str = "ann") -> OutboxEntry:
    (found,) = [it for it in read_outbox_entries(base, name) if it.kind == "request"]
    return found


def approve(base: Path, request: OutboxEntry, at: str) -> None:
    payload = {"reply_to": request.id, "target": request.agent, "decision": "approve"}
    write_person_entry(base, "human", tick=load_tick(base), kind="response", payload=payload, tags=[], created_at=at)


@pytest.mark.parametrize("parallel", [1, 8])
def test_it_outlasts_any_number_of_ticks_and_ends_with_its_time(base: Path, parallel: int) -> None:
    org(base, "2h", parallel)
    clock = FrozenClock()
    ask(base, "ann", "go")
    run(base, clock, 40)
    assert asked_of_human(base).payload["not_after"] == "2026-01-01T02:00:00.000Z"
    assert read_state(base, "ann").requests[0].open_sub_requests
    clock.advance(2 * 3600)
    run(base, clock, 1)
    assert read_state(base, "ann").requests[0].open_sub_requests
    clock.advance(1)
    run(base, clock, 1)
    shown = prompts(base, journal_ticks(base)[-1])["ann"]
    assert "nobody answered by 2026-01-01T02:00:00.000Z" in shown
    assert list_memories(base, "ann") == []
    assert [it.tick for it in replay_ticks(base, journal_ticks(base))] == journal_ticks(base)  # all come out the same


def test_the_passing_of_time_alone_wakes_who_has_waited_at_rest(base: Path) -> None:
    org(base, "2h")
    clock = FrozenClock()
    ask(base, "ann", "go")
    engine = ticks(base, clock=clock, interval_s=0, max_ticks=40)
    for _ in range(20):
        next(engine)
    assert "waits for human" in [turn.reason for turn in next(engine).turns]
    clock.advance(2 * 3600 + 1)
    assert "nobody answered by 2026-01-01T02:00:00.000Z" in prompts(base, next(engine).tick)["ann"]


@pytest.mark.parametrize(
    ("written", "counts"), [("2026-01-01T01:59:59.000Z", True), ("2026-01-01T02:00:01.000Z", False), ("", False)]
)
def test_a_decision_counts_that_was_written_in_time_though_no_tick_ran_before_it_was_over(
    base: Path, written: str, counts: bool
) -> None:
    org(base, "2h")
    clock = FrozenClock()
    ask(base, "ann", "go")
    run(base, clock, 2)
    approve(base, asked_of_human(base), written)
    clock.advance(3 * 3600)
    run(base, clock, 1)
    assert list_memories(base, "ann") == (["x"] if counts else [])


@pytest.mark.parametrize("expires", ["2 fortnights", "", 0, -3])
def test_what_is_no_time_is_no_gate(expires: Any) -> None:
    with pytest.raises(TypeMismatch) as wrong:
        Gate(at="call", then="ask", expires=expires)
    assert wrong.value.at == "/expires"
