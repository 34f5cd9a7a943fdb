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
    """A plan over two turns, one for a request with a step that fails, and drafts that are judged."""
    asked = say("asked", kind="response")
    look = [call("file_list")]
    tools = {"tools": ["file_write", "file_list"], "read_outboxes": ["*"]}
    steps = [
        {"contains": "First make a plan", "reply": {"goal": "see", "steps": ["look", "write"]}},
        {"contains": "Plan again", "reply": {"goal": "see", "steps": ["guess"]}},
        {"contains": "take step 1,", "reply": say("looking", tool_calls=look)},
        {"contains": "Results of your tool calls", "reply": say("nothing is there")},
        {"agent": "fay", "contains": "take step 2,", "reply": say("FAILED: nothing to write")},
        {"contains": "take step 2,", "reply": say("wrote", tool_calls=[call("file_write", path="a", content="1")])},
        {"contains": "take step 3,", "reply": say("guessed")},
        {"agent": "fay", "contains": "Sum up", "reply": asked},
        {"contains": "Sum up", "reply": remembers("all is seen")},
    ]
    drafts = [
        {"contains": "Judge the draft", "reply": {"passes": False, "reason": "longer"}},
        {"contains": "A critic wants", "reply": remembers("a better one")},
        {"agent": "gus", "contains": "Now write it", "reply": remembers("written")},
        {"agent": "gus", "reply": "a sketch"},
    ]
    again = [{"agent": "hal", "reply": say("again", tool_calls=[call("memory_read", key="none")])}]
    planned = {"strategy": "plan_execute", "max_steps": 3}
    make_org(
        base,
        resume("ada", permissions=tools, turn=planned),
        resume("bob", turn={"strategy": "reflexion", "options": {"rubric": "Is it long?"}}),
        resume("cyd", turn={"strategy": "reflexion", "options": {"agent": "dan"}}),
        resume("dan"),
        resume("fay", permissions=tools, turn={**planned, "take": "one", "options": {"replans": 1}}),
        resume("gus", turn={"strategy": "twice"}, credits={"max_credits": 3}),
        resume("human", model={"key": "human"}),
        resume("hal", turn={"strategy": "react"}),
        org=org,
        script=[*again, *steps, *drafts, {"reply": remembers("a draft")}],
    )
    by_hand(base, "human", 0, "5e7c09a6a8b2", text="See.", target="fay", conversation="")
