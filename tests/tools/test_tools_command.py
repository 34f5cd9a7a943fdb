"""`lemming tools`: what there is, a call by hand with the engine's own checks, and a new one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from workshop import Workshop

from lemming.cli import run
from lemming.kernel.agents import load_agent
from lemming.kernel.org.config import load_config
from lemming.operations.open_org import open_org
from lemming.testing import make_org, resume, tree

CODE = '''
@tool(tool_class="read", repeatable=True, independent=True)
def look(city: str, days: int = 1) -> str:
    """Look up the weather."""
    return f"{city} {days}"

@tool(tool_class="send")
def send_off(ctx: ToolContext, text: str) -> str:
    """Send a text away."""
    ctx.state["sent"] = text
    ctx.emit("report", {"text": text})
    return "sent"
'''


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    shop = Workshop(tmp_path / "org", tools=["look", "send_off"])
    shop.file(CODE)
    assert run(["-C", str(shop.base), "trust", "--yes"]) == 0
    yield shop
    shop.org.close()


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tools(shop: Workshop, capsys: pytest.CaptureFixture[str]) -> Run:
    capsys.readouterr()

    def ran(*words: str) -> tuple[int, str, str]:
        status = run(["-C", str(shop.base), "tools", *words])
        said = capsys.readouterr()
        return status, said.out, said.err

    return ran


def test_the_list_says_where_a_tool_is_from_and_who_may_call_it(tools: Run) -> None:
    status, out, _ = tools("list", "--json")
    found = {it["tool"]: it for it in map(json.loads, out.splitlines())}
    assert status == 0
    assert (found["look"]["from"], found["look"]["agents"]) == ("tools/mine.py:5", ["ada"])
    assert (found["shell"]["from"], found["shell"]["agents"]) == ("LeMMing", [])


def test_one_is_shown_as_a_model_is_told_of_it(tools: Run) -> None:
    status, out, _ = tools("show", "look")
    assert status == 0
    assert "Look up the weather." in out
    assert "city  required" in out


def test_a_call_by_hand_is_checked_as_the_engine_checks_it(tools: Run) -> None:
    assert tools("call", "look", "city=Oslo", "days=2")[:2] == (0, "Oslo 2\n")
    status, out, err = tools("call", "look", "cty=Oslo")
    assert (status, "invalid_args LMG-604" in err) == (1, True)
    assert 'did you mean "city"?' in out
    status, out, _ = tools("call", "file_write", "--agent", "ada", "path=x", "content=y", "--json")
    assert (status, json.loads(out)["outcome"]) == (1, "denied")


def test_what_may_reach_outside_runs_and_writes_with_yes_only(tools: Run, shop: Workshop) -> None:
    before = tree(shop.base)
    status, out, _ = tools("call", "send_off", "text=hello")
    assert (status, "--yes runs it" in out) == (1, True)
    assert tree(shop.base) == before
    status, out, err = tools("call", "send_off", "text=hello", "--yes")
    assert (status, out) == (0, "sent\n")
    assert "wrote agents/ada/memory/state.send_off.json" in err
    assert len(list((shop.base / "agents/ada/outbox").iterdir())) == 1


def test_nothing_is_written_beside_an_engine(tools: Run, shop: Workshop) -> None:
    with open_org(shop.base):
        assert tools("call", "send_off", "text=hello", "--yes")[0] == 4


def test_mistakes_are_told_with_the_nearest_name(tools: Run) -> None:
    for words, said in (
        (("call", "loook"), 'did you mean "look"?'),
        (("show", "loook"), 'did you mean "look"?'),
        (("call", "look", "--agent", "adda"), 'did you mean "ada"?'),
        (("call", "look", "city"), "must be KEY=VALUE"),
        (("call", "look", "--args", "{"), "--args is not JSON"),
        (("call", "look", "--args", "[]"), "must be a JSON object"),
        (("call", "shell", "command=ls"), "no agent may call shell"),
        (("new", "a-b"), "letters, digits and _"),
        (("new", "class"), "letters, digits and _"),
        (("new", "mine"), "already exists"),
    ):
        status, _, err = tools(*words)
        assert (status != 0, said in err) == (True, True), (words, err)


def test_a_new_tool_is_loaded_and_may_be_called_by_whom_it_is_for(
    tools: Run, shop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    make_org(shop.base, shop.resume(), resume("bob"), script=[], org={})
    status, _, err = tools("new", "fresh")
    assert (status, "no agent may call it yet: lemming tools new fresh --agent ONE of ada, bob" in err) == (0, True)
    assert load_config(shop.base).org.tool_files == ["tools/*.py"]
    before = (shop.base / "tools/fresh.py").read_bytes()
    assert tools("new", "fresh")[0] == 2
    status, _, err = tools("new", "fresh", "--agent", "ada")
    assert (status, "ada may call it" in err) == (0, True)
    assert (shop.base / "tools/fresh.py").read_bytes() == before
    assert tools("new", "newer", "--agent", "ada")[0] == 0
    assert run(["-C", str(shop.base), "trust", "--yes"]) == 0  # it has changed
    capsys.readouterr()
    assert tools("call", "newer", "text=one three", "letters=4")[:2] == (0, "1\n")
    assert load_agent(shop.base, "ada").permissions.tools == ["look", "send_off", "fresh", "newer"]


def test_the_only_agent_gets_the_new_tool_and_a_model_that_is_too_small_for_it_is_named(
    tools: Run, shop: Workshop
) -> None:
    small = {"provider": "local", "model": "smollm2-135m-instruct"}
    ada = {**shop.resume(), "model": {"key": "default"}}
    make_org(shop.base, ada, script=[], org={}, models={"default": small})
    status, _, err = tools("new", "fresh")
    assert (status, "ada may call it" in err) == (0, True)
    assert "fresh" in load_agent(shop.base, "ada").permissions.tools
    assert 'model "default" is smollm2-135m-instruct, which is too small to call tools: ' in err
    assert "lemming models use KEY" in err
