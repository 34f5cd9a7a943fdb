"""Amounts at the edge, and allocations that override: said where they stand, summed within reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from terminal import Lemming

from lemming.engine import run_once
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.files import fs
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.llm.call_cost import compute_usage
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.providers import Reply
from lemming.testing import make_org, resume

LIMITED = resume("ada", credits={"max_credits": 10})


@pytest.mark.parametrize("said", ["-1000000", "1e308", "1e13", "1e999"])
def test_a_ledger_that_says_an_impossible_amount_is_not_believed(base: Path, said: str) -> None:
    make_org(base, LIMITED)
    run_once(base)
    ledger = base / "agents/ada/turns.jsonl"
    ledger.write_text(ledger.read_text().replace('"credits":1.0', f'"credits":{said}'))
    with pytest.raises(CorruptState, match="must be a turn"):
        read_state(base, "ada")
    assert run_once(base).turns[0].calls == 0


@pytest.mark.parametrize("amount", ["1e308", "1e13", "nan", "inf", "-11", "-inf"])
def test_a_grant_that_the_engine_would_refuse_is_not_written(base: Path, lemming: Lemming, amount: str) -> None:
    make_org(base, LIMITED)
    assert lemming("credits", "grant", "ada", amount).status == 2
    assert not (base / "config/credits.json").exists()


@pytest.mark.parametrize("key", ["per_call", "per_1k_input_tokens", "usd_per_million_output_tokens"])
@pytest.mark.parametrize("price", ["1e308", "-1", "1e999"])
def test_an_absurd_price_is_refused_where_it_stands(base: Path, lemming: Lemming, key: str, price: str) -> None:
    make_org(base, LIMITED)
    models = json.dumps({"scripted": {"provider": "scripted", key: "PRICE"}})
    fs.write_atomic(base, "config/models.json", models.replace('"PRICE"', price).encode())
    ran = lemming("run-once")
    assert ran.status == 3
    assert "config/models.json" in ran.err


def test_what_a_call_costs_never_passes_the_largest_amount() -> None:
    dear = ModelEntry(provider="x", per_1k_input_tokens=1e12, usd_per_million_input_tokens=1e12,
                      usd_per_million_output_tokens=0)  # fmt: skip
    usage = compute_usage(dear, [], Reply("", input_tokens=10**9, output_tokens=0))
    assert (usage.credits, usage.cost_usd) == (1e12, 1e12)
    assert AgentCredits(max_credits=1e12).max_credits == 1e12


def test_one_damaged_ledger_hides_nobody_elses_credits(base: Path, lemming: Lemming) -> None:
    make_org(base, LIMITED, resume("bob"))
    fs.append(base, "agents/ada/turns.jsonl", b"no line\n")
    ran = lemming("credits", "show")
    assert ran.status == 7
    assert "bob" in ran.out
    assert "agents/ada/turns.jsonl" in ran.err


def test_an_allocation_that_overrides_a_resume_is_said_everywhere(base: Path, lemming: Lemming) -> None:
    make_org(base, LIMITED)
    assert "now overrides max_credits in agents/ada/resume.json" in lemming("credits", "grant", "ada", "5").err
    file = base / "agents/ada/resume.json"
    file.write_text(file.read_text().replace("10", "500"))
    assert "config/credits.json says 15, not the 500 of agents/ada/resume.json" in lemming("credits", "show").err
    ran = lemming("validate")
    assert ran.status == 0
    assert "ada may spend 15, not the 500 in agents/ada/resume.json" in ran.err
    (base / "config/credits.json").unlink()
    assert "config/credits.json" not in lemming("credits", "show").err
