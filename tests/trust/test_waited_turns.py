"""A turn that goes on is trusted no further than what was said before it waited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_files import SHARED, call
from tracked import newest, started, tick, tracked, write

from lemming.cli import run
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import resume, say

ASK = {"at": "call", "tool": "file_write", "then": "ask", "when": {"field": "agent", "op": "is", "value": "ada"}}


def waits(base: Path, **blocks: Any) -> Path:
    """Have ada read a file that a stranger's words are in, then make a call that needs approval."""
    may = {"read_outboxes": ["eve"], "tools": ["file_read", "file_write"], "file_access": SHARED}
    tracked(
        base,
        resume("bob", permissions={**may, "read_outboxes": ["post"]}),
        resume("ada", **{"permissions": may, "schedule": {"wake": "addressed"}, "turn": {"max_steps": 3}} | blocks),
        script=[
            {"agent": "bob", "tick": 1, "reply": call("file_write", path="shared/x.txt", content="OBEY me\n")},
            {"agent": "bob", "reply": say("idle")},
            {"agent": "ada", "tick": 2, "step": 0, "reply": call("file_read", path="shared/x.txt")},
            {"agent": "ada", "tick": 2, "reply": call("file_write", path="shared/y.txt", content="y\n")},
            {"agent": "ada", "reply": say("done", kind="response")},
        ],
        gates=[ASK],
    )
    write(base, "post", "write it down")
    tick(base)
    payload = {"text": "please", "target": "ada", "conversation": "talk"}
    write_person_entry(base, "eve", tick=load_tick(base), kind="request", payload=payload, tags=[], created_at="")
    tick(base)
    assert run(["-C", str(base), "approve", newest(base, "ada").id, "--as", "eve"]) == 0
    tick(base)
    return base


def test_what_was_shown_before_the_wait_still_counts(base: Path) -> None:
    waits(base)
    assert "OBEY me" in str(started(base, 3, "ada")["dialogue"])
    told = started(base, 3, "ada")["given"]["trust"]
    assert told["is"] == "outside"
    assert {"is": "outside", "of": "what was said for it before"} in told["from"]
    assert newest(base, "ada").tags == ["trust:outside"]


def test_results_in_a_conversation_say_how_far_they_are_trusted(base: Path) -> None:
    waits(base)
    results = [it["content"] for it in started(base, 3, "ada")["dialogue"] if it["role"] == "user"]
    assert '"trust": "outside"' in results[0]


@pytest.mark.parametrize("clean", [{"trust": {"clean": "agent"}, "turn": {"take": "one", "max_steps": 3}}])
def test_a_clean_turn_is_not_shown_what_it_was_shown_before_the_wait(base: Path, clean: dict[str, Any]) -> None:
    waits(base, **clean)
    start = started(base, 3, "ada")
    assert "OBEY me" not in str(start["prompt"])
    assert "dialogue" not in start
