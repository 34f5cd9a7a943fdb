"""What waits for a person, in one list; and what of an organisation is read again for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from desk import organisation, put

from lemming.kernel.base.errors import NotAnOrg, UsageError
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.tick_counter import persist_tick
from lemming.libraries.outbox_files import write_person_entry
from lemming.obligations.org_requests import find_request, load_requests
from lemming.obligations.waiting_items import list_person_inbox
from lemming.testing import make_org, resume


def test_what_waits_for_a_person_says_what_from_whom_since_when_and_until_when(base: Path) -> None:
    organisation(base)
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}, "why": {"type": "string"}}}
    put(base, "ada", "request", 1, text="May I?", target="human", deadline=4, schema=schema)
    put(base, "bob", "request", 2, text="Which one?", target=["human", "ada"])
    put(base, "bob", "request", 2, target="human", deadline=1, default={"text": "none"})
    put(base, "cyd", "request", 2, text="Not yours", target="ada")
    persist_tick(base, 3)
    assert [item.summary_line for item in list_person_inbox(base)] == [
        'human owes ada an answer with ok, why, asked 2 ticks ago; it expires in 3 ticks, without an answer: "May I?"',
        'human owes bob an answer, asked 1 tick ago; it waits until it is answered: "Which one?"',
        "human owes bob an answer, asked 1 tick ago; "
        'it expires with this tick, and {"text": "none"} is taken for its answer',
    ]


def test_names_of_fields_cannot_pass_for_words_of_the_engine(base: Path) -> None:
    organisation(base)
    schema = {"type": "object", "properties": {"nothing; it is answered": {"type": "boolean"}}}
    put(base, "ada", "request", 1, target="human", schema=schema)
    assert list_person_inbox(base)[0].needs == "an answer of 1 field"


def test_nothing_waits_for_a_person_who_may_not_read_the_asker(base: Path) -> None:
    deaf = resume("human", model={"key": "human"}, permissions={"read_outboxes": ["bob"], "tools": []})
    make_org(base, resume("ada"), resume("bob"), deaf)
    put(base, "ada", "request", 1, target="human")
    assert list_person_inbox(base) == []


def test_what_bears_a_moment_to_come_does_not_wait_yet(base: Path) -> None:
    organisation(base)
    put(base, "ada", "request", 1, target="human", not_before="2099-01-01T00:00:00Z")
    put(base, "ada", "request", 1, text="past", target="human", not_before="2001-01-01T00:00:00Z")
    assert [item.text for item in list_person_inbox(base)] == ["past"]


def test_an_answer_and_a_deadline_take_it_off_the_list(base: Path) -> None:
    organisation(base)
    org = Organisation(base)
    first = put(base, "ada", "request", 1, text="one", target="human")
    put(base, "ada", "request", 1, text="two", target="human", deadline=2)
    assert [item.text for item in list_person_inbox(org)] == ["one", "two"]
    put(base, "human", "response", 1, reply_to=first.id)
    assert [item.text for item in list_person_inbox(org)] == ["two"]
    persist_tick(base, 3)
    assert [item.age_ticks for item in list_person_inbox(org)] == [2]
    persist_tick(base, 4)
    assert list_person_inbox(org) == []


def test_the_same_requests_are_the_same_value_until_an_entry_is_added(base: Path) -> None:
    organisation(base)
    org = Organisation(base)
    put(base, "ada", "request", 1, target="bob")
    before = load_requests(org)
    assert load_requests(org) is before
    put(base, "ada", "message", 1, text="nothing to do with it")
    assert load_requests(org) is before
    put(base, "ada", "request", 1, target="bob")
    assert len(load_requests(org).requests) == 2


def test_an_entry_that_is_mended_counts_from_then_on(base: Path) -> None:
    organisation(base)
    org = Organisation(base)
    entry = put(base, "ada", "request", 1, target="bob")
    content = (base / entry.file).read_bytes()
    (base / entry.file).write_bytes(content.replace(b'"tick": 1', b'"tick": 7'))
    assert len(load_requests(org).requests) == 0
    (base / entry.file).write_bytes(content)
    assert len(load_requests(org).requests) == 1
    (base / entry.file).unlink()
    assert len(load_requests(org).requests) == 0


def test_an_unknown_id_names_the_nearest_and_an_ambiguous_one_all(base: Path) -> None:
    organisation(base)
    ids = [put(base, "ada", "request", 1, target="bob").id for _ in range(2)]
    requests = load_requests(base).requests
    assert find_request(requests, ids[0][:6]).id == ids[0]
    with pytest.raises(UsageError, match="no request") as error:
        find_request(requests, ids[0][:-1] + "z")
    assert ids[0] in error.value.hint
    persist_tick(base, 3)
    hand_made = [
        write_person_entry(base, name, tick=2, kind="request", payload={"target": "bob"}, tags=[], created_at="x")
        for name in ("ada", "cyd")
    ]
    for entry in hand_made:
        (base / entry.file).write_bytes((base / entry.file).read_bytes().replace(entry.id.encode(), b"job1"))
        (base / entry.file).rename((base / entry.file).with_name("00000002_job1.json"))
    with pytest.raises(UsageError, match="matches 2 requests") as error:
        find_request(load_requests(base).requests, "job1")
    assert "cyd/00000002_job1" in error.value.hint


def test_a_folder_that_is_no_organisation_has_nothing_that_waits_and_says_so(tmp_path: Path) -> None:
    for base in (tmp_path, tmp_path / "absent"):
        with pytest.raises(NotAnOrg, match="no agents/ folder"):
            list_person_inbox(base)
