"""`lemming cost`: rows add up to the ledgers to the last digit, whatever became of turns and journals."""

from __future__ import annotations

import csv
import io
import json
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from terminal import Lemming

from lemming.engine import run_once
from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.journal_records import ModelReplied
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.queries.cost_report import Cost, compute_costs
from lemming.queries.screens.cost_screen import GROUPS
from lemming.testing import Crash, FrozenClock, make_org, resume, say

SCRIPTED = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "attempts": 1}
ODD = {"usd_per_million_input_tokens": 0.15, "usd_per_million_output_tokens": 0.6, "per_call": 0}
ODD |= {"per_1k_input_tokens": 0.0123, "per_1k_output_tokens": 0.07}
MODELS: dict[str, Any] = {
    "odd": {**SCRIPTED, **ODD, "model": "odd-2026"},
    "dear": {**SCRIPTED, "model": "dear", "usd_per_million_input_tokens": 3.3333, "per_call": 1.1,
             "usd_per_million_output_tokens": 15.1},
    "down": {**SCRIPTED, "model": "down", "options": {"file": "config/down.jsonl"}},
}  # fmt: skip
JUDGED = {"strategy": "reflexion", "options": {"model": "dear", "rubric": "Is it long?"}}
SCRIPT = [
    {"agent": "bad", "reply": "no", "input_tokens": 12_347, "output_tokens": 11},
    {"contains": "Judge the draft", "reply": {"passes": False, "reason": "longer"}, "input_tokens": 997},
    {"agent": "steps", "step": 0, "reply": say("more", tool_calls=[{"tool": "list_agents", "args": {}}])},
    {"reply": say("hello"), "input_tokens": 1_237, "output_tokens": 171},
]


def busy(base: Path, many: int = 3, **org: Any) -> Path:
    """Make an organisation whose agents spend in every way there is."""
    odd = [resume(f"odd{number}", model={"key": "odd"}) for number in range(many)]
    make_org(
        base,
        *odd,
        resume("bad", model={"key": "odd"}, turn={"repairs": 2}),
        resume("falls", model={"key": "down", "fallback": ["dear"]}),
        resume("judged", model={"key": "odd"}, turn=JUDGED),
        resume("limited", model={"key": "dear"}, credits={"max_credits": 5}),
        resume("steps", model={"key": "odd"}, turn={"max_steps": 2}),
        resume("unpriced"),
        script=SCRIPT,
        models=MODELS,
        org={"durability": "off", "visibility": "tick", "inbox_limit": 1, **org},
    )
    fs.write_atomic(base, "config/down.jsonl", b'{"error": "Unavailable"}\n')
    return base


def exact(amount: float | None) -> Decimal:
    return Decimal(repr(amount)) if amount is not None else Decimal(0)


def sums_of_ledgers(base: Path) -> list[Decimal | int]:
    states = [read_state(base, name) for name in list_agent_folders(base)]
    amounts = [sum((exact(s.credits) for s in states), Decimal()), sum((exact(s.cost_usd) for s in states), Decimal())]
    return [
        *amounts,
        *(sum(getattr(s, key) for s in states) for key in ("unpriced_calls", "input_tokens", "output_tokens")),
    ]


def sums_of_rows(base: Path, lemming: Lemming, by: str) -> list[Decimal | int]:
    rows = list(csv.DictReader(io.StringIO(lemming("cost", "--by", by, "--csv").out)))
    amounts = [sum((Decimal(row[key] or "0") for row in rows), Decimal()) for key in ("credits", "cost_usd")]
    return [
        *amounts,
        *(sum(int(row[key]) for row in rows) for key in ("unpriced_calls", "input_tokens", "output_tokens")),
    ]


def assert_adds_up(base: Path, lemming: Lemming) -> None:
    for by in GROUPS:
        assert sums_of_rows(base, lemming, by) == sums_of_ledgers(base), by


def interrupt(base: Path, agent: str, kind: type[Event]) -> None:
    def die(event: Event) -> None:
        if isinstance(event, kind) and event.agent_name == agent:
            raise Crash

    with pytest.raises(Crash):
        run_once(base, notify=die)


@pytest.mark.long
def test_more_than_a_thousand_turns_of_every_kind_add_up_to_the_ledgers(base: Path, lemming: Lemming) -> None:
    busy(base, many=30, plain_journals=20)
    for tick in range(1, 37):
        if tick % 20 == 7:
            interrupt(base, "judged", ModelReplied)
        run_once(base)
    found = compute_costs(base, "tick")
    assert sum(row.turns for row in found.rows.values()) > 1200
    assert found.total.calls > 1300
    assert not any(found.unrecorded.ledger_amounts)
    assert_adds_up(base, lemming)


def test_the_rows_of_agents_are_their_ledgers(base: Path, lemming: Lemming) -> None:
    busy(base)
    for _ in range(7):
        run_once(base)
    *rows, total = lemming("cost", "--json").objects
    assert [row["agent"] for row in rows] == list_agent_folders(base)
    for row in rows:
        state = read_state(base, row["agent"])
        assert (row["credits"], row["cost_usd"]) == (state.credits, state.cost_usd)
        assert (row["input_tokens"], row["unpriced_calls"]) == (state.input_tokens, state.unpriced_calls)
    assert total["type"] == "cost_total"
    assert total["calls"] == sum(row["calls"] for row in rows)


def test_a_model_is_the_key_that_was_asked(base: Path, lemming: Lemming) -> None:
    busy(base)
    run_once(base)
    rows = {row.get("model"): row for row in lemming("cost", "--by", "model", "--json").objects}
    assert rows["dear"]["calls"] == 3  # the fallback, the judge, the limited one
    assert rows["scripted"]["cost_usd"] is None
    assert "odd" in rows
    assert not {"down", "odd-2026"} & {*rows}
    table = lemming("cost", "--by", "model").out.splitlines()
    assert next(line for line in table if line.startswith("scripted")).split()[4:6] == ["no", "price"]
    assert {line.split()[1] for line in table[1:] if line[:1].isalpha()} == {"-"}  # a turn may ask several
    assert " or more" in next(line for line in table if line.startswith("total"))


def test_pruned_journals_leave_a_row_for_what_they_told(base: Path, lemming: Lemming) -> None:
    busy(base, plain_journals=0)
    for _ in range(6):
        run_once(base)
    fs.write_atomic(base, "tick.json", dump_pretty({"current_tick": 250}))
    for _ in range(2):
        run_once(base)
    before = compute_costs(base, "tick")
    (oldest,) = (base / "logs/ticks/sealed").iterdir()
    oldest.unlink()
    assert_adds_up(base, lemming)
    ran = lemming("cost", "--by", "tick")
    assert [line.split("  ")[0] for line in ran.out.splitlines()] == ["TICK", "before tick 250", "250", "251", "total"]
    assert "the oldest journal is of tick 250" in ran.err
    after = compute_costs(base, "tick")
    assert after.total.ledger_amounts == before.total.ledger_amounts
    gone = [row for tick, row in before.rows.items() if int(tick) < 250]
    assert after.unrecorded.ledger_amounts == reduce(Cost.add, gone).ledger_amounts


def test_since_leaves_out_what_came_before(base: Path, lemming: Lemming) -> None:
    busy(base)
    for _ in range(4):
        run_once(base)
    rows = list(csv.DictReader(io.StringIO(lemming("cost", "--by", "tick", "--since", "3", "--csv").out)))
    assert [row["tick"] for row in rows] == ["3", "4"]
    whole = {row["tick"]: row for row in csv.DictReader(io.StringIO(lemming("cost", "--by", "tick", "--csv").out))}
    assert rows == [whole["3"], whole["4"]]


def test_a_day_is_one_of_the_organisations_zone(base: Path, lemming: Lemming) -> None:
    busy(base, timezone="Asia/Tokyo")
    run_once(base, clock=FrozenClock(datetime(2026, 3, 1, 14, 59, tzinfo=UTC)))
    run_once(base, clock=FrozenClock(datetime(2026, 3, 1, 15, 0, tzinfo=UTC)))
    days = [row["day"] for row in lemming("cost", "--by", "day", "--json").objects if row["type"] == "cost"]
    assert days == ["2026-03-01", "2026-03-02"]


def test_what_a_tick_under_way_has_spent_is_said_apart(base: Path, lemming: Lemming) -> None:
    busy(base)
    run_once(base)
    interrupt(base, "steps", ModelReplied)
    assert_adds_up(base, lemming)
    assert compute_costs(base, "agent").open.calls == 1
    assert "the running tick has spent" in lemming("cost").err
    run_once(base)
    assert compute_costs(base, "agent").open.calls == 0
    assert_adds_up(base, lemming)


def test_a_renamed_agent_has_what_it_spent_before(base: Path, lemming: Lemming) -> None:
    busy(base)
    run_once(base)
    assert lemming("agents", "rename", "odd1", "new1").status == 0
    assert_adds_up(base, lemming)
    run_once(base)
    assert_adds_up(base, lemming)
    found = compute_costs(base, "agent")
    assert found.rows["new1"].turns == 2
    assert found.removed_total.ledger_amounts == (0, 0, 0, 0, 0)


def test_what_a_removed_agent_spent_is_not_lost(base: Path, lemming: Lemming) -> None:
    busy(base)
    run_once(base)
    spent = read_state(base, "odd1")
    assert lemming("agents", "rm", "odd1").status == 0
    found = compute_costs(base, "agent")
    assert found.rows["odd1 (removed)"].credits == exact(spent.credits) == found.removed_total.credits
    run_once(base)  # or the turn before is taken for one that a power cut has lost
    fs.write_atomic(base, "agents/odd1/resume.json", dump_pretty(resume("odd1", model={"key": "odd"})))
    run_once(base)
    found = compute_costs(base, "agent")
    assert found.rows["odd1"].turns == 1
    assert found.rows["odd1 (removed)"].credits == exact(spent.credits)
    in_ledgers = [a - b for a, b in zip(found.total.ledger_amounts, found.removed_total.ledger_amounts, strict=True)]
    assert in_ledgers == sums_of_ledgers(base)


def test_who_is_broken_or_removed_is_marked(base: Path, lemming: Lemming) -> None:
    make_org(base, *map(resume, ("ada", "bob", "cid")))
    run_once(base)
    (base / "agents/bob/resume.json").write_text("{")
    assert lemming("agents", "rm", "cid").status == 0
    names = [line.split("  ")[0] for line in lemming("cost").out.splitlines()[1:]]
    assert names == ["ada", "bob (broken)", "cid (removed)", "total"]
    rows = [it for it in lemming("cost", "--json").objects if it["type"] == "cost"]
    marked = [("ada", "present"), ("bob", "broken"), ("cid", "removed")]
    assert [(row["agent"], row["standing"]) for row in rows] == marked
    (row,) = lemming("credits", "show", "bob", "--json").objects
    assert (row["spent"], row["standing"]) == (1.0, "broken")
    assert lemming("credits", "show", "bob").out.splitlines()[1].split()[:5] == ["bob", "(broken)", "1", "?", "?"]


def test_who_was_an_agent_and_is_a_person_now_has_one_mark(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("bob"))
    run_once(base)
    fs.write_atomic(base, "agents/bob/resume.json", dump_pretty(resume("bob", model={"key": "human"})))
    (base / "config/models.json").write_bytes(
        dump_pretty({**json.loads((base / "config/models.json").read_bytes()), "human": {"provider": "human"}})
    )
    for words in (("cost",), ("credits", "show")):
        names = [line.split("  ")[0] for line in lemming(*words).out.splitlines()[1:]]
        assert names[:2] == ["ada", "bob (retired)"], words
        marked = [it["standing"] for it in lemming(*words, "--json").objects if it.get("agent") == "bob"]
        assert marked == ["retired"], words


def test_a_damaged_journal_is_named_and_the_rest_still_adds_up(base: Path, lemming: Lemming) -> None:
    busy(base)
    for _ in range(3):
        run_once(base)
    file = base / f"logs/ticks/{2:08d}.jsonl"
    file.write_bytes(file.read_bytes().replace(b'{"type":"model_replied",', b'{"type":"model_replied"', 1))
    assert_adds_up(base, lemming)
    ran = lemming("cost", "--by", "tick", "--json")
    assert ran.objects[-1]["damaged"] == [2]
    assert "tick 2 cannot be read" in ran.err
    assert journal_ticks(base) == [1, 2, 3]


def test_what_no_journal_tells_of_is_said_beside_turns_and_calls_that_leave_it_out(
    base: Path, lemming: Lemming
) -> None:
    make_org(base, resume("ada"))
    lemming("run-once")
    shutil.rmtree(base / "logs")
    lemming("run-once")
    ran = lemming("cost")
    assert ran.out.splitlines()[1].split()[:4] == ["ada", "1", "1", "2"]
    assert ran.err == "1 credit of it without a journal: turns and calls leave them out\n"


def test_an_organisation_that_has_spent_nothing_says_so(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("human", model={"key": "human"}))
    assert lemming("cost", "--by", "tick").err == "no spending\n"
    assert json.loads(lemming("cost", "--json").out.splitlines()[-1])["credits"] == 0


@pytest.mark.parametrize("words", [("--by", "modle"), ("--csv", "--json")])
def test_what_was_not_meant_is_refused(base: Path, lemming: Lemming, words: tuple[str, ...]) -> None:
    busy(base)
    ran = lemming("cost", *words)
    assert ran.status == 2
    assert 'did you mean "model"?' in ran.err or "exclude each other" in ran.err


class Caches(Backend):
    """A provider that has most of each prompt in its cache."""

    keeps_deadline, can_be_down = True, False

    def complete(self, request: Request) -> Reply:
        """Answer."""
        return Reply(json.dumps(say("hi")), 1000, 10, cached_tokens=800)


def test_what_providers_had_in_their_caches_is_told(base: Path, lemming: Lemming) -> None:
    register_provider("caches", Caches)
    make_org(base, resume("ada", model={"key": "kept"}), models={"kept": {"provider": "caches"}})
    run_once(base, clock=FrozenClock())
    run_once(base, clock=FrozenClock())
    shown = lemming("cost").out.splitlines()
    assert ["2,000 in (1,600 cached, 80%), 20 out" in line for line in shown] == [False, True, True]
    for row in lemming("cost", "--json").objects:
        assert (row["cached_tokens"], row["cached_share"]) == (1600, 0.8)
    assert lemming("cost", "--csv").out.splitlines()[0].endswith(",cached_tokens,cached_share")
    assert lemming("cost", "--csv").out.splitlines()[1].endswith(",1600,0.8")


def test_the_cached_share_is_that_of_the_calls_whose_journals_are_there(base: Path, lemming: Lemming) -> None:
    register_provider("caches", Caches)
    make_org(base, resume("ada", model={"key": "kept"}), models={"kept": {"provider": "caches"}})
    run_once(base, clock=FrozenClock())
    run_once(base, clock=FrozenClock())
    for journal in (base / "logs/ticks").glob("*1.jsonl"):
        journal.unlink()
    total = lemming("cost", "--json").objects[-1]
    assert (total["input_tokens"], total["recorded_tokens"]) == (2000, 1000)
    assert (total["cached_tokens"], total["cached_share"]) == (800, 0.8)
