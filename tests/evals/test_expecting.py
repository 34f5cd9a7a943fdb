"""What a case may expect: each kind is met, and is not met by what is nearly so."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tried import Tried

from lemming.cli import run
from lemming.evals.case_responder import RunOptions
from lemming.evals.suite import build_arms, run_suite
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.testing import make_org, resume, say

Json = dict[str, Any]
ADA = {"author": "ada"}


class Wire(Tool):
    """Sends something, and counts how often."""

    name, description, tool_class = "wire", "Sends a text.", "send"
    sent: list[str] = []  # noqa: RUF012

    def execute(self, agent_name: str, base_path: Path, *, text: str) -> ToolResult:
        """Send it."""
        self.sent.append(text)
        return ToolResult(True, f"sent number {len(self.sent)}")


def scripted(base: Path, *replies: Json, **more: Any) -> Path:
    """Return an organisation in which ada says these things, tick by tick, when she is asked something."""
    script = [{"agent": "ada", "tick": number, "reply": reply} for number, reply in enumerate(replies, 1)]
    ada = resume("ada", **more)
    make_org(base, ada, resume("human", model={"key": "human"}),
             script=[*script, {"reply": say("more")}], models={"human": {"provider": "human"}})  # fmt: skip
    return base


def outcome(base: Path, *expected: Json, **case: Any) -> list[str]:
    """Run a case with these expectations, and return what was said of those that are not met."""
    folder = base / "evals/first"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.json").write_text(json.dumps({"ticks": 2, "expect": expected, **case}))
    out = base.parent / "runs.jsonl"
    run(["-C", str(base), "eval", "first", "--trust", "--out", str(out), "-q"])
    (result,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert not result["error"], result
    return [failure["said"] for failure in result["failures"]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organisation in which ada tells bob of a ferry, then writes a memory and a file."""
    ferry = say("The ferry leaves at nine.", memory_updates=[{"key": "ferry", "value": {"hour": 9}}])
    ferry["outbox_entries"][0]["payload"]["target"] = "bob"
    write = {"tool": "file_write", "args": {"path": "shared/page.md", "content": "ferry at 9"}}
    files = {"allow_read": ["./shared"], "allow_write": ["./shared"]}
    may = {"read_outboxes": ["*"], "tools": ["file_write"], "file_access": files}
    base = tmp_path_factory.mktemp("told") / "org"
    return scripted(base, ferry, say("done", kind="report", tool_calls=[write]), permissions=may)


PAIRS: list[tuple[Json, Json]] = [
    ({"entry": {**ADA, "matches": "ferry"}}, {"entry": {**ADA, "matches": "Ferry"}}),
    ({"entry": {"kind": "report"}}, {"entry": {"kind": "status"}}),
    ({"entry": {"to": "Bob"}}, {"entry": {"to": "cyd"}}),
    ({"entry": {**ADA, "at_least": 2}}, {"entry": {**ADA, "at_least": 3}}),
    ({"entry": {"matches": "done"}}, {"entry": {"matches": "done", "within_ticks": 1}}),
    (
        {"entry": {"when": {"field": "payload.target", "op": "is", "value": "bob"}}},
        {"entry": {"when": {"field": "payload.target", "op": "is", "value": "cyd"}}},
    ),
    ({"no_entry": {"author": "bob"}}, {"no_entry": ADA}),
    ({"no_entry": {**ADA, "at_least": 3}}, {"no_entry": {**ADA, "at_least": 2}}),
    ({"file": {"path": "shared/page.md"}}, {"file": {"path": "shared/other.md"}}),
    ({"file": {"path": "x", "exists": False}}, {"file": {"path": "shared/page.md", "exists": False}}),
    ({"file": {"path": "shared/page.md", "matches": "at [0-9]"}},
     {"file": {"path": "shared/page.md", "matches": "at [a-z]"}}),
    ({"file": {"path": "agents/ada/memory/ferry.json",
               "when": {"field": "value.hour", "op": "le", "value": 9}}},
     {"file": {"path": "agents/ada/memory/ferry.json",
               "when": {"field": "value.hour", "op": "lt", "value": 9}}}),
    ({"no_entry": {"author": "human"}},
     {"file": {"path": "shared/page.md", "when": {"field": "", "op": "exists"}}}),
    ({"tool_called": {"tool": "file_write", "agent": "ada"}}, {"tool_called": {"tool": "file_read"}}),
    ({"tool_called": {"tool": "file_write", "at_most": 1}},
     {"tool_called": {"tool": "file_write", "at_least": 0, "at_most": 0}}),
    ({"tool_called": {"tool": "file_write", "success": True}},
     {"tool_called": {"tool": "file_write", "success": False}}),
    ({"tool_called": {"tool": "file_write",
                      "when": {"field": "args.path", "op": "ends_with", "value": ".md"}}},
     {"tool_called": {"tool": "file_write", "when": {"field": "agent", "op": "is", "value": "bob"}}}),
    ({"cost": {"at_most_calls": 2}}, {"cost": {"at_most_calls": 1}}),
    ({"cost": {"at_most_credits": 2}}, {"cost": {"at_most_credits": 1.5}}),
    ({"cost": {"when": {"field": "ticks", "op": "is", "value": 2}}}, {"cost": {"at_most_usd": 1}}),
]  # fmt: skip
"""What is met, and what is nearly the same and is not."""


@pytest.fixture(scope="module")
def missed(told: Path) -> set[int]:
    """Which expectations are not met, of all pairs in their order, held against one run."""
    told.joinpath("evals/all").mkdir(parents=True)
    expected = [each for pair in PAIRS for each in pair]
    case = {"ticks": 2, "send": [{"text": "ferry?"}], "expect": expected}
    told.joinpath("evals/all/case.json").write_text(json.dumps(case))
    (result,) = run_suite(told, ["all"], build_arms([], [], []), RunOptions())
    assert not result.error
    return {failure.index for failure in result.failures}


@pytest.mark.parametrize("number", range(len(PAIRS)), ids=lambda it: f"{it}-{next(iter(PAIRS[it][0]))}")
def test_an_expectation_is_met_by_this_and_not_by_that(missed: set[int], number: int) -> None:
    assert (2 * number in missed, 2 * number + 1 in missed) == (False, True)


def test_findings_are_those_of_the_ticks_of_the_case(base: Path) -> None:
    org = scripted(base, *[say("the same")] * 4, say("one"), say("two"), say("three"))
    none, of_bob = {"findings": {}}, {"findings": {"agent": "bob"}}
    some, too_many = {"findings": {"kind": "repeats", "at_least": 1}}, {"findings": {"at_least": 9}}
    (first, second) = outcome(org, none, of_bob, some, too_many, ticks=4)
    assert first.startswith("repeats: ada")
    assert second == first
    run(["-C", str(org), "run-forever", "--max-ticks", "4", "--interval", "0", "-q"])
    assert outcome(org, none, ticks=3) == []


@pytest.mark.parametrize(
    ("reply", "wanted", "said"),
    [
        (say("at nine"), {"matches": "nine"}, []),
        (say("at nine"), {"matches": "ten"}, ['the answer is "at nine"']),
        (say("no"), {"end": "refused"}, ["it ended as answered"]),
        (say("", kind="status"), {}, ["the request is still open; ada must answer"]),
    ],
)
def test_what_came_of_a_request_is_held_against_what_is_wanted(
    base: Path, reply: Json, wanted: Json, said: list[str]
) -> None:
    org = scripted(base, reply)
    if reply["outbox_entries"][0]["kind"] == "message":
        reply["outbox_entries"][0]["kind"] = "response"
        org = scripted(base, reply)
    asked = {"to": "ada", "text": "when?"}
    assert outcome(org, {"answer": wanted}, ask=asked, ticks=1) == said


def test_a_program_looks_at_the_copy_after_the_last_tick(told: Path) -> None:
    def looks_for(text: str) -> Json:
        code = f"import sys; sys.exit({text!r} not in open('shared/page.md').read())"
        return {"command": {"run": [sys.executable, "-c", code]}}

    assert outcome(told, looks_for("ferry at 9"), looks_for("ferry at 10")) == [
        f"{sys.executable} ended with 1: no message"
    ]


def test_a_program_is_not_run_before_somebody_agreed(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    org = scripted(base, say("x"))
    (org / "evals/first").mkdir(parents=True)
    command = {"command": {"run": ["touch", str(base.parent / "sprung")]}}
    (org / "evals/first/case.json").write_text(json.dumps({"expect": [command]}))
    assert run(["-C", str(org), "eval"]) == 2
    assert "runs the program: touch" in capsys.readouterr().err
    assert not (base.parent / "sprung").exists()


# --- judges -----------------------------------------------------------------------------------

JUDGED = {"judge": {"by": "other", "rubric": "It says good.", "entry": ADA}}


@pytest.mark.parametrize("answers", ["recorded", "live"])
def test_a_judge_is_asked_the_same_question_once_only(tmp_path: Path, answers: str) -> None:
    tried = Tried(tmp_path / "org", answers=["good"])
    tried.case(expect=[JUDGED], answers=answers, repeat=2)
    words = ["--record"] if answers == "recorded" else []
    assert [tried.eval(*words), tried.eval()] == [0, 0]
    asked = [request for request in tried.asked if request.agent == "judge"]
    assert len(asked) == 1
    assert "It says good." in asked[0].messages[0]["content"]


def test_what_a_judge_does_not_pass_fails_with_its_reason(tmp_path: Path) -> None:
    tried = Tried(tmp_path / "org", answers=["bad"])
    tried.case(expect=[JUDGED])
    (result,) = tried.runs(tmp_path, "--record")
    assert [failure["said"] for failure in result["failures"]] == ["it does not say good"]


def test_an_agent_judges_by_its_own_instructions_and_model(tmp_path: Path) -> None:
    tried = Tried(tmp_path / "org", answers=["good"])
    critic = {"by": {"agent": "critic"}, "rubric": "It is good.", "entry": ADA}
    tried.case(expect=[{"judge": critic}], set={
        "agents/critic/resume.json": json.dumps(resume(
            "critic", model={"key": "other"}, instructions="You are strict.",
            schedule={"run_every_n_ticks": 99},
        ))
    })  # fmt: skip
    assert tried.eval("--record") == 0
    (asked,) = (request for request in tried.asked if request.agent == "judge")
    assert (asked.model_name, "You are strict." in asked.messages[0]["content"]) == ("n", True)


def test_a_judge_that_there_is_not_is_named(tmp_path: Path) -> None:
    tried = Tried(tmp_path / "org")
    tried.case(expect=[{"judge": {"by": "othr", "rubric": "x", "entry": ADA}}])
    (result,) = tried.runs(tmp_path, "--record")
    assert 'agent or model key "othr" does not exist' in result["error"]


# --- calls that send something ---------------------------------------------------------------------


@pytest.fixture
def wired(tmp_path: Path) -> Any:
    """An organisation whose agent sends something in each tick."""
    Wire.sent.clear()
    ToolRegistry.register(Wire())
    reply = say("x", tool_calls=[{"tool": "wire", "args": {"text": "hello"}}])
    yield scripted(tmp_path / "org", reply, permissions={"read_outboxes": ["*"], "tools": ["wire"]})
    ToolRegistry.unregister("wire")


CALLED: Json = {"tool_called": {"tool": "wire", "success": True}}


def test_what_sends_something_is_not_called_from_a_copy(wired: Path) -> None:
    assert outcome(wired, CALLED, ticks=1) == ["0 such calls of wire"]
    assert Wire.sent == []


def test_what_a_call_gives_may_stand_in_the_case(wired: Path) -> None:
    given = {"tool_called": {"tool": "wire", "when": {"field": "output", "op": "is", "value": "as good as sent"}}}
    assert outcome(wired, CALLED, given, ticks=1, tools={"wire": "as good as sent"}) == []
    assert Wire.sent == []


def test_a_tool_that_an_agent_may_not_call_gives_nothing_by_the_case_either(base: Path) -> None:
    reply = say("x", tool_calls=[{"tool": "file_list", "args": {}}])
    org = scripted(base, reply, permissions={"read_outboxes": ["*"], "tools": []})
    listed: Json = {"tool_called": {"tool": "file_list", "success": True}}
    assert outcome(org, listed, ticks=1, tools={"file_list": "x"}) == ["0 such calls of file_list"]


def test_a_call_that_was_made_and_recorded_is_not_made_again(wired: Path) -> None:
    assert outcome(wired, CALLED, ticks=1) != []
    assert run(["-C", str(wired), "eval", "--trust", "--record", "--tools"]) == 0
    assert run(["-C", str(wired), "eval", "--trust"]) == 0
    assert Wire.sent == ["hello"]
