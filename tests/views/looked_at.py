"""An organisation for the tests of views: a person asks, two agents work together, one fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.engine import run_once
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import FrozenClock, make_org, resume, say

PRICED = {"provider": "scripted", "model": "m-1", "options": {"file": "config/answers.jsonl"},
          "usd_per_million_input_tokens": 2.0, "usd_per_million_output_tokens": 10.0}  # fmt: skip


def newsdesk(base: Path, **org: Any) -> Path:
    """A person writes to an editor, who asks a checker; a poet's model answers nonsense."""
    tools = {"read_outboxes": ["human", "checker"], "tools": ["file_write"]}
    make_org(
        base,
        resume("human", model={"key": "human"}),
        resume("editor", permissions=tools, team={"ask": ["checker"]}, credits={"max_credits": 50}),
        resume("checker", permissions={"read_outboxes": ["editor"], "tools": []}),
        resume("poet", permissions={"read_outboxes": [], "tools": []}, turn={"repairs": 0}),
        script=[
            {"agent": "editor", "tick": 1, "reply": editors_first()},
            {"agent": "editor", "reply": say("<script>alert(1)</script> rolls", memory_updates=[NEWS])},
            {"agent": "checker", "reply": say("320 is right")},
            {"agent": "poet", "reply": "no JSON at all"},
        ],
        models={"human": {"provider": "human"}, "scripted": PRICED},
        org=org or None,
    )
    return base


NEWS = {"key": "news", "value": "rolls"}


def editors_first() -> dict[str, Any]:
    """Return what the editor says first: it writes a file and asks the checker."""
    calls = [
        {"tool": "file_write", "args": {"path": "draft.txt", "content": "320 rolls"}},
        {"tool": "ask_checker", "args": {"message": "Were it 320?"}},
    ]
    return {**say("I have asked"), "tool_calls": calls}


def ran(base: Path, ticks: int) -> Path:
    """Run so many ticks, the first of which is shown what a person wrote."""
    for tick in range(1, ticks + 1):
        if tick == 1:
            payload = {"text": "Write about the rolls.", "target": "editor"}
            write_person_entry(base, "human", tick=1, kind="request", payload=payload, tags=[], created_at="")
        run_once(base, clock=FrozenClock())
    return base
