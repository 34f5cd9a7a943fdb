"""A call under way at a kill counts as spent: whatever happens, the bill is never above the limit."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lemming.capabilities.batches.batch_records import BatchSent
from lemming.capabilities.gates.spending_limit import AMOUNTS, SpendAmount
from lemming.capabilities.gates.tick_spending import ledger_amount, write_off_amount
from lemming.capabilities.pricing.prices import max_call_cost
from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_into, replay_ticks
from lemming.kernel.base.errors import Unavailable
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_records import ModelReserved
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.journal.write_offs import WriteOff
from lemming.kernel.llm.call_cost import max_input_tokens
from lemming.kernel.llm.retrying_provider import RetryingLLMProvider
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.kernel.tick.model_requests import Reservations
from lemming.kernel.turn.turn_values import TurnInputs
from lemming.testing import Crash, FrozenClock, SkippingClock, journal_lines, make_org, resume, say

EVERYTHING = os.environ.get("LEMMING_CRASH_POINTS") == "all"
MODEL = {
    "provider": "reserved_bank", "per_call": 1.5, "per_1k_output_tokens": 0.2, "max_output_tokens": 500,
    "usd_per_million_input_tokens": 3.0, "usd_per_million_output_tokens": 15.0, "attempts": 3,
}  # fmt: skip
WHOLE = ModelEntry(**MODEL)


class Bank(Backend):
    """A provider that bills every call that reaches it for all that it can cost, and does what it is told."""

    keeps_deadline, can_be_down = True, False
    bill = SpendAmount()
    told: Iterator[str] = iter(())

    def complete(self, request: Request) -> Reply:
        """Answer, break off, refuse, or take the engine along."""
        match next(Bank.told, "answers"):
            case "refuses":
                error = Unavailable("busy")
                error.may_be_paid = False
                raise error
            case what:
                worst = max_call_cost(WHOLE, max_input_tokens(request))
                assert worst.dollars is not None
                Bank.bill = Bank.bill.add(SpendAmount(worst.credits, worst.dollars, Decimal(1), Decimal(worst.tokens)))
        if what == "kills":
            raise Crash
        if what == "breaks":
            raise Unavailable("cut off")
        rest_s = 30.0 if what == "rests" else 0.0
        return Reply(json.dumps(say("paid")), max_input_tokens(request), request.max_output_tokens, rest_s=rest_s)


register_provider("reserved_bank", Bank)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryingLLMProvider, "_pause_s", lambda *_: 0.0)
    Bank.bill, Bank.told = SpendAmount(), iter(())


def limited(base: Path, **limit: Any) -> Path:
    gate = {"at": "spend", "then": "block", **limit}
    agents = [resume(name, model={"key": "bank"}) for name in ("ada", "bob")]
    return make_org(base, *agents, models={"bank": MODEL}, org={"gates": [gate], "max_attempts": 3})


def turns(base: Path) -> dict[str, TurnReport]:
    return {turn.agent: turn for turn in run_once(base, clock=FrozenClock()).turns}


def records(base: Path, tick: int, kind: str) -> list[dict[str, Any]]:
    return [line for line in journal_lines(base, tick) if line["type"] == kind]


def dies(base: Path) -> None:
    with pytest.raises(Crash):
        run_once(base, clock=FrozenClock())


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(9 if EVERYTHING else 1))
@pytest.mark.parametrize(
    "limit",
    [
        {"credits": 9, "per": "organisation"},
        {"dollars": 0.07, "per": "organisation", "window": {"ticks": 500}},
        {"calls": 4, "per": "agent"},
        {"tokens": 20_000, "per": "organisation"},
    ],
)
def test_however_often_the_engine_is_killed_the_bill_stays_below_the_limit(
    base: Path, limit: dict[str, Any], seed: int
) -> None:
    chance = random.Random(seed)
    Bank.told = (chance.choice(["kills", "breaks", "answers", "refuses"]) for _ in range(1000))
    limited(base, **limit)
    for _ in range(22):
        try:
            run_once(base, clock=FrozenClock())
        except Crash:
            continue
    agents = 2 if limit["per"] == "agent" else 1
    for key in limit.keys() & {*AMOUNTS}:
        most = Decimal(repr(limit[key])) * agents
        assert most / 2 < getattr(Bank.bill, key) <= most
    states = [read_state(base, name) for name in ("ada", "bob")]
    for counted in ("credits", "dollars", "tokens"):
        assert sum(getattr(ledger_amount(state), counted) for state in states) >= getattr(Bank.bill, counted)


def test_what_a_kill_took_along_is_told_and_counted_apart(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Bank.told = iter(["kills", "kills", "answers"])
    limited(base, credits=10, per="agent")
    dies(base)
    dies(base)
    ran = turns(base)["ada"]
    state = read_state(base, "ada")
    assert (ran.calls, state.credits, state.lost) == (1, 1.6, WriteOff(2, 3.2, state.lost.cost_usd, state.lost.tokens))
    assert ran.lost == state.lost.as_json() == records(base, 1, "turn_committed")[0]["lost"]
    assert "lost" not in read_state(base, "bob").as_json()
    assert run(["-C", str(base), "cost"]) == 0
    said = capsys.readouterr()
    assert "2 calls were sent and their answers never came" in said.out + said.err
    assert run(["-C", str(base), "cost", "--json"]) == 0
    total = json.loads(capsys.readouterr().out.splitlines()[-1])
    lost = {"calls": 2, "credits": 3.2, "cost_usd": state.lost.cost_usd, "tokens": state.lost.tokens}
    assert total["lost"] == lost
    assert run(["-C", str(base), "verify"]) == 0
    assert [it.turns for it in replay_ticks(base, [1])] == [2]
    assert [it.turns for it in replay_into(base, tmp_path / "again", [1])] == [2]
    assert read_state(tmp_path / "again", "ada") == state


def test_what_breaks_off_after_it_was_sent_is_counted_and_what_was_refused_is_not(base: Path) -> None:
    Bank.told = iter(["breaks", "refuses", "answers", "refuses", "refuses", "refuses"])
    limited(base, calls=3, per="agent")
    ran = turns(base)
    assert [turn.calls for turn in ran.values()] == [1, 0]
    assert [read_state(base, name).lost.calls for name in ("ada", "bob")] == [1, 0]
    assert [record["call"] for record in records(base, 1, "model_reserved")] == [0, 0, 0]
    Bank.told = iter(["breaks", "breaks", "breaks"])
    ran = turns(base)
    assert (ran["ada"].error, read_state(base, "ada").lost.calls) == ("LimitReached", 2)
    assert Bank.bill.calls == 6
    assert [turn.calls for turn in turns(base).values()] == [0, 0]


def test_a_turn_that_is_given_up_keeps_what_it_lost(base: Path) -> None:
    Bank.told = iter(["kills"] * 3)
    limited(base, credits=100, per="organisation")
    for _ in range(3):
        dies(base)
    ran = turns(base)["ada"]
    assert (ran.error, ran.lost and ran.lost["calls"], read_state(base, "ada").lost.calls) == ("Interrupted", 3, 3)


def test_a_call_that_waits_at_a_kill_because_the_provider_asked_for_a_pause_has_cost_nothing(base: Path) -> None:
    Bank.told, model = iter(["rests"]), {**MODEL, "max_concurrent": 4}
    gates = [{"at": "spend", "calls": 9, "per": "agent", "then": "block"}]
    agents = [resume(name, model={"key": "bank"}, permissions={"read_outboxes": []}) for name in ("ada", "bob")]
    make_org(base, *agents, models={"bank": model}, org={"gates": gates, "executor": "serial"})
    clock = SkippingClock()

    def die(seconds: float) -> None:
        raise Crash

    clock.pause = die  # type: ignore[method-assign]
    with pytest.raises(Crash):
        run_once(base, clock=clock)
    ended = {turn.agent: turn for turn in run_once(base, clock=SkippingClock()).turns}
    assert [ended[name].calls for name in ("ada", "bob")] == [1, 1]
    assert [read_state(base, name).lost.calls for name in ("ada", "bob")] == [0, 0]


def test_without_limits_nothing_is_reserved(base: Path) -> None:
    make_org(base, resume("ada", model={"key": "bank"}), models={"bank": MODEL})
    Bank.told = iter(["kills", "breaks"])
    dies(base)
    turns(base)
    assert not records(base, 1, "model_reserved")
    assert "lost" not in read_state(base, "ada").as_json()


@pytest.mark.parametrize(("call", "open_"), [(0, 1), (1, 2)])
def test_a_call_whose_batch_is_waited_for_is_not_another_one(call: int, open_: int) -> None:
    most: dict[str, Any] = {"key": "m", "credits": 1.0, "cost_usd": 0.5, "tokens": 1}
    reserved = [ModelReserved(agent="ada", call=it, **most) for it in (0, 0)]
    items = [{"custom_id": "x", "agent": "ada", "call": call}]
    batch = BatchSent(batch="b", label="l", provider="openai", model="m", at="", items=items)
    journal = SimpleNamespace(records=[*reserved, batch], find_agent_records=lambda *_: reserved)
    inputs = SimpleNamespace(agent=SimpleNamespace(name="ada"), turn=0)
    found = Reservations(cast(Journal, journal), cast(TurnInputs, inputs)).reserved
    assert write_off_amount(found) == SpendAmount(*map(Decimal, (open_, open_ / 2, open_, open_)))


def test_a_question_that_the_turns_time_breaks_off_counts_as_spent(base: Path) -> None:
    gates = [{"at": "spend", "calls": 9, "per": "agent", "then": "block"}]
    ada = resume("ada", turn={"deadline_s": 60}, gates=gates)
    make_org(base, ada, script=[{"reply": say("late"), "delay_s": 600}])
    (turn,) = run_once(base, clock=SkippingClock()).turns
    (reserved,) = [line for line in journal_lines(base, 1) if line["type"] == "model_reserved"]
    assert turn.lost == {"calls": 1, "credits": 1.0, "cost_usd": None, "tokens": reserved["tokens"]}
