"""An answer whose form has a word of requests as a field stands apart from what the engine keeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from asked import answers, org_of
from asked import ask as write
from asked import tick as run_tick
from test_taking import ONE, entry, reply
from test_team import QUIET

from lemming.client.ask_client import ask
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.inboxes.answer_payload import REQUEST_KEYS
from lemming.libraries.conditions.predicates import get_field
from lemming.obligations.answer_fields import parse_answer
from lemming.obligations.org_requests import find_request, load_requests
from lemming.obligations.request_entries import write_answer
from lemming.testing import FrozenClock, make_org, resume

WORDS = sorted(REQUEST_KEYS - {"text"})


@dataclass
class Ticket:
    """A form that is all words of requests."""

    status: str
    target: str
    deadline: int
    reply_to: str


TICKET = {"status": "failed", "target": "the moon", "deadline": 3, "reply_to": "nobody"}


def form(*names: str) -> dict[str, Any]:
    fields = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": fields, "required": [*names], "additionalProperties": False}


@pytest.mark.parametrize("is_apart", [False, True])
def test_a_form_of_words_of_requests_is_filled_in_and_comes_back(base: Path, is_apart: bool) -> None:
    fields: dict[str, Any] = {"answer": TICKET} if is_apart else TICKET
    org_of(base, resume("ada", **QUIET), script=[{"reply": reply(entry("response", "done", **fields))}])
    outcome = ask(base, "ada", "what?", returns=Ticket, clock=FrozenClock())
    assert outcome.end == "answered"
    assert outcome.value == Ticket(**TICKET)


@pytest.mark.sample(5)
@pytest.mark.parametrize("word", WORDS)
def test_no_word_of_requests_in_a_form_changes_what_becomes_of_the_request(base: Path, word: str) -> None:
    org_of(base, resume("ada", **QUIET), script=[{"reply": reply(entry("response", "done", **{word: "failed"}))}])
    request = write(base, "ada", schema=form(word))
    run_tick(base)
    payload = answers(base, "ada")[request.id]
    assert (payload["answer"], payload["target"], payload.get("status")) == ({word: "failed"}, "human", None)
    found = find_request(load_requests(base).requests, request.id)
    assert (found.end, parse_answer(payload, found.schema)) == ("answered", {word: "failed"})


OF_PARTS: dict[str, dict[str, Any]] = {
    "in what it refers to": {"$ref": "#/$defs/it", "$defs": {"it": form("status")}},
    "in one of its parts": {"allOf": [{"type": "object"}, {"anyOf": [form("status"), form("price")]}]},
    "required, and not described": {"type": "object", "required": ["status"]},
}


@pytest.mark.parametrize("schema", OF_PARTS.values(), ids=OF_PARTS)
def test_a_word_of_requests_that_a_form_names_elsewhere_changes_nothing_either(
    base: Path, schema: dict[str, Any]
) -> None:
    said = reply(entry("response", "done", status="failed"))
    org_of(base, resume("ada", **QUIET, turn={"repairs": 0}), script=[{"reply": said}])
    request = write(base, "ada", schema=schema)
    run_tick(base)
    found = find_request(load_requests(base).requests, request.id)
    payload = answers(base, "ada")[request.id]
    assert (found.end, parse_answer(payload, schema)) == ("answered", {"status": "failed"})


def test_a_failure_is_one_though_the_form_has_a_field_of_that_name(base: Path) -> None:
    org_of(base, resume("ada", **QUIET), script=[{"reply": reply(entry("response", "cannot", status="failed"))}])
    request = write(base, "ada", schema=form("status", "price"))
    run_tick(base)
    assert find_request(load_requests(base).requests, request.id).end == "failed"


def test_an_answer_stays_as_it_was_where_its_form_has_no_word_of_requests(base: Path) -> None:
    org_of(base, resume("ada", **QUIET), script=[{"reply": reply(entry("response", "done", price="3"))}])
    request = write(base, "ada", schema=form("price"))
    run_tick(base)
    payload = answers(base, "ada")[request.id]
    assert (payload["price"], "answer" in payload) == ("3", False)


def test_what_earlier_versions_wrote_among_the_others_is_read(base: Path) -> None:
    assert parse_answer({"text": "x", "deadline": "3", "reply_to": "y"}, form("deadline")) == {"deadline": "3"}


def test_a_persons_answer_stands_apart_too(base: Path) -> None:
    org_of(base, resume("ada", **QUIET))
    request = write(base, "human", author="ada", schema=form("status", "target"))
    written = write_answer(base, request.id, text="so it is", fields={"status": "failed", "target": "x"})
    assert written.payload["answer"] == {"status": "failed", "target": "x"}
    assert find_request(load_requests(base).requests, request.id).end == "answered"


def test_a_gate_on_a_field_of_an_answer_sees_it_apart(base: Path) -> None:
    said = {"payload": {"text": "x", "target": "human", "answer": {"status": "open", "target": "moon"}}}
    assert get_field(said, "payload.status") == "open"
    assert get_field(said, "payload.target") == "human"


@pytest.mark.sample(3)
@pytest.mark.parametrize("word", ["deadline", "path", "step", "budget", "default", "parent", "join"])
def test_a_step_of_a_plan_whose_output_has_a_word_of_requests_passes(base: Path, word: str) -> None:
    make_org(
        base,
        resume("human", model={"key": "human"}),
        resume("plan", model={"key": "plan"}, permissions={"read_outboxes": ["*"]}),
        resume("bob", **QUIET, **ONE),
        script=[{"reply": reply(entry("response", "here", **{word: "so"}))}],
        models={"human": {"provider": "human"}},
    )
    steps = [{"name": "work", "ask": "bob", "task": "go", "output": form(word)}]
    fs.write_atomic(base, "agents/plan/plan.json", dump_pretty({"steps": steps}))
    outcome = ask(base, "plan", "go", clock=FrozenClock())
    assert outcome.end == "answered", outcome.unanswered_reason
