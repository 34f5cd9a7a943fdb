"""Organisations of the corpus whose models are asked again, or stand in for each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from parts import remembers

from lemming.kernel.base.errors import RateLimited
from lemming.kernel.files import fs
from lemming.kernel.providers import LLMProvider, Reply, Request, register_provider
from lemming.testing import make_org, resume


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

    tools = {"tools": ["file_read", "file_write"], "read_outboxes": ["*"]}
    make_org(
        base,
        resume("ada", model={"key": "small"}, permissions=tools),
        resume("bob", model={"key": "small"}, permissions={**tools, "tools": ["file_list"]}),
        org=org,
        models={"small": small},
        script=[
            act(0, "file_write", path="n.txt", content="42"),
            act(1, "file_read", path="n.txt"),
            act(2, "memory_write", key="last", value="42"),
            act(3, "send_message", text="it is 42"),
        ],
    )


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
    fs.publish(base, "config/down.jsonl", b'{"error": "Unavailable"}\n')
