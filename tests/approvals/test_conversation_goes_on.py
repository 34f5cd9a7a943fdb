"""A turn that waited for approval goes on with its conversation: calls and results with their roles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from approvals_org import ASK, Ring, person, requests, ring
from approvals_org import make as contract_org
from asked import answers, ask
from loopback import one_certificate
from rule_model import RuleModel

from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_into, replay_ticks
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

NO_ANSWER_YET = 9
ONCE = ("ring", {"text": "once"})
TWICE = ("ring", {"text": "twice"})


@pytest.fixture(scope="module", autouse=True)
def _one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_certificate(tmp_path_factory.mktemp("certificates")):
        yield


@pytest.fixture
def model() -> Iterator[RuleModel]:
    """A model that rings once, then answers with what the bell gave."""
    server = RuleModel(wants=[ONCE])
    server.start()
    yield server
    server.stop()


def make(base: Path, model: RuleModel, line: dict[str, Any] | None = None, **blocks: Any) -> Path:
    may = {"read_outboxes": ["human"], "tools": ["ring"]}
    entry = {
        "provider": "openai", "model": "m", "options": {"base_url": f"{model.url}/v1"}, "tools": "native",
    }  # fmt: skip
    own = {"model": {"key": "rule"}, "permissions": may, "schedule": {"wake": "addressed"}}
    return make_org(
        base,
        resume("ada", **own | blocks),
        person("human"),
        org={"gates": [ASK]},
        models={"rule": {**entry, **(line or {})}, "human": {"provider": "human"}},
    )


def tick(org: Path) -> None:
    run_once(org, clock=FrozenClock())


def decide(org: Path, *words: str) -> None:
    """Decide about what was asked last."""
    verb, *more = words
    assert run(["-C", str(org), verb, requests(org)[-1].id, "--as", "human", *more]) == 0


def test_a_person_is_asked_once_by_a_model_that_looks_for_the_result_of_its_call(
    tmp_path: Path, model: RuleModel, capsys: pytest.CaptureFixture[str]
) -> None:
    org = make(tmp_path, model)
    assert run(["-C", str(org), "ask", "ada", "Ring the bell.", "--quiet"]) == NO_ANSWER_YET
    decide(org, "approve")
    capsys.readouterr()
    assert run(["-C", str(org), "run-once"]) == 0
    (answer,) = answers(org, "ada").values()
    assert answer["text"] == "Done: rang once"
    assert len(requests(org)) == 1
    assert Ring.rung == ["once"]


def test_the_call_and_its_result_stand_behind_the_request_under_their_roles(tmp_path: Path, model: RuleModel) -> None:
    org = make(tmp_path, model)
    ask(org, "ada", "Ring the bell.")
    tick(org)
    decide(org, "approve")
    tick(org)
    assert [it["role"] for it in model.sent[-1]] == ["system", "user", "assistant", "tool"]
    asked, called, given = model.sent[-1][1:]
    assert "Ring the bell." in asked["content"]
    assert [it["id"] for it in called["tool_calls"]] == ["id0"]
    assert given == {"role": "tool", "tool_call_id": "id0", "content": "rang once"}


def test_a_denied_call_has_the_persons_word_for_its_result(tmp_path: Path, model: RuleModel) -> None:
    org = make(tmp_path, model)
    request = ask(org, "ada", "Ring the bell.")
    tick(org)
    decide(org, "deny", "--reason", "it is late")
    tick(org)
    assert answers(org, "ada")[request.id]["text"] == "Done: DENIED by human: it is late"
    assert not Ring.rung


def test_of_several_calls_each_has_its_own_result(tmp_path: Path, model: RuleModel) -> None:
    model.wants, model.together = [ONCE, TWICE], True
    org = make(tmp_path, model)
    request = ask(org, "ada", "Ring the bell.")
    tick(org)
    first, second = requests(org)
    assert run(["-C", str(org), "deny", first.id, "--as", "human", "--reason", "no"]) == 0
    assert run(["-C", str(org), "approve", second.id, "--as", "human"]) == 0
    tick(org)
    assert answers(org, "ada")[request.id]["text"] == "Done: DENIED by human: no and rang twice"
    assert [it["content"] for it in model.sent[-1] if it["role"] == "tool"] == ["DENIED by human: no", "rang twice"]


def test_a_conversation_goes_on_over_several_turns_that_wait(tmp_path: Path, model: RuleModel) -> None:
    model.wants = [ONCE, TWICE]
    org = make(tmp_path, model)
    request = ask(org, "ada", "Ring the bell.")
    for _ in range(2):
        tick(org)
        decide(org, "approve")
    tick(org)
    assert answers(org, "ada")[request.id]["text"] == "Done: rang once and rang twice"
    assert [it["role"] for it in model.sent[-1][2:]] == ["assistant", "tool"] * 2
    assert len(requests(org)) == 2


def test_what_was_sent_is_on_record_and_replays(tmp_path: Path, model: RuleModel) -> None:
    org = make(tmp_path / "org", model)
    ask(org, "ada", "Ring the bell.")
    tick(org)
    decide(org, "approve")
    tick(org)
    assert [it.tick for it in replay_ticks(org, [1, 2])] == [1, 2]
    assert list(replay_into(org, tmp_path / "again", [1, 2]))


def test_the_prompt_command_shows_what_will_be_sent(
    tmp_path: Path, model: RuleModel, capsys: pytest.CaptureFixture[str]
) -> None:
    org = make(tmp_path, model)
    ask(org, "ada", "Ring the bell.")
    tick(org)
    decide(org, "deny", "--reason", "no")
    capsys.readouterr()
    assert run(["-C", str(org), "prompt", "ada", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    tick(org)
    sent = [it["content"] or "" for it in model.sent[-1]]
    assert [it["content"] for it in (shown.get("data") or shown)["messages"]] == sent


def test_changed_arguments_are_told_with_the_result(tmp_path: Path, model: RuleModel) -> None:
    org = make(tmp_path, model)
    request = ask(org, "ada", "Ring the bell.")
    tick(org)
    decide(org, "approve", "--edit", "text=softly")
    tick(org)
    assert Ring.rung == ["softly"]
    told = 'Done: (made with other arguments: {"text": "softly"})\nrang softly'
    assert answers(org, "ada")[request.id]["text"] == told


def test_what_an_inbox_showed_stands_before_the_calls_that_it_caused(tmp_path: Path, model: RuleModel) -> None:
    org = make(tmp_path, model)
    ask(org, "ada", "Ring the bell.", kind="message")
    tick(org)
    decide(org, "approve")
    tick(org)
    roles = [it["role"] for it in model.sent[-1]]
    assert roles == ["system", "user", "user", "assistant", "tool"]
    assert "Ring the bell." in model.sent[-1][2]["content"]
    assert len(requests(org)) == 1


@pytest.mark.parametrize("verb", ["fork", "rewind"])
def test_a_fork_or_a_rewind_to_a_turn_that_waits_goes_on_too(tmp_path: Path, model: RuleModel, verb: str) -> None:
    org = make(tmp_path / "org", model)
    assert run(["-C", str(org), "history", "on"]) == 0
    request = ask(org, "ada", "Ring the bell.")
    tick(org)
    decide(org, "approve")
    tick(org)
    if verb == "fork":
        assert run(["-C", str(org), "fork", "--at", "1", str(tmp_path / "fork")]) == 0
        org = tmp_path / "fork"
    else:
        assert run(["-C", str(org), "rewind", "--to", "1", "--yes"]) == 0
    assert request.id not in answers(org, "ada")
    decide(org, "approve")
    tick(org)
    assert answers(org, "ada")[request.id]["text"] == "Done: rang once"
    assert [it["role"] for it in model.sent[-1]] == ["system", "user", "assistant", "tool"]


@pytest.mark.parametrize("prompt", ["fit", "brief"])
def test_a_model_without_calls_of_its_own_goes_on_too(tmp_path: Path, model: RuleModel, prompt: str) -> None:
    model.in_text = True
    org = make(tmp_path, model, line={"tools": "contract", "prompt": prompt})
    request = ask(org, "ada", "Ring the bell.")
    tick(org)
    decide(org, "approve")
    tick(org)
    assert answers(org, "ada")[request.id]["text"] == "Done."
    assert [it["role"] for it in model.sent[-1]] == ["system", "user", "assistant", "user"]
    assert json.loads(model.sent[-1][2]["content"]) == {"do": "ring", "text": "once"}
    assert model.sent[-1][3]["content"].startswith('ring: "rang once"')
    assert len(requests(org)) == 1


def test_a_small_model_cannot_make_the_same_call_again_after_the_wait(tmp_path: Path, model: RuleModel) -> None:
    model.in_text = True
    org = make(tmp_path, model, line={"tools": "contract", "prompt": "brief"})
    ask(org, "ada", "Ring the bell.")
    tick(org)
    decide(org, "approve")
    tick(org)
    first, last = (json.dumps(it["response_format"]) for it in model.received)
    assert '"ring"' in first
    assert '"ring"' not in last


def test_the_prompt_command_shows_calls_and_counts_what_was_said(
    tmp_path: Path, model: RuleModel, capsys: pytest.CaptureFixture[str]
) -> None:
    org = make(tmp_path, model)
    ask(org, "ada", "Ring the bell.")
    tick(org)
    decide(org, "deny", "--reason", "it is late")
    capsys.readouterr()
    assert run(["-C", str(org), "prompt", "ada"]) == 0
    told = capsys.readouterr().out
    assert 'ring({"text": "once"})' in told
    assert "DENIED by human: it is late" in told
    assert "conversation" in told


def test_a_notice_of_the_turn_that_waited_stands_in_a_message_of_its_own(tmp_path: Path) -> None:
    first = say("calling", tool_calls=[ring()], memory_updates=[{"key": "../no", "value": 1}])
    org = contract_org(tmp_path, script=[{"tick": 1, "reply": first}, {"reply": say("seen")}])
    tick(org)
    decide(org, "approve")
    tick(org)
    (start,) = [it for it in journal_lines(org, 2) if it["type"] == "turn_started" and it["agent"] == "ada"]
    assert [it["role"] for it in start["dialogue"]] == ["user", "assistant", "user", "user"]
    *_, results, notice = start["dialogue"]
    assert "WARNING" not in results["content"]
    assert notice["content"].startswith("WARNING: ")
    assert "../no" in notice["content"]
