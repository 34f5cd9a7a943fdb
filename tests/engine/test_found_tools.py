"""Tools that a turn finds: offered from its next question on, recorded, the same when it is taken again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from approvals_org import person, requests
from asked import answers, ask
from many_tools import registered
from optional_parts import uses

from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.providers import LLMProvider, Message, Reply, Request, register_provider
from lemming.kernel.tools.listing import ACTIONS, load_found_tools
from lemming.kernel.turn.forms.form_question import list_found_tools, offer_found_tools
from lemming.kernel.turn.forms.reply_form import ENGINE_ACTIONS
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

SEARCH = {"tool": "tool_search", "args": {"query": "open an issue"}}
OPEN = {"tool": "desk.create_issue", "args": {"subject": "late"}}


class Asked(LLMProvider):
    """A backend that keeps what it is asked."""

    asked: ClassVar[list[Request]] = []
    replies: ClassVar[list[Reply]] = []

    def call(self, model_name: str, messages: list[Message], temperature: float | None, **_: Any) -> str:
        """Not used."""
        raise NotImplementedError

    def complete(self, request: Request) -> Reply:
        """Give the next reply."""
        self.asked.append(request._replace(messages=[dict(message) for message in request.messages]))
        return self.replies[len(self.asked) - 1]


class Natively(Asked):
    """One that calls tools itself."""

    takes_tools = prefers_tools = True


class UnderGrammar(Asked):
    """One that holds its replies to a schema."""

    takes_schema = True


@pytest.fixture(autouse=True, scope="module")
def _many() -> Iterator[None]:
    register_provider("natively", Natively)
    register_provider("under_grammar", UnderGrammar)
    with registered():
        yield


@pytest.fixture(autouse=True)
def _nothing_asked() -> None:
    Asked.asked.clear()


def org(
    base: Path,
    provider: str,
    *replies: Reply,
    tools: list[str] | None = None,
    share: float = 0.1,
    people: Sequence[dict[str, Any]] = (),
    gates: Sequence[dict[str, Any]] = (),
    more: Sequence[str] = (),
    max_steps: int = 6,
    **line: Any,
) -> Path:
    """Make an organisation of one agent that has many tools by patterns."""
    Asked.replies[:] = replies
    reads = [it["name"] for it in people]
    may = {"tools": tools or ["desk.*", "post.*", "tank.*", *more], "read_outboxes": reads}
    entry = {"provider": provider, "context_tokens": 4096, "tools_share": share, **line}
    ada = resume("ada", model={"key": "m"}, permissions=may, turn={"max_steps": max_steps})
    models = {"m": entry, "human": {"provider": "human"}}
    return make_org(base, ada, *people, models=models, org={"gates": [*gates]} if gates else {})


def calling(*calls: dict[str, Any]) -> Reply:
    made = [{"id": f"id-{place}", **call} for place, call in enumerate(calls)]
    return Reply("", calls=tuple(made))


def acting(call: dict[str, Any]) -> Reply:
    return Reply(json.dumps({"do": call["tool"], **call["args"]}))


DONE = Reply('{"do": "done"}')


def told_natively() -> list[list[str]]:
    """Return the names of the tools that each question told of."""
    return [[tool["name"] for tool in request.messages[0]["tools"]] for request in Asked.asked]


def told_in_grammar() -> list[set[str]]:
    """Return the names of the actions that each question's schema takes."""
    schemas = [request.schema or {} for request in Asked.asked]
    return [{one["properties"]["do"]["const"] for one in schema["anyOf"]} for schema in schemas]


def results(base: Path) -> list[tuple[str, str]]:
    finished = [line for line in journal_lines(base, 1) if line["type"] == "tool_finished"]
    return [(line["tool"], line["output"]) for line in finished]


def test_a_backend_is_told_of_what_was_found_from_the_next_question_on(base: Path) -> None:
    named = {**OPEN, "tool": "desk__create_issue"}
    org(base, "natively", calling(SEARCH), calling(named), Reply("done"))
    (turn,) = run_once(base).turns
    first, second, third = told_natively()
    assert "tool_search" in first
    assert not {"desk__create_issue", "tank__fill_7"} & {*first}
    assert second[: len(first)] == first
    assert "desk__create_issue" in second[len(first) :]
    assert third == second
    assert results(base)[1] == ("desk.create_issue", "desk.create_issue of [('subject', 'late')]")
    assert (turn.status, turn.calls) == ("done", 3)


def test_no_backend_sees_how_the_conversation_keeps_what_was_found(base: Path) -> None:
    org(base, "natively", calling(SEARCH), Reply("done"))
    run_once(base)
    assert not any("found" in message for request in Asked.asked for message in request.messages)


def test_a_grammar_takes_what_was_found_from_the_next_question_on(base: Path) -> None:
    org(base, "under_grammar", acting(SEARCH), acting(OPEN), DONE)
    run_once(base)
    first, second, third = told_in_grammar()
    assert "tool_search" in first
    assert "desk.create_issue" not in first
    assert "desk.create_issue" in second & third
    assert results(base)[1][1] == "desk.create_issue of [('subject', 'late')]"
    assert "desk.create_issue(subject?): Open a new issue" in Asked.asked[1].messages[-1]["content"]


def test_a_small_model_that_has_called_what_it_found_is_offered_no_more_of_it(base: Path) -> None:
    org(base, "under_grammar", acting(SEARCH), acting(OPEN), DONE, prompt="brief")
    run_once(base)
    first, second, third = told_in_grammar()
    assert {"desk.create_issue", "desk.list_issues"} <= second
    assert third == first - {"tool_search"}


def told_in_contract() -> list[set[str]]:
    """Return the names of the tools that each question's schema takes, in the form of the contract."""
    schemas = [request.schema or {} for request in Asked.asked]
    calls = [schema["properties"]["tool_calls"]["items"]["anyOf"] for schema in schemas]
    return [{call["properties"]["tool"]["const"] for call in of_question} for of_question in calls]


def test_the_whole_contract_takes_what_was_found(base: Path) -> None:
    replies = [Reply(json.dumps(say("x", outbox_entries=[], tool_calls=[it]))) for it in (SEARCH, OPEN)]
    org(base, "under_grammar", *replies, Reply(json.dumps(say("done"))), prompt="full")
    run_once(base)
    assert ["desk.create_issue" in of_question for of_question in told_in_contract()] == [False, True, True]
    assert results(base)[1][1] == "desk.create_issue of [('subject', 'late')]"


def test_the_search_says_how_many_more_there_are_and_of_what(base: Path) -> None:
    org(base, "natively", Reply("done"))
    run_once(base)
    (search,) = [it for it in Asked.asked[0].messages[0]["tools"] if it["name"] == "tool_search"]
    assert search["description"].endswith("There are 65 more: tank (60), desk (3), post (2).")


def test_a_deferred_tool_that_nobody_found_is_called_all_the_same(base: Path) -> None:
    org(base, "natively", calling(OPEN), Reply("done"))
    (turn,) = run_once(base).turns
    assert [use["outcome"] for use in turn.tools] == ["ok"]


def test_a_tool_that_the_agent_may_not_call_is_refused_though_others_find_it(base: Path) -> None:
    org(base, "natively", calling(OPEN), Reply("done"), tools=["post.*", "tank.*"])
    (turn,) = run_once(base).turns
    assert [use["outcome"] for use in turn.tools] == ["denied"]


@pytest.mark.parametrize(("share", "is_deferred"), [(0.0, True), (0.1, True), (1.0, False)])
def test_the_share_of_the_context_decides(base: Path, share: float, is_deferred: bool) -> None:
    org(base, "natively", Reply("done"), share=share)
    run_once(base)
    (told,) = told_natively()
    assert ("tool_search" in told) == is_deferred
    assert ("tank__fill_7" in told) != is_deferred


def test_the_call_s_record_keeps_the_schemas_so_that_a_replay_needs_no_tools(base: Path) -> None:
    named = {**OPEN, "tool": "desk__create_issue"}
    org(base, "natively", calling(SEARCH), calling(named), Reply("done"))
    run_once(base, clock=FrozenClock())
    (search, _) = [line for line in journal_lines(base, 1) if line["type"] == "tool_finished"]
    first, *_ = search["kept"]["toolbox"]["tools"]
    assert first == {
        "name": "desk.create_issue",
        "description": "Open a new issue in a repository.",
        "parameters": {
            "type": "object",
            "properties": {"subject": {"type": "string", "description": "What it is about."}},
        },
    }
    assert run(["-C", str(base), "verify"]) == 0
    assert run(["-C", str(base), "replay"]) == 0
    assert run(["-C", str(base), "tick", "1", "--prompts"]) == 0


@uses("approvals", "gates")
def test_what_was_found_stays_usable_after_a_wait_for_a_person(base: Path) -> None:
    named = [{**OPEN, "tool": "desk__create_issue"}, {"tool": "desk__list_issues", "args": {}}]
    gate = {"at": "call", "tool": "desk.create_issue", "then": "ask"}
    org(
        base,
        "natively",
        calling(SEARCH),
        calling(named[0]),
        calling(named[1]),
        Reply("It is open."),
        people=[person("human")],
        gates=[gate],
    )
    request = ask(base, "ada", "Open an issue.")
    run_once(base, clock=FrozenClock())
    (waits,) = requests(base)
    assert run(["-C", str(base), "approve", waits.id, "--as", "human"]) == 0
    run_once(base, clock=FrozenClock())
    assert [("desk__list_issues" in told) for told in told_natively()] == [False, True, True, True]
    ran = [line["tool"] for line in journal_lines(base, 2) if line["type"] == "tool_finished"]
    assert ran == ["desk.create_issue", "desk.list_issues"]
    assert answers(base, "ada")[request.id]["text"] == "It is open."
    assert run(["-C", str(base), "verify"]) == 0


def test_a_search_whose_result_waits_for_the_next_turn_is_of_use_there(base: Path) -> None:
    replies = [Reply(json.dumps(say("x", outbox_entries=[], tool_calls=[it]))) for it in (SEARCH, OPEN)]
    org(base, "under_grammar", *replies, Reply(json.dumps(say("done"))), prompt="full", max_steps=1)
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    assert ["desk.create_issue" in of_question for of_question in told_in_contract()] == [False, True]
    assert not any('"parameters"' in request.messages[-1]["content"] for request in Asked.asked)
    ran = [line["tool"] for line in journal_lines(base, 2) if line["type"] == "tool_finished"]
    assert ran == ["desk.create_issue"]
    assert run(["-C", str(base), "verify"]) == 0


@uses("approvals", "gates")
def test_a_search_beside_a_call_that_waits_for_a_person_is_of_use_once_that_is_decided(base: Path) -> None:
    gate = {"at": "call", "tool": "post.track", "then": "ask"}
    track, named = {"tool": "post__track", "args": {}}, {**OPEN, "tool": "desk__create_issue"}
    replies = [calling(SEARCH, track), calling(named), Reply("It is open.")]
    org(base, "natively", *replies, people=[person("human")], gates=[gate], more=["post.track"])
    ask(base, "ada", "Open an issue.")
    run_once(base, clock=FrozenClock())
    assert run(["-C", str(base), "approve", requests(base)[0].id, "--as", "human"]) == 0
    run_once(base, clock=FrozenClock())
    assert [("desk__create_issue" in told) for told in told_natively()] == [False, True, True]
    ran = [line["tool"] for line in journal_lines(base, 2) if line["type"] == "tool_finished"]
    assert ran == ["post.track", "desk.create_issue"]


# --- the questions ---------------------------------------------------------------------------------


def found(*names: str) -> dict[str, Any]:
    return {
        "role": "tool",
        "content": "x",
        "found": [{"name": it, "description": "d", "parameters": {}} for it in names],
    }


def test_names_that_a_backend_knows_are_not_given_twice_and_never_change() -> None:
    system = {"role": "system", "content": "s", "tools": [{"name": "a__b"}, {"name": "c", "tool": "c.c"}]}
    once = offer_found_tools([system, found("a.b")], None).messages[0]["tools"]
    twice = offer_found_tools([system, found("a.b"), found("a-b", "a__b", "a.b", "c.c", "a.c")], None).messages[0][
        "tools"
    ]
    assert [it["name"] for it in once] == ["a__b", "c", "a__b_2"]
    assert [it["name"] for it in twice] == ["a__b", "c", "a__b_2", "a-b", "a__c"]
    assert twice[2]["tool"] == "a.b"


def test_a_question_without_findings_is_the_very_same() -> None:
    messages: list[Message] = [{"role": "system", "content": "s"}]
    assert offer_found_tools(messages, {"anyOf": []}).messages is messages
    assert list_found_tools(messages) == []


@pytest.mark.parametrize(
    "changed", ["x", 1, None, {}, [1], [{"name": "a"}], [{"name": "a", "description": 1, "parameters": {}}]]
)
def test_what_somebody_has_made_of_findings_in_a_file_is_no_tool(changed: Any) -> None:
    assert list_found_tools([{"found": changed}]) == []
    assert [*load_found_tools({"toolbox": {"tools": changed}})] == []


def test_a_tool_with_the_name_of_an_action_is_never_deferred() -> None:
    assert {*ENGINE_ACTIONS} == ACTIONS
