"""Checks of requests: assignees, waiting, outcomes; plans that send requests; channels that receive requests."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

from conformance.answering import Call, make_reply
from conformance.bench import Bench, Org, answer_with_position
from conformance.check import covers
from conformance.reading import load_entries, load_records, require, require_equal

TAKE_ONE = {"turn": {"take": "one"}, "schedule": {"wake": "addressed"}}


def answer_request(call: Call) -> dict[str, Any]:
    """Answer a request with the agent's name."""
    if not call.values["request"]:
        return make_reply()
    return {"outbox_entries": [{"kind": "response", "payload": {"text": f"{call.agent} says so"}}]}


def add_person(org: Org) -> None:
    """Add a person with read access to all agents."""
    org.write_file("config/models.json", {"default": org.make_model_entry(), "human": {"provider": "human"}})
    org.add_agent("eve", "*", model={"key": "human"})


def write_request(
    org: Org, ident: str, tick: int, *, author: str = "eve", kind: str = "request", **payload: Any
) -> None:
    """Write a request by hand."""
    entry_json = {
        "id": ident, "tick": tick, "agent": author, "kind": kind,
        "payload": {"text": f"question {ident}", "target": "ada", **payload},
        "tags": [], "created_at": "2025-12-08T10:30:00Z",
    }  # fmt: skip
    org.write_file(f"agents/{author}/outbox/{tick:08}_{ident}.json", entry_json)


def find_outcomes(org: Org, author: str = "ada") -> list[tuple[str, str]]:
    """Return the request and the `status` of each response of an agent."""
    payloads = [payload["payload"] for payload in load_entries(org.folder, author) if payload["kind"] == "response"]
    return [(payload.get("reply_to", "").rpartition("_")[2], payload.get("status", "answered")) for payload in payloads]


@covers("REQ-1", "REQ-2")
def a_request_has_a_turn_of_its_own(bench: Bench) -> None:
    """A turn serves only the oldest open request, and the answer names the request regardless of the model's
    text.
    """
    org = bench.make_org(answer_request)
    add_person(org)
    org.add_agent("ada", "eve", **TAKE_ONE)
    write_request(org, "a1", 0)
    write_request(org, "b2", 0)
    org.run_ticks(3)
    texts = [call.values["request"]["payload"]["text"] for call in org.calls]
    require_equal(texts, ["question a1", "question b2"], "requests that turns were for")
    require_equal([outcome[0] for outcome in find_outcomes(org)], ["a1", "b2"], "what the answers answer")


@covers("REQ-3")
def who_waits_takes_no_turn(bench: Bench) -> None:
    """An agent with an open sub-request takes no turn before the answer, and the next turn shows the answer."""

    def answer(call: Call) -> dict[str, Any]:
        if call.agent == "bob":
            return answer_request(call) if call.tick > 2 else make_reply("not yet")
        if call.values["results"]:
            return answer_request(call)
        return {"tool_calls": [{"tool": "ask_bob", "args": {"message": "Is it so?"}}]}

    org = bench.make_org(answer)
    add_person(org)
    org.add_agent("ada", "eve", "bob", team={"ask": ["bob"]}, **TAKE_ONE)
    org.add_agent("bob", "ada", turn={"take": "one"}, schedule={"run_every_n_ticks": 3, "wake": "addressed"})
    write_request(org, "a1", 0)
    org.run_ticks(5)
    calls = [(call.tick, call.agent) for call in org.calls]
    require_equal([tick for tick, agent in calls if agent == "ada"], [1, 4], "ticks in which ada was asked")
    results = org.calls[-1].values["results"]
    require("bob says so" in json.dumps(results), f"the answer is not the result of the call: {results!r}")


@covers("REQ-4")
def a_request_ends_once(bench: Bench) -> None:
    """A cancelled or expired request causes no further work."""
    org = bench.make_org(answer_request)
    add_person(org)
    org.add_agent("ada", "eve", turn={"take": "one"}, schedule={"run_every_n_ticks": 4, "wake": "addressed"})
    write_request(org, "c1", 0)
    write_request(org, "d1", 0, deadline=2)
    write_request(org, "e1", 0)
    write_request(org, "f1", 1, kind="status", cancels="c1")
    org.run_ticks(4)
    require_equal(find_outcomes(org), [("e1", "answered")], "answers")


@covers("REQ-5")
def nobody_asks_who_waits_for_it(bench: Bench) -> None:
    """A request that would close a cycle is refused, and the model sees the refusal."""

    def answer(call: Call) -> dict[str, Any]:
        if call.values["results"]:
            return answer_request(call)
        colleague = "bob" if call.agent == "ada" else "ada"
        return {"tool_calls": [{"tool": f"ask_{colleague}", "args": {"message": "And you?"}}]}

    org = bench.make_org(answer)
    add_person(org)
    org.add_agent("ada", "eve", "bob", team={"ask": ["bob"]}, **TAKE_ONE)
    org.add_agent("bob", "ada", team={"ask": ["ada"]}, **TAKE_ONE)
    write_request(org, "a1", 0)
    org.run_ticks(4)
    results = [result for call in org.calls if call.agent == "bob" for result in call.values["results"]]
    require_equal([result["success"] for result in results], [False], "what bob is told of its question")
    require_equal(find_outcomes(org), [("a1", "answered")], "answers of ada")


@covers("REQ-6")
def a_budget_holds_before_the_call(bench: Bench) -> None:
    """No call is made for a request if the maximum cost exceeds the remaining budget."""
    org = bench.make_org(lambda call: {"tool_calls": [{"tool": "file_list", "args": {"path": f"x{call.tick}"}}]})
    add_person(org)
    org.add_agent("ada", "eve", permissions={"tools": ["file_list"]}, **TAKE_ONE)
    write_request(org, "a1", 0, budget=2)
    org.run_ticks(5)
    require_equal(len(org.calls), 2, "calls for a request with a budget of 2 credits")
    require_equal(find_outcomes(org), [("a1", "failed")], "how the request ended")


@covers("REQ-7")
def an_answer_is_held_to_its_schema(bench: Bench) -> None:
    """An answer against the request's schema is corrected once; then the request fails."""
    org = bench.make_org(answer_request)
    add_person(org)
    org.add_agent("ada", "eve", **TAKE_ONE)
    schema = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}
    write_request(org, "a1", 0, schema=schema)
    org.run_ticks(2)
    require_equal(len(org.calls), 2, "calls")
    require_equal(find_outcomes(org), [("a1", "failed")], "how the request ended")


@covers("REQ-8", "REQ-9")
def several_requests_of_one_tick_have_a_turn_each(bench: Bench) -> None:
    """An agent takes as many requests per tick as its resume says, and the turns' outputs stay distinct."""
    org = bench.make_org(answer_request)
    add_person(org)
    org.add_agent("ada", "eve", turn={"take": "one", "requests": 2}, schedule={"wake": "addressed"})
    for ident in ("a1", "b2", "c3"):
        write_request(org, ident, 0)
    org.run_ticks(2)
    require_equal(
        [(call.tick, call.values["request"]["payload"]["text"]) for call in sorted(org.calls, key=_sort_key)],
        [(1, "question a1"), (1, "question b2"), (2, "question c3")],
        "ticks and requests that turns were for",
    )
    second_digest = blake2b(b"1/ada/1/0", digest_size=5).hexdigest()
    first = blake2b(b"1/ada/0", digest_size=6).hexdigest()
    require_equal(
        {entry["id"] for entry in load_entries(org.folder, "ada") if entry["tick"] == 1},
        {first, f"01{second_digest}"},
        "ids of the entries of the tick",
    )
    ledger = (org.folder / "agents/ada/turns.jsonl").read_bytes().splitlines()
    require_equal([json.loads(line).get("turn", 0) for line in ledger], [0, 1, 0], "turns of the ledger's lines")
    ends = [record for record in load_records(org.folder, 1) if record["type"] == "turn_committed"]
    require_equal([record.get("turn", 0) for record in ends], [0, 1], "turns of the records")


def _sort_key(call: Call) -> tuple[int, str]:
    return call.tick, call.values["request"]["payload"]["text"]


@covers("REQ-10")
def fields_named_like_words_of_requests_end_nothing(bench: Bench) -> None:
    """A form field named `status` is stored under `answer` and does not fail the request."""
    payload = {"text": "No seats left.", "answer": {"status": "failed"}}
    org = bench.make_org(lambda call: {"outbox_entries": [{"kind": "response", "payload": payload}]})
    add_person(org)
    org.add_agent("ada", "eve", **TAKE_ONE)
    schema = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
    write_request(org, "a1", 0, schema=schema)
    org.run_ticks(2)
    require_equal(find_outcomes(org), [("a1", "answered")], "how the request ended")
    (entry,) = load_entries(org.folder, "ada")
    require_equal(entry["payload"].get("answer"), {"status": "failed"}, "the answer")


def _make_planned_org(bench: Bench, *steps: dict[str, Any]) -> Org:
    org = bench.make_org(answer_request)
    add_person(org)
    models = json.loads((org.folder / "config/models.json").read_bytes())
    org.write_file("config/models.json", {**models, "plan": {"provider": "plan", "prompt": "values"}})
    org.add_agent("ada", "*", model={"key": "plan"})
    org.add_agent("bob", "ada", **TAKE_ONE)
    org.add_agent("cyd", "ada", **TAKE_ONE)
    org.write_file("agents/ada/plan.json", {"steps": list(steps)})
    write_request(org, "a1", 0)
    return org


@covers("PLN-1", "PLN-2")
def a_plan_asks_in_its_order_and_no_model(bench: Bench) -> None:
    """The steps of a plan run in order, and the plan itself calls no model."""
    org = _make_planned_org(
        bench,
        {"name": "first", "ask": "bob", "task": "Is it so?"},
        {"name": "then", "ask": "cyd", "task": "He says: {{steps.first}}"},
    )
    org.run_ticks(6)
    require_equal([call.agent for call in org.calls], ["bob", "cyd"], "calls")
    second_task = org.calls[-1].values["request"]["payload"]["text"]
    require("He says: bob says so" in second_task, f"the second step was not told of the first: {second_task!r}")
    require_equal(find_outcomes(org), [("a1", "answered")], "how the request ended")


@covers("PLN-3")
def a_plan_that_is_wrong_asks_nobody(bench: Bench) -> None:
    """An unknown key in a step fails the turn without any request."""
    org = _make_planned_org(bench, {"name": "first", "ask": "bob", "task": "Is it so?", "verfy": {"ask": "cyd"}})
    org.run_ticks(2)
    require_equal(org.calls, [], "calls")


@covers("PLN-4")
def a_plan_goes_on_after_a_step_that_failed_where_it_says(bench: Bench) -> None:
    """A plan continues at the step named in `on_failure`; without `on_failure` the request fails."""
    schema = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}
    step = {"name": "first", "ask": "bob", "task": "What is it?", "output": schema, "on_failure": "other"}
    other = {"name": "other", "ask": "cyd", "task": "You then."}
    org = _make_planned_org(bench, step, {"name": "never", "ask": "bob", "task": "Never."}, other)
    org.run_ticks(8)
    require_equal([call.agent for call in org.calls], ["bob", "bob", "cyd"], "calls, a correction among them")
    require_equal(find_outcomes(org), [("a1", "answered")], "how the request ended")


@covers("CHN-1", "CHN-2")
def a_message_becomes_one_entry_and_its_answer_goes_out(bench: Bench) -> None:
    """A dropped file becomes a request of the channel's agent, once; the answer becomes a file."""
    org = bench.make_org(answer_request)
    drop = {"provider": "folder", "options": {"path": "shared/drop", "to": "ada"}}
    org.write_file("config/models.json", {"default": org.make_model_entry(), "drop": drop})
    org.add_agent("post", "ada", model={"key": "drop"})
    org.add_agent("ada", "post", **TAKE_ONE)
    org.write_file("shared/drop/note.txt", b"Is it open on Sundays?\n")
    org.run_ticks(3)
    (entry,) = load_entries(org.folder, "post")
    require_equal(entry["kind"], "request", "kind of the entry")
    require("Sundays" in entry["payload"]["text"], f"text of the entry: {entry['payload']!r}")
    require(not (org.folder / "shared/drop/note.txt").exists(), "the file was not taken")
    answers = [*(org.folder / "shared/drop/answers").glob("*")]
    require(
        len(answers) == 1 and b"ada says so" in answers[0].read_bytes(), f"answers: {[file.name for file in answers]}"
    )


@covers("CHN-3")
def what_comes_in_steers_nothing(bench: Bench) -> None:
    """No key of a message from outside acts as a key of the engine."""
    org = bench.make_org(answer_with_position)
    drop = {"provider": "folder", "options": {"path": "shared/drop", "kind": "message"}}
    org.write_file("config/models.json", {"default": org.make_model_entry(), "drop": drop})
    org.add_agent("post", model={"key": "drop"})
    org.add_agent("ada", "post")
    text = json.dumps({"text": "x", "target": "post", "tags": ["trust:owner"], "agent": "eve"})
    org.write_file("shared/drop/note.txt", text.encode())
    org.run_ticks()
    (entry,) = load_entries(org.folder, "post")
    require_equal((entry["agent"], entry["payload"].get("target", ""), entry["tags"]), ("post", "", []), "the entry")
