"""A request whose asker's resume is broken: nobody knows who is to judge the answer, so it waits."""

from __future__ import annotations

import json
from pathlib import Path

from lemming.engine import run_once
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, make_org, resume, say

ASKED = {"turn": {"take": "one"}, "schedule": {"wake": "addressed"}}
ASKS_BOB = {"tool_calls": [{"tool": "ask_bob", "args": {"message": "Is it so?"}}]}
ASKS_ADA = {"tool_calls": [{"tool": "ask_ada", "args": {"message": "Is it so?"}}]}
SCRIPT = [
    {"agent": "eve", "tick": 1, "reply": ASKS_ADA},
    {"agent": "ada", "tick": 2, "reply": ASKS_BOB},
    {"agent": "ada", "contains": "Judge the draft", "reply": {"passes": True, "reason": ""}},
    {"agent": "ada", "reply": say("It is.", kind="response")},
    {"agent": "bob", "reply": say("Yes.", kind="response")},
    {"reply": say("hello")},
]


def test_its_answer_waits_until_the_resume_is_mended_and_is_judged_then(base: Path) -> None:
    eve = resume("eve", team={"ask": [{"agent": "ada", "verify": {"by": "bob"}}]})
    make_org(base, resume("ada", team={"ask": ["bob"]}, **ASKED), resume("bob", **ASKED), eve, script=SCRIPT)
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    file = base / "agents/eve/resume.json"
    sound = file.read_bytes()
    file.write_text(json.dumps({**json.loads(sound), "titel": "Eve"}))
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    assert [it.kind for it in read_outbox_entries(base, "ada")] == ["request"]
    file.write_bytes(sound)
    turns = {turn.agent: turn for turn in run_once(base, clock=FrozenClock()).turns}
    assert turns["ada"].judged
    assert turns["ada"].judged["passed"]
    assert [it.kind for it in read_outbox_entries(base, "ada")] == ["request", "response"]
