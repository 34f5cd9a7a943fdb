"""`lemming.build`: an organisation out of Python values, with functions as tools."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

import lemming
from lemming.capabilities.plans.plan_builder import call, plan
from lemming.engine import run_once
from lemming.kernel.agents import load_agent
from lemming.kernel.base.errors import LemmingError
from lemming.libraries.tool_decorator import get_declaration, tool
from lemming.testing import say, tree, write_script

SCRIPTED = {"provider": "scripted", "tools": "native", "options": {"file": "config/answers.jsonl"}}


def word_count(text: str) -> int:
    """Count the words of a text."""

    return len(re.findall(r"\w+", text))


@tool(tool_class="read", repeatable=True)
def letter_count(text: str) -> int:
    """Count the letters of a text."""
    return len(text)


def test_what_is_built_answers_with_its_own_function(tmp_path: Path) -> None:
    clerk = {"does": "Count.", "read": "human", "wake": "addressed", "tools": [word_count, letter_count]}
    org = lemming.build(tmp_path / "org", agents={"clerk": clerk}, models={"default": SCRIPTED})
    assert load_agent(org, "clerk").permissions.tools == ["word_count", "letter_count"]
    calls = [{"tool": name, "args": {"text": "a b c"}} for name in ("word_count", "letter_count")]
    answer = {"agent": "clerk", "contains": "5", "reply": say("three words", kind="response")}
    write_script(org.base, [{"agent": "clerk", "step": 0, "calls": calls}, answer])
    outcome = lemming.ask(org, "clerk", "How long is it?", timeout_s=PATIENCE_S)
    assert (outcome.has_answer, outcome.answer) == (True, "three words")


def test_the_same_again_changes_nothing_and_other_words_change_what_they_name(tmp_path: Path) -> None:
    agents: dict[str, Any] = {"lead": {"does": "Lead.", "ask": "scout", "read": "human"}, "scout": "Look."}
    org = lemming.build(tmp_path / "org", agents=agents, models={"default": SCRIPTED})
    before = tree(org.base, without=())
    lemming.build(org, agents=agents, models={"default": SCRIPTED})
    assert tree(org.base, without=()) == before
    lemming.build(org, agents={"scout": {"does": "Look closely.", "read": "lead"}})
    assert load_agent(org, "scout").instructions == "Look closely."
    assert load_agent(org, "lead").instructions == "Lead."
    write_script(org.base, [{"reply": say("done")}])
    assert not run_once(org).by_status("failed")


def untyped(text):  # type: ignore[no-untyped-def]
    """Count the words of a text."""
    return len(text)


def search(text: str) -> str:
    """Search for a text."""
    return text


def of_another_module() -> Callable[[str], int]:
    """Return another function that is called as one of this module is."""

    def word_count(text: str) -> int:
        """Count the words of a text, and pay for it."""
        return 2 * len(text)

    return word_count


@tool(name="count", tool_class="read", repeatable=True)
def counted(text: str) -> int:
    """Count the letters of a text."""
    return len(text)


def test_a_function_is_granted_and_called_by_the_name_that_its_tool_has(tmp_path: Path) -> None:
    steps = plan(call("length", counted, {"text": "abc"}))
    org = lemming.build(tmp_path / "org", agents={"desk": steps, "clerk": {"does": "x", "tools": [counted]}})
    assert load_agent(org, "clerk").permissions.tools == ["count"]
    assert load_agent(org, "desk").permissions.tools == ["count"]


def test_one_function_is_a_tool_of_several_agents(tmp_path: Path) -> None:
    words = {"does": "x", "tools": [word_count]}
    org = lemming.build(tmp_path / "org", agents={"ada": words, "bob": words})
    assert [path.name for path in org.base.glob("tools/*")] == ["word_count.py"]


def test_the_function_itself_stays_as_it_is(tmp_path: Path) -> None:
    lemming.build(tmp_path / "org", agents={"ada": {"does": "x", "tools": [word_count]}})
    assert get_declaration(word_count) is None


@pytest.mark.parametrize(
    ("agents", "told"),
    [
        ({"ada": {"doez": "x"}}, 'did you mean "does"?'),
        ({"ada": 5}, "agents.ada: an agent must be a text or an object"),
        ({"ada": {"does": "x", "tools": [len]}}, "the source of <built-in function len> does not exist"),
        ({"ada": {"does": "x", "tools": [lambda: 1]}}, "cannot be the file of a tool"),
        ({"ada": {"does": "x", "tools": [untyped]}}, 'parameter "text" of untyped must have a type'),
        ({"ada": {"does": "x", "tools": [search]}}, 'the name of a tool of LeMMing: "search"'),
        (
            {"ada": {"does": "x", "tools": [word_count, of_another_module()]}},
            'two functions have the name "word_count"',
        ),
        (
            {"ada": {"does": "x", "tools": [word_count]}, "bob": {"does": "x", "tools": [of_another_module()]}},
            'two functions have the name "word_count"',
        ),
        (
            {"ada": {"does": "x", "tools": [word_count]}, "bob": plan(call("a", of_another_module(), {"text": "x"}))},
            'two functions have the name "word_count"',
        ),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_written(tmp_path: Path, agents: Any, told: str) -> None:
    with pytest.raises(LemmingError) as caught:
        lemming.build(tmp_path / "org", agents=agents)
    assert told in f"{caught.value} {caught.value.hint}"
    assert not (tmp_path / "org").exists()


def test_an_agent_that_only_judges_takes_no_turn_of_its_own(tmp_path: Path) -> None:
    writer = {"does": "Write.", "read": "human", "verify": {"by": "critic"}}
    org = lemming.build(
        tmp_path / "org", agents={"writer": writer, "critic": "You judge."}, models={"default": SCRIPTED}
    )
    assert load_agent(org, "critic").schedule.wake == "addressed"


def test_a_judge_that_reads_others_keeps_its_turns(tmp_path: Path) -> None:
    writer = {"does": "Write.", "read": "human", "gates": [{"at": "out", "by": "critic", "then": "block"}]}
    critic = {"does": "You judge.", "read": "writer"}
    org = lemming.build(tmp_path / "org", agents={"writer": writer, "critic": critic}, models={"default": SCRIPTED})
    assert load_agent(org, "critic").schedule.wake == "changed"
