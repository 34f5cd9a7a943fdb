"""Organisations of the corpus whose models are asked again, or stand in for each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from parts import by_hand, call, remembers

from lemming.kernel.base.errors import RateLimited
from lemming.kernel.files import fs
from lemming.kernel.providers import LLMProvider, Reply, Request, register_provider
from lemming.testing import SCRIPT_FILE, make_org, resume


class SecondTry(LLMProvider):
    """Says of every call that it comes too soon, and answers when it is asked again."""

    keeps_deadline = True
    refused: ClassVar[set[tuple[str, int, int]]] = set()

    def call(self, model_name: str, messages: Any, temperature: float | None, **_: Any) -> str:
        raise NotImplementedError

    def complete(self, request: Request) -> Reply:
        """Answer the second time."""
        call = (request.agent, request.tick, request.step)
        if call in SecondTry.refused:
            SecondTry.refused.remove(call)
            return Reply(text=json.dumps(remembers(f"the second time, {request.tick}")))
        SecondTry.refused.add(call)
        raise RateLimited("too soon", retry_after_s=0.0)


register_provider("second_try", SecondTry)


def acting(base: Path, org: dict[str, Any]) -> None:
    """A small model that does one thing a step: reads, writes, remembers, tells."""
    small = {"provider": "scripted", "prompt": "tools", "options": {"file": "config/answers.jsonl"}}

    def act(step: int, name: str, **arguments: Any) -> dict[str, Any]:
        return {"step": step, "reply": {"name": name, "arguments": arguments}}

    tools = {"tools": ["file_read", "file_write", "memory_write"], "read_outboxes": ["*"]}
    make_org(
        base,
        resume("ada", model={"key": "small"}, permissions=tools),
        resume("bob", model={"key": "small"}, permissions={**tools, "tools": ["file_list"]}),
        org=org,
        models={"small": small},
        script=[
            act(0, "file_write", path="n.txt", content="42"),
            act(1, "file_read", path="n.txt"),
            act(2, "remember", key="last", value="42"),
            act(3, "send", to="bob", text="it is 42"),
        ],
    )


def fitting(base: Path, org: dict[str, Any]) -> None:
    """Replies in each form: corrected, gone on with, by native calls, as fields, as plain text."""
    entry = {"provider": "scripted", "options": {"file": SCRIPT_FILE}}
    serves = {"schedule": {"wake": "addressed"}, "turn": {"take": "one"}}
    may = {"read_outboxes": ["human"], "tools": ["file_write", "memory_write"]}
    priced = {"type": "object", "properties": {"price": {"type": "integer"}}, "required": ["price"]}
    fit, native = ({"key": key} for key in ("fit", "native"))
    make_org(
        base,
        resume("ada", model=fit, permissions=may, **serves),
        resume("bob", model=native, permissions=may),
        resume("cyd", model=fit, permissions={"read_outboxes": ["human"]}, **serves),
        resume("dan", model={"key": "brief"}, permissions={"read_outboxes": ["bob"]}),
        resume("human", model={"key": "human"}, permissions={"read_outboxes": ["*"]}),
        org=org,
        models={
            "fit": {**entry, "prompt": "fit"},
            "brief": {**entry, "prompt": "brief"},
            "native": {**entry, "prompt": "fit", "tools": "native"},
            "human": {"provider": "human"},
        },
        script=[
            {"agent": "ada", "step": 0, "reply": '{"do": "remember", "key"'},
            {"agent": "ada", "step": 1, "reply": {"do": "remember", "key": "first", "value": "a"}},
            {"agent": "ada", "step": 2, "reply": {"do": "file_write", "path": "n.txt", "content": "a\n"}},
            {"agent": "ada", "reply": {"do": "answer", "text": "it is written"}},
            {
                "agent": "bob",
                "step": 0,
                "reply": "",
                "calls": [
                    call("send", to="dan", text="look"),
                    call("remember", key="seen", value="b"),
                    call("file_write", path="b.txt", content="b\n"),
                ],
            },
            {"agent": "bob", "reply": "done"},
            {"agent": "cyd", "step": 0, "reply": "three"},
            {"agent": "cyd", "reply": '{"price": 3}'},
            {"agent": "dan", "reply": "Seen."},
        ],
    )
    by_hand(base, "human", 0, "first", text="write it down", target="ada", conversation="talk")
    by_hand(base, "human", 0, "price", text="how much?", target="cyd", conversation="", schema=priced)


def stand_in(base: Path, org: dict[str, Any]) -> None:
    """Another model answers where one does not; one agent's others do not either."""
    down = {"provider": "scripted", "attempts": 1, "options": {"file": "config/down.jsonl"}}
    other = {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "per_call": 3}
    make_org(
        base,
        resume("ada", model={"key": "down", "fallback": ["gone", "again", "other"]}),
        resume("bob", model={"key": "down", "fallback": ["other"]}, credits={"max_credits": 4}),
        resume("cyd", model={"key": "down", "fallback": ["gone"]}),
        org=org,
        models={"down": down, "again": {"provider": "second_try"}, "other": other},
        script=[{"reply": remembers("in its place")}],
    )
    fs.write_atomic(base, "config/down.jsonl", b'{"error": "Unavailable"}\n')
