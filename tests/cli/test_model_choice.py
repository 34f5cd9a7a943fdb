"""`lemming models use` and `lemming models test`, and where prices come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from terminal import Lemming

from lemming.capabilities.pricing.prices import get_price, get_shutdown_date
from lemming.kernel.agents import load_agent
from lemming.kernel.llm.call_cost import compute_usage
from lemming.kernel.org.config import load_config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import Reply
from lemming.operations.model_prices import ModelPrice
from lemming.testing import make_org, resume, say

ODD = """{
  "default":   {"provider": "scripted", "options": {"file": "config/answers.jsonl"}},

  "fast": {"provider": "scripted", "model": "quick", "options": {"file": "config/answers.jsonl"}}
}
"""


@pytest.fixture
def org(base: Path) -> Path:
    """Two agents, of whom one has a model key of its own."""
    make_org(base, resume("ada", model={"key": "default"}), resume("bob", model={"key": "fast"}))
    (base / "config/models.json").write_text(ODD)
    return base


def test_the_default_becomes_another_model_and_the_rest_of_the_file_stays(org: Path, lemming: Lemming) -> None:
    ran = lemming("models", "use", "fast")
    assert ran.status == 0
    assert load_config(org).model("default") == load_config(org).model("fast")
    fast = '{"provider": "scripted", "model": "quick", "options": {"file": "config/answers.jsonl"}}'
    old = '{"provider": "scripted", "options": {"file": "config/answers.jsonl"}}'
    kept = ODD.replace(old, fast, 1).replace('  "default"', f'  "recorded": {old},\n  "default"', 1)
    assert (org / "config/models.json").read_text() == kept
    assert "unchanged: bob (fast)" in ran.err
    assert "to undo: `lemming models use recorded`" in ran.err
    assert "no change" in lemming("models", "use", "fast").err


def test_what_keeps_a_model_from_answering_and_what_it_cannot_do_is_told_at_once(
    base: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    models = {
        "default": {"provider": "scripted", "options": {"file": "config/answers.jsonl"}},
        "gpt": {"provider": "openai", "model": "gpt-6-luna"},
        "small": {"provider": "local", "model": "smollm2-135m-instruct", "prompt": "brief"},
    }
    ada = resume("ada", model={"key": "default"}, permissions={"read_outboxes": [], "tools": ["file_read"]})
    make_org(base, ada, models=models)
    told = lemming("models", "use", "gpt").err
    assert "not ready: OPENAI_API_KEY is not set: export OPENAI_API_KEY=..." in told
    told = lemming("models", "use", "small").err
    assert "smollm2-135m-instruct restates, asks and titles, and cannot sort" in told
    assert "which is too small to call tools: file_read" in told


def test_named_agents_get_the_key_and_nobody_else(org: Path, lemming: Lemming) -> None:
    before = (org / "agents/ada/resume.json").read_text()
    assert lemming("models", "use", "default", "--agents", "bob").status == 0
    assert load_agent(org, "bob").model.key == "default"
    assert (org / "agents/ada/resume.json").read_text() == before
    assert (org / "config/models.json").read_text() == ODD


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (["fsat"], 'did you mean "fast"?'),
        (["fast", "--agents", "boob"], 'did you mean "bob"?'),
        (["default"], "is already the default"),
    ],
)
def test_a_wrong_word_changes_nothing(org: Path, lemming: Lemming, words: list[str], about: str) -> None:
    ran = lemming("models", "use", *words)
    assert ran.status != 0
    assert about in ran.err
    assert (org / "config/models.json").read_text() == ODD


def test_an_organisation_without_the_file_gets_one(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"))
    (base / "config/models.json").unlink()
    assert lemming("models", "use", "human").status == 0
    assert json.loads((base / "config/models.json").read_text()) == {"default": {"provider": "human"}}


def test_a_trial_tells_what_works_and_what_it_costs(base: Path, lemming: Lemming) -> None:
    prices = {"usd_per_million_input_tokens": 2, "usd_per_million_output_tokens": 10}
    line = {"reply": say("ready"), "input_tokens": 1000, "output_tokens": 100}
    script = {"provider": "scripted", "model": "m", "options": {"file": "config/answers.jsonl"}, **prices}
    make_org(base, resume("ada"), models={"default": script}, script=[line])
    ran = lemming("models", "test")
    assert (ran.status, "contract  yes" in ran.out) == (0, True)
    assert "$0.003000" in ran.out
    found = json.loads(lemming("models", "test", "--json").out)
    assert (found["is_of_use"], found["cost_usd"], found["model"]) == (True, 0.003, "m")


def test_an_answer_that_is_not_the_contract_ends_with_1(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), script=[{"reply": "Hello there!"}])
    ran = lemming("models", "test", "scripted")
    assert (ran.status, "contract  no: " in ran.out) == (1, True)


@pytest.mark.parametrize("key", ["human", "plan", "clock"])
def test_who_is_no_model_is_not_called(base: Path, lemming: Lemming, key: str) -> None:
    make_org(base, resume("ada"))
    ran = lemming("models", "test", key)
    assert (ran.status, "is not a model" in ran.err) == (2, True)


def test_a_server_that_is_not_there_is_named_with_its_address(base: Path, lemming: Lemming) -> None:
    options = {"base_url": "http://127.0.0.1:9/v1"}
    make_org(base, resume("ada"), models={"far": {"provider": "openai", "model": "m", "options": options}})
    ran = lemming("models", "test", "far")
    assert (ran.status, "127.0.0.1:9" in ran.err) == (1, True)


# --- prices ----------------------------------------------------------------------------------------


def entry(model: str = "gpt-6-sol", provider: str = "openai", **more: Any) -> ModelEntry:
    return ModelEntry(provider=provider, model=model, **more)


OWN = {"usd_per_million_input_tokens": 7.0, "usd_per_million_output_tokens": 8.0}


def test_a_line_of_the_settings_says_the_price_else_the_shipped_list_with_its_date() -> None:
    assert get_price(entry(**OWN)) == ModelPrice(7.0, 8.0)
    shipped = get_price(entry())
    assert shipped is not None
    assert (shipped.input, shipped.output, shipped.cached) == (2, 10, 0.2)
    assert shipped.checked.startswith("2026-")


@pytest.mark.parametrize(
    "unpriced",
    [
        entry("gpt-unheard-of"),
        entry(provider="ollama"),
        entry(options={"base_url": "https://router.example.org/v1"}),
        entry(usd_per_million_input_tokens=3.0),
    ],
)
def test_what_nobody_has_said_has_no_price(unpriced: ModelEntry) -> None:
    assert get_price(unpriced) is None


def test_a_model_named_with_its_day_costs_what_the_model_costs() -> None:
    assert get_price(entry("gpt-6-sol-2026-08-01")) == get_price(entry())
    assert get_price(entry("claude-haiku-4-5-20251001", "anthropic")) is not None


def test_cached_tokens_cost_less_by_the_shipped_list_and_as_ever_by_a_line() -> None:
    reply = Reply("", input_tokens=1_000_000, output_tokens=0, cached_tokens=500_000)
    assert compute_usage(entry(), [], reply).cost_usd == pytest.approx(1.1)
    assert compute_usage(entry(**OWN), [], reply).cost_usd == pytest.approx(7.0)


def test_an_announced_end_is_told_by_list_and_doctor(base: Path, lemming: Lemming) -> None:
    assert get_shutdown_date(entry("gpt-4o-mini-2024-07-18")) == "2027-01-14"
    assert get_shutdown_date(entry("claude-sonnet-4-5-20250929", "anthropic")) == "2026-11-30"
    assert get_shutdown_date(entry()) == ""
    models = {"old": {"provider": "openai", "model": "gpt-4o"}}
    make_org(base, resume("ada", model={"key": "old"}), models=models)
    listed = [json.loads(line) for line in lemming("models", "list", "--json").out.splitlines()]
    (old,) = [line for line in listed if line["key"] == "old"]
    assert (old["shutdown"], old["price"]["input"]) == ("2027-01-14", 2.5)
    told = lemming("doctor").out
    assert "is shut down on 2027-01-14" in told
    assert "the shipped list, checked 2026-11-23" in told
