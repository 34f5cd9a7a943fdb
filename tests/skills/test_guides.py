"""`AGENTS.md`: who is told what it says, when it wakes an agent, and that nobody looks where it is off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.capabilities.skills.skills_capability import GUIDE_CHARS
from lemming.engine import run_once
from lemming.kernel.org.config import load_config
from lemming.operations.change_detector import find_context_files
from lemming.queries.org_validation import validate_agents
from lemming.queries.tick_preview import preview_tick
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say


def guided(base: Path, *, prompt: str = "full", **blocks: Any) -> Path:
    """Make an organisation with a guide for everybody, and an agent that goes by it."""
    entry = {"provider": "scripted", "prompt": prompt, "options": {"file": "config/answers.jsonl"}}
    ada = resume("ada", permissions={}, **{"guides": True, **blocks})
    make_org(base, ada, models={"scripted": entry}, script=[{"reply": say("done")}])
    (base / "AGENTS.md").write_text("Be brief.\n")
    return base


def prompt_of(base: Path) -> list[str]:
    """Return what the agent's model would be sent."""
    return [message["content"] for message in preview_tick(base, load_config(base)).build_prompt("ada").inputs.prompt]


def took_a_turn(base: Path) -> bool:
    """Run a tick and return whether the agent took a turn."""
    return run_once(base, clock=FrozenClock()).turns[0].status == "done"


def test_the_nearer_guide_comes_last_after_the_instructions(base: Path) -> None:
    guided(base)
    (base / "agents/ada/AGENTS.md").write_text("Be polite.\n")
    told = prompt_of(base)[0]
    places = [told.index(text) for text in (
        "You are ada.\n\n# Instructions from AGENTS.md\nBe brief.\n\n",
        "# Instructions from agents/ada/AGENTS.md\nBe polite.\n\n",
        "# What you may do",
    )]  # fmt: skip
    assert places == sorted(places)


@pytest.mark.parametrize("prompt", ["brief", "values"])
def test_every_form_of_prompt_holds_it(base: Path, prompt: str) -> None:
    assert any("Be brief." in text for text in prompt_of(guided(base, prompt=prompt)))


def test_it_is_in_the_journal_as_it_was_shown(base: Path) -> None:
    guided(base)
    assert took_a_turn(base)
    (base / "AGENTS.md").write_text("Be long.\n")
    assert "Be brief." in json.dumps(journal_lines(base, 1))


def test_an_agent_that_was_given_no_guides_is_told_nothing(base: Path) -> None:
    guided(base, guides=False)
    (base / "AGENTS.md").unlink()
    (base / "AGENTS.md").mkdir()  # a look at it would fail
    assert took_a_turn(base)
    assert "AGENTS.md" not in json.dumps(journal_lines(base, 1))
    assert find_context_files(base, preview_tick(base, load_config(base)).survey.agents.values()) == []


def test_a_changed_guide_wakes_an_agent_and_nothing_else_does(base: Path) -> None:
    guided(base, schedule={"wake": "changed"})
    assert [took_a_turn(base) for _ in range(3)] == [True, False, False]
    (base / "AGENTS.md").write_text("Be long.\n")
    assert [took_a_turn(base) for _ in range(2)] == [True, False]
    (base / "agents/ada/AGENTS.md").write_text("Be polite.\n")
    assert [took_a_turn(base) for _ in range(2)] == [True, False]
    (base / "agents/ada/AGENTS.md").unlink()
    assert [took_a_turn(base) for _ in range(2)] == [True, False]


def test_a_sleeping_engine_watches_it(base: Path) -> None:
    guided(base)
    agents = preview_tick(base, load_config(base)).survey.agents.values()
    assert find_context_files(base, agents) == ["AGENTS.md", "agents/ada/AGENTS.md"]


def test_a_long_one_is_cut_and_said_to_be(base: Path) -> None:
    guided(base)
    (base / "AGENTS.md").write_text("é" * (GUIDE_CHARS + 1))
    told = prompt_of(base)[0]
    assert f"{'é' * GUIDE_CHARS}\n[cut: the first {GUIDE_CHARS} of {GUIDE_CHARS + 1} characters]" in told
    assert "prompts have the first" in "\n".join(map(str, validate_agents(base, load_config(base), None)))


def test_one_that_cannot_be_read_fails_the_turn_and_is_named(base: Path, tmp_path: Path) -> None:
    guided(base)
    (tmp_path / "secret").write_text("secret")
    (base / "AGENTS.md").unlink()
    (base / "AGENTS.md").symlink_to(tmp_path / "secret")
    turn = run_once(base, clock=FrozenClock()).turns[0]
    assert turn.status == "failed"
    found = [*validate_agents(base, load_config(base), None)]
    assert [(each.pointer, each.severity) for each in found] == [("/guides", "error")]
    assert "symbolic link" in found[0].message


def test_a_guide_that_is_not_there_is_told_of(base: Path) -> None:
    guided(base)
    (base / "AGENTS.md").write_text("\n")
    assert "AGENTS.md does not exist" in str(next(validate_agents(base, load_config(base), None)))
    assert "# Instructions from" not in prompt_of(base)[0]
