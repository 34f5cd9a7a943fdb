"""What people type about requests: looking, answering, cancelling, and their inbox."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asked import PEOPLE
from desk import named, organisation, put
from terminal import Lemming

from lemming.engine import run_once
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.tick.tick_counter import persist_tick
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.obligations.request_entries import retract_entry
from lemming.testing import FrozenClock, journal_lines, make_org, resume, tree

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "count": {"type": "integer", "maximum": 5},
        "colour": {"enum": ["red", "blue"]},
        "why": {"type": "string", "minLength": 3},
    },
    "required": ["ok"],
}


@pytest.fixture
def org(base: Path) -> Path:
    organisation(base)
    persist_tick(base, 3)
    return base


def newest(base: Path, author: str = "human") -> dict[str, Any]:
    return read_outbox_entries(base, author)[-1].payload


def test_requests_are_listed_with_who_holds_them_and_how_they_ended(org: Path, lemming: Lemming) -> None:
    asked = put(org, "ada", "request", 1, text="please", target="bob")
    other = put(org, "bob", "request", 2, text="and you?", target="cyd")
    put(org, "bob", "response", 2, reply_to=asked.id)
    lines = lemming("requests").out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [[asked.id, "answered", "2"], [other.id, "open", "2"]]
    assert asked.id not in lemming("requests", "--open").out
    assert asked.id not in lemming("requests", "--of", "bob").out
    assert other.id not in lemming("requests", "--to", "bob").out
    assert [it["end"] for it in lemming("requests", "--json").objects] == ["answered", None]


def test_one_request_is_shown_whole(org: Path, lemming: Lemming) -> None:
    asked = put(org, "human", "request", 1, text="The ferry?", target="ada", deadline=9)
    put(org, "ada", "request", 1, target="bob", hands_on=asked.id)
    part = put(org, "bob", "request", 2, text="a part", target="cyd", parent=asked.id)
    shown = lemming("requests", asked.id[:7]).out
    for said in (
        "human asks ada: The ferry?",
        "bob since tick 1",
        "in tick 1: ada to bob",
        "expires in 8 ticks",
        part.id,
    ):
        assert said in shown
    tree_of_part = lemming("requests", "--tree", part.id).out
    assert tree_of_part.index(asked.id) < tree_of_part.index(part.id)
    facts = lemming("requests", asked.id, "--json").objects[0]
    assert (facts["holders"], facts["hops"][0]["to"], facts["children"]) == (["bob"], "bob", [named(part)])


@pytest.mark.parametrize(
    "words", [("requests", "zz"), ("cancel", "zz"), ("answer", "zz", "hi"), ("requests", "--of", "nobody")]
)
def test_what_is_not_there_is_a_mistake_of_who_typed_it(words: tuple[str, ...], org: Path, lemming: Lemming) -> None:
    ran = lemming(*words)
    assert ran.status == 2
    assert "there is no" in ran.err or "does not exist" in ran.err


def test_waiting_ends_with_1_while_something_waits(org: Path, lemming: Lemming) -> None:
    assert (lemming("waiting").status, lemming("waiting").out) == (0, "nothing waits for a person\n")
    asked = put(org, "ada", "request", 1, text="May I?", target="human")
    ran = lemming("waiting")
    assert ran.status == 1
    assert ran.out.startswith(f"{asked.id}  human owes ada an answer")
    assert lemming("waiting", "--json").objects[0]["id"] == asked.id
    lemming("answer", asked.id, "yes")
    assert lemming("waiting").status == 0


def test_every_screen_says_how_much_waits(org: Path, lemming: Lemming) -> None:
    said = "1 request waits for human"
    for command in ("status", "plan", "doctor"):
        assert said not in lemming(command).out
    put(org, "ada", "request", 1, text="May I?", target="human")
    for command in ("status", "plan", "doctor"):
        assert said in lemming(command).out
    assert lemming("status", "--json").objects[0]["waiting"] == 1


def test_an_answer_goes_to_who_asked(org: Path, lemming: Lemming) -> None:
    asked = put(org, "ada", "request", 1, text="May I?", target="human", conversation="ferry")
    ran = lemming("answer", asked.id[:6], "yes,", "you", "may")
    assert ran.status == 0
    assert newest(org) == {"reply_to": asked.id, "target": "ada", "conversation": "ferry", "text": "yes, you may"}
    again = lemming("answer", asked.id, "no")
    assert (again.status, "answered by human in tick 3" in again.err) == (2, True)


def test_fields_are_read_by_the_schema(org: Path, lemming: Lemming) -> None:
    asked = put(org, "ada", "request", 1, text="May I?", target="human", schema=SCHEMA)
    fields = ["ok=yes", "count=3", "colour=blue", "why=it is good"]
    ran = lemming("answer", asked.id, *(word for field in fields for word in ("--field", field)))
    assert ran.status == 0, ran.err
    assert {key: newest(org)[key] for key in ("ok", "count", "colour", "why")} == {
        "ok": True,
        "count": 3,
        "colour": "blue",
        "why": "it is good",
    }


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("ok=perhaps", "ok: "),
        ("count=9", "count: "),
        ("count=many", "count: "),
        ("colour=green", "colour: "),
        ("why=x", "why: "),
        ("wy=good", 'did you mean "why"'),
        ("ok", "has no value"),
        ("count=3", "'ok' is a required"),
    ],
)
def test_a_wrong_field_is_refused_by_name_and_nothing_is_written(
    field: str, said: str, org: Path, lemming: Lemming
) -> None:
    asked = put(org, "ada", "request", 1, text="May I?", target="human", schema=SCHEMA)
    before = tree(org)
    ran = lemming("answer", asked.id, "--field", field)
    assert ran.status == 2
    assert said in ran.err
    assert tree(org) == before


def test_a_schema_that_is_wrong_itself_keeps_nobody_from_answering(org: Path, lemming: Lemming) -> None:
    asked = put(org, "ada", "request", 1, target="human", schema={"type": "strange", "properties": 7})
    assert lemming("answer", asked.id, "yes").status == 0
    assert lemming("waiting").status == 0


def test_a_person_may_refuse(org: Path, lemming: Lemming) -> None:
    asked = put(org, "ada", "request", 1, text="May I?", target="human", schema=SCHEMA)
    assert lemming("answer", asked.id, "--refuse", "ask bob").status == 0
    assert (newest(org)["status"], newest(org)["text"]) == ("refused", "ask bob")
    assert lemming("requests", asked.id, "--json").objects[0]["end"] == "refused"


def test_of_several_people_the_one_who_holds_it_answers(base: Path, lemming: Lemming) -> None:
    people = (resume(name, model={"key": "human"}) for name in ("eve", "fay"))
    make_org(base, resume("ada"), *people)
    asked = put(base, "ada", "request", 1, text="May I?", target="fay")
    both = put(base, "ada", "request", 1, text="And?", target=["eve", "fay"])
    assert "act as fay" in lemming("answer", asked.id, "yes", "--as", "eve").err
    assert lemming("answer", asked.id, "yes").out.startswith("agents/fay/outbox/")
    ran = lemming("answer", both.id, "yes")
    assert (ran.status, "--as eve or fay" in ran.err) == (2, True)
    assert lemming("answer", both.id, "yes", "--as", "eve").status == 0
    assert "is not a person" in lemming("answer", both.id, "yes", "--as", "ada").err


def test_what_does_not_wait_for_a_person_is_not_answered_by_one(org: Path, lemming: Lemming) -> None:
    asked = put(org, "ada", "request", 1, target="bob")
    ran = lemming("answer", asked.id, "yes")
    assert (ran.status, f"lemming cancel {asked.id}" in ran.err) == (2, True)


def test_a_person_cancels_and_the_holder_is_told(org: Path, lemming: Lemming) -> None:
    asked = put(org, "human", "request", 1, text="please", target="ada")
    part = put(org, "ada", "request", 2, target="bob", parent=asked.id)
    assert lemming("cancel", asked.id, "never", "mind").status == 0
    assert newest(org) == {"text": "never mind", "cancels": asked.id, "target": ["ada"]}
    ends = [it["end"] for it in lemming("requests", "--json").objects]
    assert ends == ["cancelled", "cancelled"]
    assert "the request is closed: cancelled" in lemming("cancel", part.id).err


def test_what_a_tick_may_have_read_meanwhile_is_not_taken_back(org: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = put(org, "human", "message", 3, text="hello", target="ada")
    before, remove = tree(org / "agents/human/outbox"), fs.remove

    def meanwhile(base: Path, file: str) -> None:
        monkeypatch.undo()
        remove(base, file)
        persist_tick(base, 4)

    monkeypatch.setattr(fs, "remove", meanwhile)
    with pytest.raises(UsageError, match="cannot be withdrawn"):
        retract_entry(org, entry.identity)
    assert tree(org / "agents/human/outbox") == before


def test_a_person_whom_the_holder_may_not_read_cannot_cancel(base: Path, lemming: Lemming) -> None:
    deaf = resume("bob", permissions={"read_outboxes": ["ada"], "tools": []})
    make_org(base, resume("ada"), deaf, resume("human", model={"key": "human"}))
    asked = put(base, "ada", "request", 1, target="bob")
    assert lemming("cancel", asked.id).status == 2
    assert lemming("cancel", asked.id, "--as", "human").status == 2


def test_of_two_persons_the_one_who_cancels_is_named_and_by_default_the_one_who_asked(
    base: Path, lemming: Lemming
) -> None:
    people = [resume(name, model={"key": "human"}) for name in ("eve", "human")]
    make_org(base, resume("ada"), *people, models=PEOPLE)
    for cancelled_by in (("--as", "human"), ()):
        asked = put(base, "eve", "request", 1, text="please", target="ada")
        assert lemming("cancel", asked.id, *cancelled_by).status == 0
    assert [newest(base, name)["cancels"] == asked.id for name in ("human", "eve")] == [False, True]
    assert [len(read_outbox_entries(base, name)) for name in ("human", "eve")] == [1, 3]


def test_what_turns_for_requests_cost_is_added_up(base: Path, lemming: Lemming) -> None:
    organisation(base)
    asked = put(base, "human", "request", 0, text="please", target="ada")
    part = put(base, "ada", "request", 0, target="bob", parent=asked.id)
    run_once(base, clock=FrozenClock())
    journal = base / "logs/ticks/00000001.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:  # as a turn for a request writes it
        if line["type"] == "turn_committed" and line["agent"] in ("ada", "bob"):
            line["request"] = {"ada": named(asked), "bob": named(part)}[line["agent"]]
    journal.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    facts = lemming("requests", asked.id, "--json").objects[0]
    assert (facts["cost"]["calls"], facts["cost_with_children"]["calls"]) == (1, 2)
    assert facts["cost_with_children"]["credits"] == 2
    assert "total 2 calls, 2 credits, no price, own 1 call, 1 credit, no price" in lemming("requests").out


def test_what_a_person_was_shown_is_read(org: Path, lemming: Lemming) -> None:
    put(org, "ada", "message", 1, text="one")
    put(org, "bob", "message", 2, text="two")
    put(org, "ada", "message", 2, text="for bob", target="bob")
    assert [it["is_unread"] for it in lemming("inbox", "human", "--json").objects] == [True, True, False]
    assert lemming("inbox", "human", "--peek").out.count("* ") == 2
    assert lemming("inbox", "human", "-n", "1").out.splitlines()[1].startswith("*  1")
    assert lemming("inbox", "human").out.splitlines()[1].startswith("*  2"), "the rest, though more fit"
    assert "* " not in lemming("inbox", "human").out
    persist_tick(org, 4)
    put(org, "cyd", "message", 3, text="three")
    unread = [it["payload"]["text"] for it in lemming("inbox", "human", "--json").objects if it["is_unread"]]
    assert unread == ["three"]
    lemming("inbox", "human", "--all-read", "-n", "1")
    assert "* " not in lemming("inbox", "human", "--peek").out


def test_what_a_person_has_read_stands_in_their_ledger_and_no_turn_counts_it(org: Path, lemming: Lemming) -> None:
    put(org, "ada", "message", 1, text="one")
    lemming("inbox", "human")
    state = read_state(org, "human")
    assert (state.turns, state.tick, state.read.last_seen_tick("ada")) == (0, -1, 2)
    run_once(org, clock=FrozenClock())
    assert read_state(org, "human") == state
    assert lemming("verify").status == 0
    assert lemming("inbox", "ada", "--peek").status == 2


class Hasty(FrozenClock):
    """A clock that is asked which start of the machine it is as an engine starts, and again right before the
    first record of its tick: `then`.
    """

    then: Callable[[], object] | None = None
    asked = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "boot_id" and self.then:
            self.asked += 1
            if self.asked == 2:
                then, self.then = self.then, None
                then()
        return super().__getattribute__(name)


def test_what_is_taken_back_before_the_first_record_of_a_tick_is_read_by_nobody(base: Path) -> None:
    make_org(base, resume("ada"), resume("human", model={"key": "human"}), models=PEOPLE)
    run_once(base, clock=FrozenClock())
    entry = put(base, "human", "message", 2, text="oops", target="ada")
    put(base, "human", "message", 2, text="stays", target="ada")
    clock = Hasty()
    clock.then = lambda: retract_entry(base, entry.identity)
    run_once(base, clock=clock)
    assert clock.then is None
    started = next(it for it in journal_lines(base, 2) if it["type"] == "turn_started")
    shown = "\n".join(message["content"] for message in started["prompt"])
    assert "stays" in shown
    assert "oops" not in shown


def test_an_agent_that_would_wake_for_what_was_taken_back_alone_reads_nothing(base: Path) -> None:
    asleep = resume("ada", schedule={"wake": "addressed"})
    make_org(base, asleep, resume("human", model={"key": "human"}), models=PEOPLE)
    entry = put(base, "human", "request", 1, text="oops", target="ada")
    clock = Hasty()
    clock.then = lambda: retract_entry(base, entry.identity)
    run_once(base, clock=clock)
    assert clock.then is None
    assert "oops" not in json.dumps(journal_lines(base, 1))
