"""The organisation of the corpus whose requests have goals, and whose turns are told something while they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import by_hand, call, remembers

from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import make_org, resume, say


def goals(base: Path, org: dict[str, Any]) -> None:
    """An answer held back by a check and a judge, one that never passes, and a word that waits for a running turn."""
    writes = [call("file_write", path="page.txt", content="title\n")]
    may = {"read_outboxes": ["*"], "tools": ["file_write", "memory_read"]}
    quiet = {"schedule": {"wake": "addressed"}}
    make_org(
        base,
        resume("ada", permissions=may, turn={"take": "one", "max_steps": 2}, **quiet),
        resume("bob", permissions=may, turn={"take": "one", "max_steps": 2}, **quiet),
        resume("critic", paused="it judges only"),
        resume("human", model={"key": "human"}),
        org=org,
        models={"human": {"provider": "human"}},
        script=[
            {"contains": '"first"', "reply": {"passes": False, "reason": "no"}},
            {"contains": '"untold"', "reply": {"passes": False, "reason": "nor this"}},
            {"contains": '"never"', "reply": {"passes": False, "reason": "not at all"}},
            {"contains": "Judge the draft", "reply": {"passes": True, "reason": ""}},
            {"agent": "ada", "contains": "Your answer has not left", "reply": remembers("second", kind="response")},
            {"agent": "ada", "step": 0, "reply": remembers("working", kind="status", tool_calls=writes)},
            {"agent": "ada", "reply": remembers("first", kind="response")},
            {"agent": "bob", "step": 0, "reply": say("busy", kind="status", tool_calls=[call("memory_read", key="x")])},
            {"agent": "bob", "contains": "in words", "reply": remembers("never", kind="response")},
            {"agent": "bob", "reply": say("untold", kind="response")},
        ],
    )
    by_hand(base, "human", 0, "word", kind="message", text="in words", target="bob", urgent=True)
    page = {"checks": [["test", "-s", "page.txt"]], "by": "critic"}
    for target, until in (("ada", page), ("bob", {"by": "critic", "max_turns": 2})):
        payload = {"text": "Write it.", "target": target, "conversation": "", "until": until}
        write_person_entry(base, "human", tick=1, kind="request", payload=payload, tags=[], created_at="")
