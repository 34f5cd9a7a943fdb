"""Calls of many turns through batch APIs: the real SDKs against a server that speaks both."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime

import pytest
from batch_desk import AGENTS, Desk, make_desk, question
from batch_server import BatchServer, Trouble, agent_of
from fault_server import ANSWER
from patience import PATIENCE_S

from lemming.capabilities.batches.batch_api import BatchProgress
from lemming.capabilities.batches.batch_client import (
    MAX_BATCH_BYTES,
    MAX_BATCH_CALLS,
    BatchedCall,
    make_custom_id,
    split_into_batches,
)
from lemming.capabilities.batches.batch_records import BatchEnded, BatchNotSent, BatchWaiting
from lemming.kernel.base.errors import AuthenticationFailed, DiskError
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import Backend, Reply, Request

FAILURES = ("error", "expired", "missing", "garbage")


# --- together ------------------------------------------------------------------------------------


@pytest.mark.sample(3)
def test_the_calls_of_all_running_turns_are_one_batch(desk: Desk) -> None:
    replies = desk.ask(*AGENTS)
    (sent,) = desk.server.batches.values()
    assert sent.agents == list(AGENTS)
    assert {reply.text for reply in replies.values()} == {ANSWER}
    assert desk.server.live == []


def test_a_batched_answer_has_its_usage_and_says_how_it_came(desk: Desk) -> None:
    reply = desk.ask("ada")["ada"]
    assert (reply.input_tokens, reply.output_tokens, reply.cached_tokens) == (11, 7, 3)
    assert (reply.model, reply.finish, reply.batched) == ("served", "stop", True)


def test_a_batch_asks_for_the_same_as_a_live_call(desk: Desk) -> None:
    desk.ask("ada")
    desk.provider(desk.entry).complete(question("ada"))
    (item,) = next(iter(desk.server.batches.values())).items
    assert [item.get("body") or item["params"]] == desk.server.live


def test_a_turn_that_ends_without_asking_is_not_waited_for(one_desk: Desk) -> None:
    batches = one_desk.batches()
    batches.add_turns()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(one_desk.ask, "ada", batches=batches)
        batches.remove_turn()
        assert asked.result(PATIENCE_S)["ada"].batched


def test_second_calls_go_together_in_a_second_batch(one_desk: Desk) -> None:
    batches = one_desk.batches()
    batches.add_turns(len(AGENTS))

    def turn(agent: str) -> list[Reply]:
        try:
            return [batches.complete(one_desk.entry, question(agent, step)) for step in (0, 1)]
        finally:
            batches.remove_turn()

    with ThreadPoolExecutor(len(AGENTS)) as pool:
        list(pool.map(turn, AGENTS, timeout=PATIENCE_S))
    assert [sent.agents for sent in one_desk.server.batches.values()] == [list(AGENTS)] * 2
    assert len(set(one_desk.server.custom_ids)) == 6


def test_each_model_has_a_batch_of_its_own(one_desk: Desk) -> None:
    batches = one_desk.batches()
    batches.add_turns(2)
    with ThreadPoolExecutor(2) as pool:
        for name in ("m", "n"):
            request = question("ada" if name == "m" else "bob")
            pool.submit(batches.complete, one_desk.entry, request._replace(model_name=name))
    assert [sent.agents for sent in one_desk.server.batches.values()] == [["ada"], ["bob"]]


def test_a_provider_without_batches_goes_live_at_once(desk: Desk) -> None:
    options = {name: value for name, value in desk.entry.options.items() if name != "batches"}
    desk.entry = ModelEntry(provider=desk.entry.provider, model="m", options=options)
    batches = desk.batches()
    batches.add_turns(2)  # one of them never asks
    assert not batches.complete(desk.entry, question("ada")).batched
    assert (len(desk.server.live), desk.server.batches, desk.records) == (1, {}, [])


class Own(Backend):
    """A provider as somebody else may write one."""

    takes_batches = True

    def __init__(self) -> None:
        self.sent: dict[str, Mapping[str, Request]] = {}

    def complete(self, request: Request) -> Reply:
        return Reply(text="live")

    def send_batch(self, requests: Mapping[str, Request], label: str) -> str:
        self.sent[label] = requests
        return label

    def get_batch_progress(self, batch: str) -> BatchProgress:
        replies = {name: Reply(text=request.agent) for name, request in self.sent[batch].items()}
        return BatchProgress(is_over=True, replies=replies)

    def find_batch(self, label: str, custom_ids: Collection[str], since: datetime) -> str | None:
        return label if label in self.sent else None

    def cancel_batch(self, batch: str) -> None:
        del self.sent[batch]


def test_a_provider_of_ones_own_takes_batches_with_four_methods(one_desk: Desk) -> None:
    own, agents = Own(), [f"agent-{number}" for number in range(100)]
    one_desk.entry = ModelEntry(provider="own", model="m")
    one_desk.providers["own {}"] = own
    replies = one_desk.ask(*agents)
    assert {agent: reply.text for agent, reply in replies.items()} == {agent: agent for agent in agents}
    assert [len(requests) for requests in own.sent.values()] == [100]


@dataclass
class Careless(Own):
    """One that leaves an answer out, gives one that is no text, and one to what nobody asked."""

    sent: dict[str, Mapping[str, Request]] = field(default_factory=dict)

    def get_batch_progress(self, batch: str) -> BatchProgress:
        _, odd, *others = sorted(self.sent[batch])
        replies = {name: Reply(text="batched") for name in others}
        odd_one = Reply(text=None)  # type: ignore[arg-type]
        return BatchProgress(is_over=True, replies={**replies, odd: odd_one, "nobodys": Reply(text="?")})


def test_what_is_wrong_with_some_answers_loses_no_others(one_desk: Desk) -> None:
    one_desk.entry = ModelEntry(provider="own", model="m")
    one_desk.providers["own {}"] = Careless()
    replies = one_desk.ask("ada", "bob", "cyd", "dan")
    assert [reply.text for reply in replies.values()] == ["live", "live", "batched", "batched"]
    ended = one_desk.records[-1]
    assert isinstance(ended, BatchEnded)
    assert (ended.replies, ended.live) == (2, 2)
    assert ended.problem == "the provider must return text, got NoneType"


# --- what fails ----------------------------------------------------------------------------------


def test_a_live_call_that_fails_raises_as_ever(one_desk: Desk) -> None:
    one_desk.server.outcomes["ada"] = "expired"
    live = ("/chat/completions", "/responses", "/messages")
    one_desk.server.trouble = [Trouble(f"POST /v1{path}", 401) for path in live]
    with pytest.raises(AuthenticationFailed):
        one_desk.ask("ada")


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_call_without_an_answer_goes_live_and_the_others_do_not(desk: Desk, outcome: str) -> None:
    desk.server.outcomes["bob"] = outcome
    replies = desk.ask(*AGENTS)
    assert [replies[agent].batched for agent in AGENTS] == [True, False, True]
    assert len(desk.server.live) == 1
    ended = desk.records[-1]
    assert isinstance(ended, BatchEnded)
    assert (ended.replies, ended.live) == (2, 1)
    assert ended.problem
    assert (ended.problem == "1 of 3 answers are missing in the results") == (outcome == "missing")


def test_results_without_a_single_answer_are_told_and_every_call_goes_live(desk: Desk) -> None:
    desk.server.outcomes = dict.fromkeys(AGENTS, "missing")
    replies = desk.ask(*AGENTS)
    assert [replies[agent].text for agent in AGENTS] == [ANSWER] * 3
    assert (len(desk.server.live), len(desk.server.batches)) == (3, 1)
    ended = desk.records[-1]
    assert isinstance(ended, BatchEnded)
    assert (ended.replies, ended.live) == (0, 3)
    assert ended.problem == "3 of 3 answers are missing in the results"


def test_a_server_that_fails_while_it_is_asked_is_asked_again(desk: Desk) -> None:
    desk.server.trouble = [
        Trouble("/msgbatch_1", 503, 2),
        Trouble("/batch_1", 503, 2),
        Trouble("/results", 0),
        Trouble("-out/content", 0),
    ]
    assert all(reply.batched for reply in desk.ask(*AGENTS).values())
    assert (len(desk.server.batches), desk.server.live) == (1, [])
    assert desk.pauses == [2.0, 4.0, 8.0]


def test_pauses_grow_to_a_minute(one_desk: Desk) -> None:
    one_desk.server.looks = 9
    one_desk.ask("ada")
    assert one_desk.pauses == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_a_batch_that_is_refused_for_a_while_is_sent_once(one_desk: Desk) -> None:
    one_desk.server.trouble = [Trouble(f"POST {one_desk.path()}", 503, 2)]
    assert all(reply.batched for reply in one_desk.ask(*AGENTS).values())
    assert len(one_desk.server.batches) == 1


@pytest.mark.parametrize("status", [0, 500])
def test_a_batch_whose_acknowledgement_is_lost_is_found_and_not_sent_again(desk: Desk, status: int) -> None:
    for others in range(3):  # somebody else's, so that it takes a second page
        desk.ask(*[f"other{number}" for number in range(others + 1)])
    desk.server.trouble = [Trouble(f"POST {desk.path()}", status, is_done_first=True)]
    assert all(reply.batched for reply in desk.ask("ada", "bob", "cyd", "dan").values())
    assert len(desk.server.batches) == 4


def test_a_server_at_an_address_gets_live_calls_and_a_person_is_told_once(desk: Desk) -> None:
    options = {key: value for key, value in desk.entry.options.items() if key != "batches"}
    desk.entry = replace(desk.entry, options=options)
    assert not any(reply.batched for reply in desk.ask(*AGENTS).values())
    (told,) = [event for event in desk.events if isinstance(event, BatchNotSent)]
    assert "is assumed to have no batches" in told.problem


def test_a_server_that_refuses_batches_gets_live_calls_and_a_person_is_told(desk: Desk) -> None:
    desk.server.trouble = [Trouble(f"POST {desk.path()}", 403)]
    assert not any(reply.batched for reply in desk.ask(*AGENTS).values())
    assert len(desk.server.live) == 3
    assert ["403" in event.problem for event in desk.events if isinstance(event, BatchNotSent)] == [True]


def test_a_batch_that_is_gone_is_not_waited_for(desk: Desk) -> None:
    desk.server.trouble = [Trouble("batch_1", 404)]
    assert not desk.ask("ada")["ada"].batched


def test_a_wrong_key_is_told_and_does_not_lose_the_batch(desk: Desk) -> None:
    desk.server.trouble = [Trouble("batch_1", 401, 2)]
    assert desk.ask("ada")["ada"].batched
    told = [event.problem for event in desk.events if isinstance(event, BatchWaiting)]
    assert len(told) == 1
    assert "HTTP 401" in told[0]


def test_a_batch_whose_time_is_up_is_cancelled_and_what_it_has_finished_is_used(desk: Desk) -> None:
    desk.server.looks, desk.server.outcomes = 1000, {"bob": "missing"}
    desk.on_pause = lambda: desk.clock.advance(86_400)
    replies = desk.ask(*AGENTS)
    assert [replies[agent].batched for agent in AGENTS] == [True, False, True]
    assert f"POST {desk.path()}/{next(iter(desk.server.batches))}/cancel" in desk.server.requests


def test_a_batch_that_cannot_be_cancelled_is_left_after_ten_minutes(one_desk: Desk) -> None:
    one_desk.server.looks, one_desk.server.trouble = 1000, [Trouble("/cancel", 503)]
    one_desk.entry = ModelEntry(
        provider=one_desk.entry.provider, model="m", options=one_desk.entry.options, batch_deadline_s=60.0
    )
    one_desk.on_pause = lambda: one_desk.clock.advance(one_desk.pauses[-1])
    assert not one_desk.ask("ada")["ada"].batched
    assert 660 <= sum(one_desk.pauses) <= 780
    ended = one_desk.records[-1]
    assert isinstance(ended, BatchEnded)
    assert ended.problem == "not finished within batch_deadline_s"


def test_a_disk_that_refuses_the_record_stops_every_turn(one_desk: Desk) -> None:
    def refuse(kind: str) -> None:
        if kind == "batch_announced":
            raise DiskError("full")

    one_desk.on_record = refuse
    with pytest.raises(DiskError):
        one_desk.ask(*AGENTS)
    assert one_desk.server.batches == {}


# --- parts ---------------------------------------------------------------------------------------


def test_a_custom_id_is_its_calls_own_and_always_the_same() -> None:
    ids = {make_custom_id(question(agent, step)) for agent in AGENTS for step in (0, 1)}
    assert len(ids) == 6
    assert make_custom_id(question("ada")) == make_custom_id(question("ada"))
    assert agent_of(make_custom_id(question("an agent of such a length that no id could hold all of it")))


def test_a_batch_holds_no_more_than_a_provider_takes(server: BatchServer) -> None:
    entry = make_desk("chat", server).entry
    provider = Own()
    call = BatchedCall(entry, question("ada"), provider)
    assert [len(portion) for portion in split_into_batches([call] * (MAX_BATCH_CALLS + 1))] == [MAX_BATCH_CALLS, 1]
    long = [{"role": "user", "content": "x" * (MAX_BATCH_BYTES // 2)}]
    call = BatchedCall(entry, question("ada")._replace(messages=long), provider)
    assert [len(portion) for portion in split_into_batches([call] * 2)] == [1, 1]
