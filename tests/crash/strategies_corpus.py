"""The organisation of the corpus whose agents take their turns by strategies, one of them a plugin's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parts import by_hand, call, remembers

from lemming.strategies import Steps, Turn, strategy
from lemming.testing import make_org, resume, say


@strategy("twice", given=lambda before: {"knows": sorted(before.memories)})
def twice(turn: Turn) -> Steps:
    """Ask for a sketch, then for a reply that has seen it."""
    messages = turn.prompt
    sketch = yield from turn.ask(messages, schema={})
    knows = f"You know {turn.snapshot['knows']}. Now write it."
    messages += [{"role": "assistant", "content": sketch.text}, {"role": "user", "content": knows}]
    yield from turn.act((yield from turn.ask_reply(messages)))
    return "done"


def strategies(base: Path, org: dict[str, Any]) -> None:
    """Sketches before replies, one for a request, and drafts that are judged."""
    drafts = [
        {"contains": "Judge the draft", "reply": {"passes": False, "reason": "longer"}},
        {"contains": "longer", "reply": remembers("a better one")},
        {"agent": "fay", "contains": "Now write it", "reply": say("asked", kind="response")},
        {"contains": "Now write it", "reply": remembers("written")},
        {"agent": "fay", "reply": "a sketch"},
        {"agent": "gus", "reply": "a sketch"},
    ]
    again = [{"agent": "hal", "reply": say("again", tool_calls=[call("memory_read", key="none")])}]
    make_org(
        base,
        resume("bob", verify={"by": "scripted", "policy": "Is it long?", "max": 2, "then": "pass"}),
        resume("cyd", verify={"by": "dan", "max": 2, "then": "flag"}),
        resume("dan"),
        resume("fay", permissions={"read_outboxes": ["*"]}, turn={"strategy": "twice", "take": "one"}),
        resume("gus", turn={"strategy": "twice"}, credits={"max_credits": 3}),
        resume("human", model={"key": "human"}),
        resume("hal", turn={"strategy": "react"}),
        org=org,
        script=[*again, *drafts, {"reply": remembers("a draft")}],
    )
    by_hand(base, "human", 0, "5e7c09a6a8b2", text="See.", target="fay", conversation="")
