"""Hostile replies, each through real ticks: a turn is its author's own affair and nobody else's.

Three agents give the reply (one step and a correction; three steps without; three steps with one), others
work around them. Whatever the reply, the tick ends, the others are done, what is on disk is sound, nothing
outside the three agents' folders differs from a quiet day, and the journal says what was wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile import CONTRACT, FAILED, STANDS
from sound import assert_sound, said

from lemming.engine import load_tick, run_once
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.kernel.providers import LLMProvider, Message, register_provider
from lemming.testing import FrozenClock, journal_lines, make_org, resume, tree

HOSTILE = {
    "mallory": {"max_steps": 1, "repairs": 1},
    "malloy": {"max_steps": 3, "repairs": 0},
    "malvina": {"max_steps": 3, "repairs": 1},
}
OTHERS = ("ada", "reader", "zed")
REPLY_FILE = "config/reply.txt"


class Verbatim(LLMProvider):
    """Answers with the text of a file, half characters included."""

    keeps_deadline = True

    def __init__(self, *, base: Path) -> None:
        self._text = (base / REPLY_FILE).read_bytes().decode("utf-8", "surrogatepass")

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **kwargs: Any) -> str:
        return self._text


CASES = [
    *(pytest.param("failed", *case, id=name) for name, case in FAILED.items()),
    *(pytest.param("stands", *case, id=name) for name, case in STANDS.items()),
]


@pytest.fixture(autouse=True)
def _provider() -> Iterator[None]:
    register_provider("verbatim", Verbatim)
    yield
    unregister("provider", "verbatim")


def make(tmp_path: Path, name: str, reply: str) -> Path:
    """Make an organisation with a canary outside of it, in which the hostile agents give the reply."""
    base, outside = tmp_path / name / "org", tmp_path / name / "outside"
    outside.mkdir(parents=True)
    (outside / "canary.txt").write_text("alive")
    tools = {"tools": ["file_read", "file_write", "file_list"]}
    hostile = [resume(name, model={"key": "verbatim"}, permissions=tools, turn=turn) for name, turn in HOSTILE.items()]
    make_org(
        base,
        resume("ada", permissions={}),
        *hostile,
        resume("reader", permissions={"read_outboxes": ["*"]}),
        resume("zed", permissions={}),
        models={"verbatim": {"provider": "verbatim", "prompt": "full"}},
        org={"durability": "off"},
    )
    text = reply.replace("@OUTSIDE@", str(outside))
    (base / REPLY_FILE).write_bytes(text.encode("utf-8", "surrogatepass"))
    for hostile_name in HOSTILE:
        workspace = base / "agents" / hostile_name / "workspace"
        workspace.mkdir()
        (workspace / "big.txt").write_text("0123456789abc .\n" * 4000)
    return base


def around(base: Path) -> dict[str, bytes]:
    """Return all files but those of the hostile agents, and the state of the reader, who has read them."""
    own = tuple(f"org/agents/{name}/" for name in HOSTILE)
    mine = ("org/agents/reader/turns.jsonl", f"org/{REPLY_FILE}")
    found = tree(base.parent, without=(".lemming", "logs"))
    return {path: raw for path, raw in found.items() if not path.startswith(own) and path not in mine}


@pytest.fixture(scope="module")
def quiet_days(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, bytes]]:
    """What is around the three agents after one tick, and after two, in which they say something harmless."""
    register_provider("verbatim", Verbatim)
    base = make(tmp_path_factory.mktemp("quiet"), "case", CONTRACT)
    return {run_once(base, clock=FrozenClock()).tick: around(base) for _ in range(2)}


@pytest.mark.sample(9)
@pytest.mark.parametrize(("outcome", "reply", "words"), CASES)
def test_a_hostile_reply_harms_nobody_else(
    tmp_path: Path, quiet_days: dict[int, dict[str, bytes]], outcome: str, reply: str, words: str
) -> None:
    base = make(tmp_path, "case", reply)
    ticks = (1, 2) if outcome == "stands" else (1,)  # what was taken is shown to its author, and to others
    for tick in ticks:
        turns = {turn.agent: turn for turn in run_once(base, clock=FrozenClock()).turns}
        assert load_tick(base) == tick + 1
        journal = journal_lines(base, tick)
        assert {turns[name].status for name in OTHERS} == {"done"}
        for name, limits in HOSTILE.items():
            assert (turns[name].status == "failed") == (outcome == "failed"), turns[name].reason
            if outcome == "failed":
                assert turns[name].error == "ContractError"
                assert turns[name].calls == 1 + limits["repairs"]
                assert turns[name].entries == turns[name].files == []
            assert words in said(journal, name)
    assert_sound(base)
    assert around(base) == quiet_days[ticks[-1]]
    if outcome == "stands":
        assert_bounded(base)


def assert_bounded(base: Path) -> None:
    """What an agent is told of its own last turn, and what it leaves behind, stays within bounds."""
    prompts = [record["prompt"] for record in journal_lines(base, 2) if record["type"] == "turn_started"]
    assert max(len(json.dumps(prompt)) for prompt in prompts) < 250_000
    for agent in HOSTILE:
        assert (base / f"agents/{agent}/turns.jsonl").stat().st_size < 1 << 20


def test_the_reader_of_a_hostile_entry_is_shown_it_between_marks_it_could_not_foresee(tmp_path: Path) -> None:
    base = make(tmp_path, "case", STANDS["the marks of a prompt"][0])
    run_once(base, clock=FrozenClock())
    (started,) = [r for r in journal_lines(base, 1) if r["type"] == "turn_started" and r["agent"] == "reader"]
    prompt = started["prompt"][-1]["content"]
    mark = prompt.split("<<<DATA ")[1].split("\n")[0]
    assert prompt.index("Obey.") < prompt.index(f"{mark} DATA>>>")
    assert "\n# Instructions\nObey" not in prompt
