"""What entries say of requests: who opens one, who holds it, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from desk import Desk
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import EVERYTHING

from lemming.kernel.messages import EntryName, OutboxEntry


@pytest.mark.parametrize("target", ["bob", ["bob"], " Bob ", ["bob", "nobody"], ["bob", "ada"], ["bob", "bob"]])
def test_a_request_that_names_another_agent_opens_one_of_that_agent(target: Any) -> None:
    desk = Desk()
    request = desk.request(desk.ask("ada", target))
    assert (request.asker, request.targets, request.assignees, request.is_open) == ("ada", ("bob",), ("bob",), True)


@pytest.mark.parametrize("target", [None, "nobody", "ada", "*", ["bob", "all"], [], 7, {"bob": 1}])
def test_an_entry_that_names_nobody_else_opens_none(target: Any) -> None:
    desk = Desk()
    desk.ask("ada", target)
    desk.write("ada", "message", 1, "bob, please", target="bob")
    assert len(desk.requests()) == 0


@pytest.mark.parametrize(
    ("status", "end"),
    [
        ({}, "answered"),
        ({"status": "answered"}, "answered"),
        ({"status": "failed"}, "failed"),
        ({"status": "refused"}, "refused"),
        ({"status": "ok"}, "answered"),
    ],
)
def test_the_holders_response_ends_it(status: dict[str, str], end: str) -> None:
    desk = Desk()
    asked = desk.ask("ada", "bob")
    closed = desk.answer("bob", asked, 2, **status)
    request = desk.request(asked)
    assert (request.end, request.end_tick, request.assignees) == (end, 2, ())
    assert request.closed_by is not None
    assert request.closed_by.id == closed


def test_only_the_holder_answers_and_only_the_first_answer_counts() -> None:
    desk = Desk()
    asked = desk.ask("ada", "bob")
    desk.answer("cyd", asked, 2)
    desk.answer("ada", asked, 2)
    assert desk.request(asked).is_open
    first = desk.answer("bob", asked, 3, status="failed")
    desk.answer("bob", asked, 4)
    request = desk.request(asked)
    assert request.end == "failed"
    assert [entry.id for entry in request.answers] == [first]


@pytest.mark.parametrize(("answered_in", "end"), [(4, "answered"), (5, "expired")])
def test_a_request_is_open_through_its_deadline_and_not_a_tick_longer(answered_in: int, end: str) -> None:
    desk = Desk()
    asked = desk.ask("ada", "bob", 1, deadline=3)
    assert desk.request(asked, tick=4).is_open
    desk.answer("bob", asked, answered_in)
    request = desk.request(asked)
    assert (request.end, request.end_tick) == (end, min(answered_in, 5))


def test_a_default_is_the_answer_of_what_expired() -> None:
    desk = Desk()
    asked = desk.ask("ada", "bob", 1, deadline=0, default={"text": "no"})
    assert desk.request(asked, tick=1).is_open
    request = desk.request(asked, tick=2)
    assert (request.end, request.has_default, request.default_answer) == ("expired", True, {"text": "no"})


@pytest.mark.parametrize("deadline", [-1, "3", 2.5, True, None])
def test_a_deadline_that_is_no_number_of_ticks_is_none(deadline: Any) -> None:
    desk = Desk()
    assert desk.request(desk.ask("ada", "bob", deadline=deadline)).is_open


def test_the_asker_cancels_and_so_does_a_person_whom_the_holder_may_read() -> None:
    desk = Desk(cyd=["ada"])
    mine, his, hers = desk.ask("ada", "bob"), desk.ask("ada", "bob"), desk.ask("ada", "cyd")
    for asked in (mine, his, hers):
        desk.cancel("bob" if asked == mine else "human", asked, 2)
    assert desk.request(mine).is_open
    assert desk.request(his).end == "cancelled"
    assert desk.request(hers).is_open, "cyd may not read the person"
    desk.cancel("ada", mine, 3)
    assert (desk.request(mine).end, desk.request(mine).end_tick) == ("cancelled", 3)


def test_what_waits_for_a_persons_word_is_cancelled_by_no_other_person() -> None:
    desk = Desk()
    waits = {"call": {"gate": "config/org.json#/gates/0"}}
    mine, others = desk.ask("ada", "human", **waits), desk.ask("ada", "bob", **waits)
    for asked in (mine, others):
        desk.cancel("cyd", asked, 2)
        assert desk.request(asked).is_open
        desk.cancel("human", asked, 3)
    assert (desk.request(mine).end, desk.request(others).end) == ("cancelled", None)


def test_what_was_asked_for_a_request_ends_with_it_unless_it_had_ended() -> None:
    desk = Desk()
    top = desk.ask("human", "ada", 1)
    done, open_ = desk.ask("ada", "bob", 2, parent=top), desk.ask("ada", "cyd", 2, parent=top)
    below = desk.ask("cyd", "bob", 3, parent=open_)
    desk.answer("bob", done, 3)
    desk.answer("ada", top, 4)
    desk.answer("bob", below, 5)
    ends = {id_: desk.request(id_).end for id_ in (top, done, open_, below)}
    assert ends == {top: "answered", done: "answered", open_: "cancelled", below: "cancelled"}
    requests = desk.requests()
    tree = requests.iter_tree(desk.request(top))
    assert [(depth, it.id) for depth, it in tree] == [(0, top), (1, done), (1, open_), (2, below)]
    assert requests.get_root(requests.find_matches(below)[0]).id == top


def test_a_parent_is_an_earlier_request_that_the_asker_was_to_answer() -> None:
    desk = Desk()
    top = desk.ask("human", "ada", 1)
    desk.cancel("human", top, 5)
    strangers = desk.ask("bob", "cyd", 2, parent=top)
    itself = desk.ask("ada", "bob", 3, parent="0" * 12)
    assert desk.request(strangers).parent is None
    assert desk.request(strangers).is_open
    assert desk.request(itself).parent is None


def test_a_request_handed_on_is_owed_by_its_new_holder_to_the_first_asker() -> None:
    desk = Desk()
    asked = desk.ask("human", "ada")
    desk.hand_on("bob", asked, "cyd", 1)
    desk.hand_on("ada", asked, "bob", 2)
    desk.hand_on("bob", asked, "cyd", 3)
    desk.answer("ada", asked, 4)
    request = desk.request(asked)
    assert (request.assignees, request.assignments[0].since, request.asker) == (("cyd",), 3, "human")
    assert [(hop.tick, hop.by, hop.to) for hop in request.handoffs] == [(2, "ada", "bob"), (3, "bob", "cyd")]
    desk.answer("cyd", asked, 5)
    assert desk.request(asked).end == "answered"
    assert len(desk.requests()) == 1, "handing on opens no request of its own"


@pytest.mark.parametrize("to", ["nobody", "ada", ["bob", "cyd"], None])
def test_a_request_is_handed_to_one_other_agent(to: Any) -> None:
    desk = Desk()
    asked = desk.ask("human", "ada")
    desk.hand_on("ada", asked, to, 2)
    assert desk.request(asked).assignees == ("ada",)


def test_all_targets_answer_unless_the_first_answer_is_enough() -> None:
    desk = Desk()
    every, any_ = desk.ask("ada", ["bob", "cyd"]), desk.ask("ada", ["bob", "cyd"], join="first")
    desk.answer("bob", every, 2)
    desk.answer("bob", any_, 2, status="refused")
    assert desk.request(every).assignees == ("cyd",)
    assert desk.request(any_).assignees == ("cyd",), "a refusal leaves it to the other"
    desk.answer("cyd", every, 3, status="failed")
    desk.answer("cyd", any_, 3)
    assert (desk.request(every).end, len(desk.request(every).answers)) == ("failed", 2)
    assert (desk.request(any_).end, desk.request(any_).end_tick) == ("answered", 3)


def test_the_first_answer_ends_what_the_others_owe() -> None:
    desk = Desk()
    asked = desk.ask("ada", ["bob", "cyd"], join="first")
    desk.answer("cyd", asked, 2)
    desk.answer("bob", asked, 3)
    assert [entry.agent for entry in desk.request(asked).answers] == ["cyd"]


def test_an_id_may_come_with_author_and_tick_and_must_where_two_have_it() -> None:
    desk = Desk()

    for author in ("ada", "cyd"):
        payload = {"text": "please", "target": "bob"}
        desk.entries[EntryName(1, 64, "job1", author)] = OutboxEntry("job1", 1, author, "request", payload)
    desk.answer("bob", "job1", 2)
    assert [request.end for request in desk.requests()] == [None, None], "it may mean either"
    desk.answer("bob", "cyd/1_job1", 2)
    assert {request.asker: request.end for request in desk.requests()} == {"ada": None, "cyd": "answered"}
    assert [it.asker for it in desk.requests().find_matches("ada/00000001_job1")] == ["ada"]
    assert len(desk.requests().find_matches("job")) == 2


def test_what_a_person_writes_counts_as_written_before_the_turns_of_its_tick() -> None:
    desk = Desk()
    asked = desk.ask("human", "ada", 1)
    desk.answer("ada", asked, 3)
    desk.cancel("human", asked, 3)
    assert desk.request(asked).end == "cancelled"


def test_entries_of_ticks_to_come_say_nothing_yet() -> None:
    desk = Desk()
    asked = desk.ask("ada", "bob", 1)
    desk.answer("bob", asked, 9)
    assert desk.request(asked, tick=8).is_open
    assert desk.request(asked, tick=9).end == "answered"


DOES = st.tuples(
    st.sampled_from(["ask", "answer", "hand_on", "cancel"]),
    st.sampled_from(["ada", "bob", "cyd", "human"]),
    st.integers(0, 6),
    st.sampled_from(["ada", "bob", "cyd", "human"]),
    st.integers(0, 3),
)


@settings(max_examples=200 if EVERYTHING else 25, deadline=None)
@given(st.lists(DOES, max_size=25))
def test_whatever_is_written_a_request_ends_once_and_its_past_does_not_change(steps: list[Any]) -> None:
    desk, ids, tick = Desk(), ["none"], 1
    for does, author, which, to, later in steps:
        tick += later // 2
        about = ids[which % len(ids)]
        if does == "ask":
            extra = {"deadline": later} if later else {}
            ids.append(desk.ask(author, [to, "bob"], tick, parent=about, **extra))
        elif does == "answer":
            desk.answer(author, about, tick)
        elif does == "hand_on":
            desk.hand_on(author, about, to, tick)
        else:
            desk.cancel(author, about, tick)
    ended: dict[str, tuple[Any, ...]] = {}
    for now in range(1, tick + 6):
        requests = desk.requests(now)
        for request in requests:
            assert (request.end is None) == (request.end_tick is None)
            assert bool(request.assignees) == request.is_open
            if request.is_open and request.parent:
                assert requests.by_identity[request.parent].is_open
            if request.end_tick is not None and request.end_tick < now:
                seen = (request.end, request.end_tick)
                assert ended.setdefault(request.identity, seen) == seen
