"""What was asked is the same again: in a replay without a call, and however many turns run at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked import PEOPLE, person
from terminal import Lemming

from lemming.client.ask_client import ask
from lemming.obligations.org_requests import load_requests
from lemming.testing import FrozenClock, make_org, resume, say, tree
from lemming.testing.scripted_person import ScriptedPerson

SERVES = {"schedule": {"wake": "addressed"}, "turn": {"take": "one"}}
QUESTIONS = 5


def reply(*targets: str) -> dict[str, Any]:
    entries = [{"kind": "request", "payload": {"text": f"{it}?", "target": it}, "tags": []} for it in targets]
    return {"outbox_entries": entries, "tool_calls": [], "memory_updates": [], "notes": ""}


def asked(base: Path, **settings: Any) -> Path:
    """Ask a desk five questions, of which each goes to two agents and a person, and one is refused."""
    script = [
        {"agent": "desk", "contains": "What you asked for it", "reply": say("all three", kind="response")},
        {"agent": "desk", "reply": reply("ada", "bob", "eve")},
        {"reply": say("mine", kind="response")},
    ]
    agents = (resume(name, **SERVES) for name in ("desk", "ada", "bob"))
    make_org(base, *agents, person(), person("eve"), script=script, models=PEOPLE, org=settings or None)
    eve = ScriptedPerson("eve", (r"eve", "hers"))
    for number in range(QUESTIONS):
        outcome = ask(
            base,
            "desk",
            f"question {number}",
            person="human",
            clock=FrozenClock(),
            at_work=lambda _: eve.answer(base) and None,
        )
        assert outcome.answer == "all three"
    return base


def files(base: Path) -> dict[str, bytes]:
    """Return what turns wrote; a person's entries bear the time of day."""
    left_out = ("agents/human/outbox/", "config/org.json")
    return {path: raw for path, raw in tree(base).items() if not path.startswith(left_out)}


def test_a_replay_agrees_and_makes_no_call(base: Path, lemming: Lemming) -> None:
    asked(base)
    assert lemming("verify").status == 0
    replayed = lemming("replay", "--json")
    assert replayed.status == 0, replayed.err
    assert all(it.get("is_same", True) for it in replayed.objects)


@pytest.mark.sample(3)
@pytest.mark.parametrize("parallel", [2, 8, 64])
def test_the_same_bytes_however_many_turns_run_at_once(base: Path, tmp_path: Path, parallel: int) -> None:
    alone, together = asked(base, max_parallel=1), asked(tmp_path / "other", max_parallel=parallel)
    assert files(alone) == files(together)


def test_what_requests_cost_adds_up_to_the_ledgers(base: Path, lemming: Lemming) -> None:
    asked(base)
    roots = [it for it in lemming("requests", "--json", "-n", "1000").objects if it["parent"] is None]
    spent = sum(it["cost_with_children"]["credits"] for it in roots)
    in_ledgers = sum(it["credits"] for it in lemming("status", "--json").objects[0]["agents"])
    assert (len(roots), spent) == (QUESTIONS, in_ledgers)
    assert len(load_requests(base).requests) == QUESTIONS * 4
