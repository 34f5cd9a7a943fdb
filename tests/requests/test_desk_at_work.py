"""Seven agents at work on what a person asks, killed again and again: nothing is lost or done twice."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from asked import answers, ask, org_of, said

from lemming.engine import run_once
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines, resume, say, tree

QUIET = {"schedule": {"wake": "addressed"}}
AGENTS = ("desk", "researcher", "writer", "second", "critic", "billing", "human")
EVERYTHING = os.environ.get("LEMMING_CRASH_POINTS") == "all"
PERSON_SLEEPS = 4  # ticks until the person answers


def calls(*tools: tuple[str, str]) -> dict[str, Any]:
    made = [{"tool": tool, "args": {"message": message}} for tool, message in tools]
    return {"outbox_entries": [], "tool_calls": made, "memory_updates": [], "notes": ""}


SCRIPT = [
    {"agent": "desk", "contains": '"output": "', "reply": say("here you are", kind="response")},
    {"agent": "desk", "contains": "bill", "reply": calls(("hand_to_billing", "a bill"))},
    {"agent": "desk", "contains": "hard", "reply": calls(("ask_researcher", "facts"), ("ask_writer", "a text"))},
    {"agent": "desk", "reply": say("at once", kind="response")},
    {"agent": "researcher", "contains": '"output": "', "reply": say("checked facts", kind="response")},
    {"agent": "researcher", "reply": calls(("ask_critic", "is it so?"))},
    {"agent": "writer", "contains": '"output": "', "reply": say("a better text", kind="response")},
    {"agent": "writer", "reply": calls(("ask_second", "improve"), ("ask_critic", "good?"))},
    {"agent": "billing", "contains": '"output": "', "reply": say("paid", kind="response")},
    {"agent": "billing", "reply": calls(("ask_human", "may I pay?"))},
    {"reply": say("yes", kind="response")},
]


def make(base: Path, *, at_once: int) -> Path:
    def of(name: str, *team: str, **more: Any) -> dict[str, Any]:
        asks = {"team": {"ask": [*team], **more}} if team or more else {}
        return resume(name, turn={"take": "one"}, **asks, **QUIET)

    base.mkdir()
    org = org_of(
        base,
        of("desk", "researcher", "writer", hand_to=["billing"]),
        of("researcher", "critic"),
        of("writer", "second", "critic"),
        of("second"),
        of("critic"),
        of("billing", "human"),
        script=SCRIPT,
    )
    (org / "config/org.json").write_text(f'{{"max_parallel": {at_once}}}')
    return org


def person_acts(org: Path, tick: int, questions: list[str]) -> None:
    """Ask what is to be asked in this tick, and answer what has waited long enough."""
    for number, text in enumerate(questions):
        ask(org, "desk", text, conversation=f"{tick}/{number}")
    answered = answers(org, "human")
    for entry in read_outbox_entries(org, "billing"):
        if entry.kind == "request" and entry.id not in answered and entry.tick + PERSON_SLEEPS <= tick:
            ask(org, "billing", "yes", kind="response", reply_to=entry.id)


def work(org: Path, days: list[list[str]], ticks: int, seed: int | None) -> int:
    """Run so many ticks; with a seed, each dies at some of its changes of the disk. Return how often."""
    deaths, dice = 0, random.Random(seed)
    for tick in range(1, ticks + 1):
        person_acts(org, tick, days[tick - 1] if tick <= len(days) else [])
        while load_tick(org) == tick:
            if seed is None or dice.random() < 0.3:
                run_once(org, clock=FrozenClock())
                continue
            try:
                with crash_at(dice.randint(1, 60)):
                    run_once(org, clock=FrozenClock())
            except Crash:
                deaths += 1
    return deaths


def written(org: Path) -> dict[str, bytes]:
    """Return outboxes and ledgers."""
    return {path: raw for path, raw in tree(org).items() if "/outbox/" in path or path.endswith("turns.jsonl")}


def paid_calls(org: Path, ticks: int) -> Counter[tuple[int, str, int]]:
    lines = ((tick, line) for tick in range(1, ticks + 1) for line in journal_lines(org, tick))
    return Counter((tick, line["agent"], line["call"]) for tick, line in lines if line["type"] == "model_replied")


@pytest.mark.crash
@pytest.mark.parametrize("questions", [200] if EVERYTHING else [9])
def test_nothing_is_lost_or_done_twice_however_often_the_engine_dies(tmp_path: Path, questions: int) -> None:
    dice = random.Random(7)
    asked = [f"{dice.choice(('easy', 'hard', 'bill'))} {number}" for number in range(questions)]
    days = [asked[start : start + 3] for start in range(0, questions, 3)]
    ticks = 2 * questions + 30
    plain = make(tmp_path / "plain", at_once=1)
    work(plain, days, ticks, None)
    requests = {entry.id for entry in read_outbox_entries(plain, "human") if entry.kind == "request"}
    closed = Counter(
        payload["reply_to"] for name in AGENTS for kind, payload in said(plain, name) if kind == "response"
    )
    assert len(requests) == questions
    assert {closed[request] for request in requests} == {1}
    assert set(closed.values()) == {1}
    assert all(not read_state(plain, name).requests for name in AGENTS)
    more = ((2, 2), (64, None)) if EVERYTHING else ()
    for at_once, seed in ((1, 1), (8, 3), *more):
        org = make(tmp_path / f"{at_once}", at_once=at_once)
        assert work(org, days, ticks, seed) > 0 or seed is None
        assert written(org) == written(plain)
        assert max(paid_calls(org, ticks).values()) == 1
    spent = sum(read_state(plain, name).credits for name in AGENTS)
    assert spent == sum(paid_calls(plain, ticks).values())
