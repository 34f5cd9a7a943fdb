"""How turns in small forms end: they do not ask for ever, and keep what was said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.memory import load_memory
from lemming.kernel.providers import LLMProvider, Message, Reply, Request, register_provider
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.testing import FrozenClock, make_org, resume


class Native(LLMProvider):
    """A backend that calls tools by itself, and keeps what it is asked."""

    takes_tools = prefers_tools = True
    takes_schema = False
    heard: ClassVar[list[Request]] = []
    replies: ClassVar[list[Reply]] = []

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **_: Any) -> str:
        """Not used."""
        raise NotImplementedError

    def complete(self, request: Request) -> Reply:
        """Give the next reply, the last one for ever."""
        Native.heard.append(request)
        return self.replies[min(len(self.heard), len(self.replies)) - 1]


class Acting(Native):
    """A backend that takes a schema, and writes actions as text."""

    takes_tools = prefers_tools = False
    takes_schema = True


STYLES = {"native": Native, "actions": Acting}


@pytest.fixture(params=STYLES)
def style(request: pytest.FixtureRequest) -> str:
    """Return the style of the replies."""
    Native.heard.clear()
    return str(request.param)


def does(style: str, name: str, **arguments: Any) -> Reply:
    """Return a reply that takes one action."""
    if style == "native":
        return Reply("", calls=({"id": "1", "tool": name, "args": arguments},))
    return Reply(json.dumps({"do": name, **arguments}))


def take_turn(
    base: Path, style: str, replies: Sequence[Reply], askers: Sequence[str] = (), **blocks: Any
) -> TurnReport:
    """Run a tick and return ada's turn; `askers`: who asks it for something."""
    Native.replies[:] = replies
    register_provider(style, STYLES[style])
    tools = {"tools": ["file_list", "memory_write"], "read_outboxes": ["bob", "eve"]}
    ada = resume("ada", model={"key": style}, permissions=tools, **blocks)
    people = [resume(name, model={"key": "human"}, permissions={"read_outboxes": ["ada"]}) for name in ("bob", "eve")]
    models = {style: {"provider": style}, "human": {"provider": "human"}}
    made = make_org(base, ada, *people, models=models)
    for asker in askers:
        payload = {"text": "How many?", "target": "ada"}
        write_person_entry(made, asker, tick=0, kind="request", payload=payload, tags=[], created_at="")
    turn = next(turn for turn in run_once(made, clock=FrozenClock()).turns if turn.agent == "ada")
    assert [replayed.turns for replayed in replay_ticks(made, [1])] == [1]
    return turn


def offered(request: Request) -> str:
    """Return what a question offers: its tools, or its schema."""
    return json.dumps(request.messages[0].get("tools") or request.schema)


KEEPS = {"key": "town", "value": "Oslo"}


def test_a_model_that_remembers_for_ever_is_no_longer_offered_to_remember_and_ends(base: Path, style: str) -> None:
    turn = take_turn(base, style, [does(style, "remember", **KEEPS)])
    assert (turn.status, turn.calls) == ("done", 3)
    assert ['"remember"' in offered(it) for it in Native.heard] == [True, True, False]
    assert load_memory(base, "ada", "town") == "Oslo"


def test_several_memories_are_kept_one_after_another(base: Path, style: str) -> None:
    each = [does(style, "remember", key=f"k{number}", value="v") for number in range(4)]
    assert take_turn(base, style, [*each, does(style, "send", to="bob", text="hi")]).calls == 5
    assert load_memory(base, "ada", "k3") == "v"


def test_what_was_remembered_is_kept_where_nothing_more_can_be_read(base: Path, style: str) -> None:
    turn = take_turn(base, style, [does(style, "remember", **KEEPS), Reply("")])
    assert turn.status == "done"
    assert load_memory(base, "ada", "town") == "Oslo"


def test_a_backend_that_says_no_more_after_its_calls_has_ended(base: Path) -> None:
    Native.heard.clear()
    turn = take_turn(base, "native", [does("native", "file_list"), Reply("")])
    assert (turn.status, turn.calls, turn.remarks) == ("done", 2, [])


def test_an_action_that_a_backend_writes_as_text_is_followed_by_a_question(base: Path) -> None:
    Native.heard.clear()
    take_turn(base, "native", [does("actions", "remember", **KEEPS), does("native", "send", to="bob", text="x")])
    assert Native.heard[1].messages[-1]["role"] == "user"


def test_a_message_to_nobody_there_is_corrected_as_a_message(base: Path) -> None:
    Native.heard.clear()
    sends = [does("native", "send", to=name, text="secret") for name in ("zed", "bob")]
    take_turn(base, "native", sends)
    assert "Call send with values like these" in Native.heard[1].messages[-1]["content"]
    assert [it.payload["target"] for it in read_outbox_entries(base, "ada")] == ["bob"]


def test_a_plain_text_that_was_cut_off_is_told_of(base: Path) -> None:
    Native.heard.clear()
    turn = take_turn(base, "native", [Reply("Half an ans", finish="length")])
    assert "the reply was cut off at the token limit" in turn.remarks[0]


def test_an_agent_whose_kinds_are_limited_answers_a_request_among_its_entries(base: Path) -> None:
    Native.heard.clear()
    limits = {"take": "all", "kinds": ["report"]}
    turn = take_turn(base, "native", [Reply("Five.")], ["bob"], turn=limits)
    assert (turn.status, turn.calls) == ("done", 1)
    assert [it.kind for it in read_outbox_entries(base, "ada")] == ["response"]


def test_a_plain_text_where_several_wait_is_asked_for_as_an_answer_to_one(base: Path) -> None:
    Native.heard.clear()
    turn = take_turn(base, "native", [Reply("Five.")], ["bob", "eve"], turn={"take": "all"})
    assert turn.status == "failed"
    assert "Call answer with values like these" in Native.heard[1].messages[-1]["content"]
    assert read_outbox_entries(base, "ada") == []


def test_the_only_entry_of_a_turn_is_its_answer(base: Path, style: str) -> None:
    text = "Five." if style == "native" else json.dumps({"do": "answer", "text": "Five."})
    limits = {"take": "one", "max_entries": 1}
    turn = take_turn(base, style, [Reply(text)], ["bob"], turn=limits)
    assert (turn.status, turn.calls) == ("done", 1)
    assert '"send"' not in offered(Native.heard[0])


def test_a_text_beside_what_is_remembered_is_the_answer_where_no_more_is_said(base: Path) -> None:
    Native.heard.clear()
    keeps = Reply("It is Oslo.", calls=({"id": "1", "tool": "remember", "args": KEEPS},))
    turn = take_turn(base, "native", [keeps, Reply("")], ["bob"], turn={"take": "one"})
    assert (turn.status, turn.calls) == ("done", 2)
    assert [it.payload["text"] for it in read_outbox_entries(base, "ada")] == ["It is Oslo."]
    assert load_memory(base, "ada", "town") == "Oslo"


def test_a_turn_that_may_ask_once_and_remembers_is_done(base: Path, style: str) -> None:
    turn = take_turn(base, style, [does(style, "remember", **KEEPS)], turn={"max_steps": 1})
    assert (turn.status, turn.end, turn.calls) == ("done", "done", 1)
    assert load_memory(base, "ada", "town") == "Oslo"
