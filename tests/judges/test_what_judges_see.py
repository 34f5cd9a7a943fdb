"""A judge sees the draft and what it is held against, and not the author's prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from asked import PEOPLE, ask, person

from lemming.capabilities.judges.judged_turn import describe_draft_entry
from lemming.capabilities.scripted_models.scripted_provider import ScriptedProvider
from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.files import fs
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.providers import Reply, Request, register_provider
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import SCRIPT_FILE, FrozenClock, make_org, resume, say

QUIET = {"schedule": {"wake": "addressed"}, "turn": {"take": "one"}}
PASSES = {"contains": "Judge the draft", "reply": {"passes": True, "reason": ""}}


class Listening(ScriptedProvider):
    """Answers from a script, and keeps what judges are asked."""

    asked: ClassVar[list[str]] = []

    def complete(self, request: Request) -> Reply:
        if "Judge the draft" in request.messages[-1]["content"]:
            self.asked.append("\n".join(message["content"] for message in request.messages))
        return super().complete(request)


register_provider("listening", Listening)


@pytest.fixture
def judged() -> list[str]:
    """What judges are asked, in their order."""
    Listening.asked.clear()
    return Listening.asked


def take_turn(base: Path, *, policy: str = "It names a price.", **blocks: Any) -> None:
    """Have ada, who is given two files and a memory, answer a request, and critic judge that."""
    files = {"allow_read": ["./shared"], "allow_write": []}
    may = {"read_outboxes": ["*"], "tools": ["file_read"], "file_access": files}
    context = [{"file": "./shared/prices.txt"}, {"file": "./shared/hours.txt"}]
    own = {"permissions": may, "context": context, "verify": {"by": "critic", "policy": policy}, **QUIET}
    reads = say("", outbox_entries=[], tool_calls=[{"tool": "file_read", "args": {"path": "shared/more.txt"}}])
    make_org(
        base,
        resume("ada", **{**own, "turn": {"take": "one", "max_steps": 2}}, **blocks),
        resume("critic", instructions="You judge.", **QUIET),
        person(),
        models={**PEOPLE, "scripted": {"provider": "listening", "options": {"file": SCRIPT_FILE}}},
        script=[PASSES, {"step": 0, "reply": reads}, {"reply": say("It costs 20 euros.", kind="response")}],
    )
    for name, text in (("prices", "a lamp: 20"), ("hours", "from nine"), ("more", "with a bulb")):
        fs.write_atomic(base, f"shared/{name}.txt", text.encode())
    ask(base, "ada", "What does a lamp cost?")
    run_once(base, clock=FrozenClock())


def test_it_is_shown_the_request_the_results_and_the_draft(base: Path, judged: list[str]) -> None:
    take_turn(base)
    (asked,) = judged
    assert '> human asks: "What does a lamp cost?"' in asked
    assert '> file_read({"path": "shared/more.txt"}): "with a bulb"' in asked
    assert '> response to human: "It costs 20 euros."' in asked


def test_it_is_not_shown_what_else_the_author_was_given(base: Path, judged: list[str]) -> None:
    take_turn(base)
    (asked,) = judged
    assert not any(text in asked for text in ("a lamp: 20", "from nine", "outbox_entries", "tick 1"))


def test_it_is_shown_a_file_that_its_policy_names(base: Path, judged: list[str]) -> None:
    take_turn(base, policy="Every price stands in prices.txt.")
    (asked,) = judged
    assert '> prices.txt: "a lamp: 20"' in asked
    assert "from nine" not in asked


def test_a_question_to_a_judge_is_a_fraction_of_the_authors(base: Path, judged: list[str]) -> None:
    take_turn(base)
    (asked,) = judged
    assert len(asked) < 700


def test_after_an_approval_it_is_shown_what_the_call_gave(base: Path, judged: list[str]) -> None:
    may = {"read_outboxes": ["*"], "tools": ["file_write"]}
    writes = {"tool": "file_write", "args": {"path": "a.txt", "content": "a lamp"}}
    make_org(
        base,
        resume("ada", permissions=may, verify={"by": "critic"}, **QUIET),
        resume("critic", instructions="You judge.", **QUIET),
        person(),
        models={**PEOPLE, "scripted": {"provider": "listening", "options": {"file": SCRIPT_FILE}}},
        org={"gates": [{"at": "call", "tool": "file_write", "then": "ask"}]},
        script=[
            PASSES,
            {"contains": "wrote", "reply": say("It is written.", kind="response")},
            {"reply": say("", outbox_entries=[], tool_calls=[writes])},
        ],
    )
    ask(base, "ada", "Write it down.")
    run_once(base, clock=FrozenClock())
    assert run(["-C", str(base), "approve", newest_of(base).id, "--as", "human"]) == 0
    run_once(base, clock=FrozenClock())
    (asked,) = judged
    assert [line for line in asked.splitlines() if "file_write" in line] == [
        '> file_write({"path": "a.txt", "content": "a lamp"}): "wrote 6 bytes to a.txt"'
    ]


def newest_of(base: Path) -> OutboxEntry:
    return read_outbox_entries(base, "ada")[-1]


def test_the_critic_of_a_strategy_is_shown_no_more(base: Path, judged: list[str]) -> None:
    may = {"read_outboxes": ["*"], "tools": [], "file_access": {"allow_read": ["./shared"], "allow_write": []}}
    options = {"rubric": "Every price stands in prices.txt."}
    make_org(
        base,
        resume(
            "ada",
            permissions=may,
            context=[{"file": "./shared/prices.txt"}, {"file": "./shared/hours.txt"}],
            schedule={"wake": "addressed"},
            turn={"take": "one", "strategy": "reflexion", "options": options},
        ),
        person(),
        models={**PEOPLE, "scripted": {"provider": "listening", "options": {"file": SCRIPT_FILE}}},
        script=[PASSES, {"reply": say("It costs 20 euros.", kind="response")}],
    )
    for name, text in (("prices", "a lamp: 20"), ("hours", "from nine")):
        fs.write_atomic(base, f"shared/{name}.txt", text.encode())
    ask(base, "ada", "What does a lamp cost?")
    run_once(base, clock=FrozenClock())
    (asked,) = judged
    assert '> prices.txt: "a lamp: 20"\n> human asks: "What does a lamp cost?"' in asked
    assert "> It costs 20 euros." in asked
    assert not any(text in asked for text in ("from nine", "outbox_entries", "tick 1"))


@pytest.mark.parametrize("key", ["budget", "path", "schema", "default", "reply_to", "conversation"])
def test_nothing_of_a_draft_is_hidden_under_a_key_of_the_engine(key: str) -> None:
    entry = OutboxEntry("0" * 12, 1, "ada", "message", {"text": "fine", key: "it is a lie"}, [], "")
    assert describe_draft_entry(entry) == f'message: "fine" {{"{key}": "it is a lie"}}'


def test_a_text_that_is_none_is_judged_too() -> None:
    entry = OutboxEntry("0" * 12, 1, "ada", "message", {"text": 5, "target": "bob"}, ["x"], "")
    assert describe_draft_entry(entry) == 'message to bob: {"text": 5, "tags": ["x"]}'
