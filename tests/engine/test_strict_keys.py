"""A key that is none, where files limit, grant, or say where words are sent, blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.jsontext import correct_typo, dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.kernel.plugins.capability_loader import missing_reason
from lemming.testing import make_org, resume

SETTINGS: dict[str, tuple[dict[str, Any], str, str]] = {
    "org.json": ({"gate": []}, "/gate", 'did you mean "gates"?'),
    "a block of org.json": ({"quota": {"max_byte": 1 << 20}}, "/quota/max_byte", '"max_bytes"'),
    "a gate": ({"gates": [{"at": "call", "then": "block", "tools": "shell"}]}, "/gates/0/tools", '"tool"'),
    "a trust rule": ({"trust": {"rules": [{"form": "a", "is": "known"}]}}, "/trust/rules/0/form", '"from"'),
    "the limits of all": ({"max_steps": 2}, "/max_steps", "move it to defaults.turn.max_steps"),
}


def require_here(name: str) -> None:
    """Skip a test where a capability is not here, or one that it needs."""
    if why := missing_reason(name):
        pytest.skip(why)


@pytest.mark.parametrize("case", SETTINGS)
def test_a_key_that_is_none_in_the_settings_stops_the_run(case: str, base: Path) -> None:
    settings, pointer, hint = SETTINGS[case]
    for name in settings.keys() & {"gates", "trust"}:
        require_here(name)
    make_org(base, resume("ada"))
    fs.write_atomic(base, "config/org.json", dump_pretty(settings))
    with pytest.raises(ConfigError) as raised:
        run_once(base)
    (problem,) = (it for it in raised.value.problems if it.code == "LMG-301")
    assert (problem.file, problem.pointer, problem.severity) == ("config/org.json", pointer, "error")
    assert problem.line > 0
    assert hint in problem.hint
    assert raised.value.exit_status == 3


@pytest.mark.parametrize("key", ["base_url", "base_ulr", "Base_URL", "baseurl", "api_key_env"])
def test_a_model_whose_address_is_in_the_wrong_place_is_asked_nothing(key: str, base: Path) -> None:
    make_org(base, resume("ada"))
    fs.write_atomic(base, "config/models.json", dump_pretty({"gpt": {"provider": "openai", key: "http://here/v1"}}))
    with pytest.raises(ConfigError) as raised:
        run_once(base)
    (problem,) = raised.value.problems
    assert (problem.file, problem.pointer) == ("config/models.json", f"/gpt/{key}")
    assert problem.line == 4
    assert problem.hint.startswith(
        "move it to options.base_url" if "base" in key.lower() else "move it to options.api_key_env"
    )


def test_a_key_that_is_none_in_credits_json_stops_the_run(base: Path) -> None:
    make_org(base, resume("ada"))
    fs.write_atomic(base, "config/credits.json", dump_pretty({"ada": {"max_credit": 0}}))
    with pytest.raises(ConfigError, match='"max_credits"'):
        load_config(base)


BLOCKS: dict[str, tuple[dict[str, Any], str]] = {
    "credits": ({"credits": {"max_credit": 0}}, "/credits/max_credit"),
    "credit": ({"credit": {"max_credits": 0}}, "/credit"),
    "permissions": ({"permissions": {"file_acess": {}}}, "/permissions/file_acess"),
    "file_access": (
        {"permissions": {"file_access": {"allow_writ": []}}},
        "/permissions/file_access/allow_writ",
    ),
    "schedule": ({"schedule": {"run_every_n_tick": 9}}, "/schedule/run_every_n_tick"),
    "model": ({"model": {"kee": "scripted"}}, "/model/kee"),
    "turn": ({"turn": {"max_step": 1}}, "/turn/max_step"),
    "team": ({"team": {"aks": []}}, "/team/aks"),
    "output": ({"output": {"schema": {}, "wen": []}}, "/output/wen"),
    "verify": ({"verify": {"by": "scripted", "polcy": "x"}}, "/verify/polcy"),
    "gate": ({"gate": [{"at": "call", "then": "block"}]}, "/gate"),
    "a gate's key": ({"gates": [{"at": "call", "then": "block", "agent": "ada"}]}, "/gates/0/agent"),
    "trusts": ({"trusts": {"rules": []}}, "/trusts"),
    "permision": ({"permision": {}}, "/permision"),
    "another case": ({"Gates": []}, "/Gates"),
    "the wrong place": ({"max_credits": 0}, "/max_credits"),
    "a key of others, in a block": ({"credits": {"x-max": 1}}, "/credits/x-max"),
}  # fmt: skip
BROUGHT = {"gates": "gates", "output": "answers", "team": "requests", "verify": "judges"}
"""Keys of capabilities, which may not be here."""


@pytest.mark.parametrize("case", BLOCKS)
def test_a_key_that_is_none_in_a_block_of_a_resume_takes_that_agent_out(case: str, base: Path) -> None:
    block, pointer = BLOCKS[case]
    for key in block.keys() & BROUGHT.keys():
        require_here(BROUGHT[key])
    make_org(base, resume("ada", **block), resume("bob"))
    report = run_once(base)
    ended = {turn.agent: turn for turn in report.turns}
    assert ended["bob"].status == "done"
    assert ended["ada"].status == "failed"
    (problem,) = survey_agents(base).broken["ada"].problems
    assert (problem.file, problem.pointer) == ("agents/ada/resume.json", pointer)
    assert problem.line > 0
    assert problem.hint


def test_other_keys_at_the_top_of_a_resume_are_kept(base: Path) -> None:
    others = {"colour": "red", "created_at": "2025-12-08", "x-gate": 1, "notes": "", "version": 3, "tags": []}
    make_org(base, resume("ada", **others))
    found = survey_agents(base)
    assert not found.broken
    assert {warning.pointer for warning in found.warnings} == {f"/{key}" for key in others if key != "x-gate"}


def test_what_is_meant_is_told_from_what_is_another_word() -> None:
    keys = ["credits", "gates", "created_by", "title", "permissions"]
    slips = {"credit": "credits", "Gates": "gates", "gaets": "gates", "permisions": "permissions"}
    assert {word: correct_typo(word, keys) for word in slips} == slips
    others = ["created_at", "version", "tool", "rates_of", "credit_note"]
    assert not any(correct_typo(word, keys) for word in others)
    names = ["worker_1", "reader_a", "writer", "desk"]
    assert not any(correct_typo(word, names) for word in ("worker_2", "reader_b", "rewriter", "disc", "bob"))
