"""Scripted people, and what validate says of requests that reach nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked import org_of, person
from desk import put
from terminal import Lemming

from lemming.client.ask_client import ask
from lemming.engine import ticks
from lemming.obligations.org_requests import load_requests
from lemming.obligations.request_view import RequestView
from lemming.obligations.waiting_items import list_person_inbox
from lemming.testing import FrozenClock, make_org, resume, say
from lemming.testing.scripted_person import ScriptedPerson, answer_each_tick

ONE = {"turn": {"take": "one"}, "schedule": {"wake": "addressed"}}


def to(target: str, text: str, **payload: Any) -> dict[str, Any]:
    reply = say("", kind="request")
    reply["outbox_entries"][0]["payload"] = {"text": text, "target": target, **payload}
    return reply


def test_a_scripted_person_answers_by_pattern_and_sleeps_through_the_rest(tmp_path: Path) -> None:
    org = org_of(tmp_path, resume("ada"), resume("bob"))
    put(org, "ada", "request", 0, text="May I publish it?", target="human")
    put(org, "bob", "request", 0, text="Which colour?", target="human")
    put(org, "bob", "request", 0, text="Are you there?", target="human")

    def colour(request: RequestView) -> dict[str, Any]:
        return {"text": f"{request.asker} may choose", "status": "refused"}

    eve = ScriptedPerson("human", ("publish", "Yes."), ("colo[u]?r", colour), ("there", None))
    assert [entry.payload["text"] for entry in eve.answer(org)] == ["Yes.", "bob may choose"]
    assert [it.end for it in load_requests(org).requests] == ["answered", "refused", None]
    assert eve.answer(org) == []


def test_people_answer_between_ticks(tmp_path: Path) -> None:
    script = [
        {"agent": "ada", "contains": "Yes.", "reply": say("published", kind="response")},
        {"agent": "ada", "reply": to("eve", "May I publish it?")},
    ]
    org = org_of(tmp_path, person("eve"), resume("ada", **ONE), script=script)
    put(org, "human", "request", 1, text="Publish it", target="ada", conversation="")
    eve = ScriptedPerson("eve", ("publish", "Yes."))
    reports = answer_each_tick(ticks(org, until_quiet=True, clock=FrozenClock()), org, eve)
    assert [report.tick for report in reports] == [1, 2]
    assert [it.end for it in load_requests(org).requests] == ["answered", "answered"]
    assert list_person_inbox(org) == []


def test_a_scripted_person_answers_what_is_asked_while_somebody_waits(tmp_path: Path) -> None:
    script = [
        {"agent": "ada", "contains": "Yes.", "reply": say("published", kind="response")},
        {"agent": "ada", "reply": to("eve", "May I publish it?")},
    ]
    org = org_of(tmp_path, person("eve"), resume("ada", **ONE), script=script)
    eve = ScriptedPerson("eve", ("publish", "Yes."))
    outcome = ask(org, "ada", "Publish it", clock=FrozenClock(), at_work=lambda _: eve.answer(org) and None)
    assert outcome.answer == "published"


@pytest.mark.parametrize(
    ("reads", "reader", "said"),
    [
        ({"ada": ["bob"], "bob": []}, "bob", "does not reach it"),
        ({"ada": [], "bob": ["ada"]}, "ada", "no answer to what ada asks bob"),
    ],
)
def test_validate_says_which_line_is_missing(
    base: Path, lemming: Lemming, reads: dict[str, list[str]], reader: str, said: str
) -> None:
    agents = (resume(name, permissions={"read_outboxes": reads[name], "tools": []}) for name in reads)
    make_org(base, *agents)
    put(base, "ada", "request", 1, text="please", target="bob")
    (found,) = [it for it in lemming("validate", "--json").objects if said in it["message"]]
    assert found["file"] == f"agents/{reader}/resume.json"
    assert (found["pointer"], found["severity"]) == ("/permissions/read_outboxes", "warning")
    assert f'add "{"ada" if reader == "bob" else "bob"}"' in found["hint"]
    assert said in lemming("validate", reader).err
    other = "ada" if reader == "bob" else "bob"
    assert said not in lemming("validate", other).err


def test_validate_offers_to_cancel_the_request_that_reaches_nobody(base: Path, lemming: Lemming) -> None:
    agents = (resume(name, permissions={"read_outboxes": ["ada"], "tools": []}) for name in ("ada", "bob", "cid"))
    make_org(base, *agents)
    for target in ("bob", "cid"):
        put(base, "ada", "request", 1, text="please", target=target)
    found = [it for it in lemming("validate", "--json").objects if "no answer to what ada asks" in it["message"]]
    assert len(found) == 2
    for problem in found:
        request = problem["message"].partition("(")[2].partition(")")[0]
        assert f"`lemming cancel {request}`" in problem["hint"]
