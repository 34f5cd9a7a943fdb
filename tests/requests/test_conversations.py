"""What a person asks in a conversation that was handed on, and that they have seen the answer."""

from __future__ import annotations

import re
from pathlib import Path

from asked import org_of, prompts, tick
from test_team import QUIET, calls

import lemming
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.messages import list_outbox
from lemming.kernel.tick.tick_counter import load_tick
from lemming.testing import FrozenClock, resume, say


def test_the_next_question_of_a_conversation_goes_to_whom_the_last_was_handed_on(tmp_path: Path) -> None:
    script = [
        {"agent": "desk", "contains": "bill", "reply": calls(("hand_to_billing", {"message": "a bill"}))},
        {"agent": "billing", "reply": say("paid")},
        {"agent": "desk", "reply": say("from the desk")},
    ]
    desk = resume("desk", team={"hand_to": ["billing"]}, **QUIET)
    org = org_of(tmp_path, desk, resume("billing", **QUIET), script=script)

    def ask(text: str, conversation: str) -> object:
        return lemming.ask(org, "desk", text, conversation=conversation, clock=FrozenClock()).answer

    assert ask("where is my bill?", "money") == "paid"
    assert ask("and when?", "money") == "paid"
    assert ask("and when?", "other") == "from the desk"


def test_an_answer_that_was_returned_counts_as_seen(tmp_path: Path) -> None:
    org = org_of(tmp_path, resume("ada", **QUIET))
    lemming.ask(org, "ada", "what?", clock=FrozenClock())
    assert all(map(read_state(org, "human").read.has_seen, list_outbox(org, "ada")))


def test_the_answer_never_stands_before_its_question(tmp_path: Path) -> None:
    script = [{"agent": name, "reply": say(f"{name} says it", kind="response")} for name in ("desk", "zoe")]
    names = ("desk", "zoe")  # of whom one comes before "human", and one after
    org = org_of(tmp_path, *(resume(name, **QUIET) for name in names), resume("reader"), script=script)
    for name in names:
        for text in ("first question", "second question", "third question"):
            lemming.ask(org, name, text, conversation="talk", clock=FrozenClock())
        shown = prompts(org, load_tick(org) - 1)[name].partition("Said before")[2]
        said = re.findall(r"first question|second question|third question|says it", shown)
        assert said[:4] == ["first question", "says it", "second question", "says it"]
    shown = prompts(org, tick(org).tick)["reader"]
    assert shown.index("first question") < shown.index("desk says it")
