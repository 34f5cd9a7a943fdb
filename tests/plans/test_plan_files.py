"""What `validate` says of plans: each mistake by its name, with its place and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from planned import planned_org, step, write_plan

from lemming.engine import run_once
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.queries.org_validation import validate_agents, validate_config
from lemming.testing import resume

LATE = {"field": "last.bbob.age_ticks", "op": "gt", "value": 5}
CLOSED = {"properties": {"price": {"type": "number"}}, "additionalProperties": False}
GOOD = {"field": "answer.verdict", "op": "is", "value": "good"}


def said(base: Path, agent: str = "desk") -> list[Problem]:
    return list(validate_agents(base, load_config(base), agent))


def test_a_plan_of_every_kind_of_step_is_in_order(tmp_path: Path) -> None:
    base = planned_org(
        tmp_path,
        step("facts", "ada", writes="facts", context=["start", "memory.style", "last.bob"]),
        {"name": "angles", "retry": "failed_only", "attempts": 2,
         "parallel": [step("pro", "ada"), step("con", "bob", context=["steps.facts"])]},
        step("draft", "ada", task="{{steps.angles}} {{keys.facts}} {{round}}", limit=3, at_limit="ship",
             verify={"ask": "bob", "attempts": 2}),
        step("review", "bob", task="{{previous}}",
             output={"type": "object", "properties": {"verdict": {"enum": ["good", "bad"]}}},
             choose={"field": "verdict", "to": {"good": "ship", "bad": "draft"}}),
        {"name": "ship", "wait": {"ticks": 2}},
        {"name": "big", "routes": [{"when": {"field": "keys.facts.text", "op": "longer_than", "value": 5},
                                    "to": "ask_me"}], "else": "end"},
        step("ask_me", "human", deadline=5, default={"text": "no"}),
        answer="{{steps.draft}}",
    )  # fmt: skip
    assert said(base) == []


MISTAKES: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "no steps": ([], "/steps", "must have at least one step"),
    "nothing done": ([step("a")], "/steps/0", '"a" must have an action'),
    "two things done": ([step("a", "ada", tool="shell")], "/steps/0/tool", "got ask and tool"),
    "no task": ([{"name": "a", "ask": "ada"}], "/steps/0", 'must have "task"'),
    "two of a name": ([step("a", "ada"), step("a", "bob")], "/steps/1/name", 'got "a" twice'),
    "a name that is an end": ([step("end", "ada")], "/steps/0/name", "reserved for the end of a run"),
    "no name": ([step("a b", "ada")], "/steps/0/name", "is not a valid name for a step"),
    "a band too wide": (
        [{"name": "b", "parallel": [step(f"m{number}", "ada") for number in range(65)]}],
        "/steps/0/parallel", "got 65",
    ),
    "a moment without a clock": (
        [{"name": "w", "wait": {"time": "2027-01-31T09:00:00Z"}}], "/steps/0/wait/time", 'requires "clock"',
    ),
    "an unknown agent": ([step("a", "adda")], "/steps/0/ask", 'did you mean "ada"?'),
    "itself": ([step("a", "desk")], "/steps/0/ask", "must not ask desk"),
    "an unknown tool": ([{"name": "a", "tool": "shel"}], "/steps/0/tool", 'did you mean "shell"?'),
    "a tool refused": ([{"name": "a", "tool": "create_agent"}], "/steps/0/tool", "permissions.tools"),
    "no plan there": ([{"name": "a", "plan": "ada", "task": "x"}], "/steps/0/plan", "got ada"),
    "args of no tool": ([step("a", "ada", args={"x": 1})], "/steps/0/args", '"args" has no effect'),
    "a wait for nothing": ([{"name": "a", "wait": {}}], "/steps/0/wait", "got nothing"),
    "a wait for two": ([{"name": "a", "wait": {"ticks": 1, "tick": 2}}], "/steps/0/wait", "ticks and tick"),
    "a wait for a hidden file": (
        [{"name": "a", "wait": {"file": "../tick.json"}}], "/steps/0/wait/file", "may not read",
    ),
    "a default without deadline": (
        [step("a", "human", default="no")], "/steps/0/default", 'requires "deadline"',
    ),
    "a default that does not fit": (
        [step("a", "human", default={"x": 1}, deadline=1,
              output={"type": "object", "required": ["ok"]})], "/steps/0/default", "must match output",
    ),
    "no schema": ([step("a", "ada", output={"type": "objct"})], "/steps/0/output/type", "expected a JSON Schema"),
    "an unknown step": ([step("a", "ada", then="b")], "/steps/0/then", 'no step "b"'),
    "a way into a band": (
        [step("a", "ada", then="x"), {"name": "b", "parallel": [step("x", "ada"), step("y", "bob")]}],
        "/steps/0/then", 'a member of "b"',
    ),
    "no else": (
        [step("a", "ada", routes=[{"when": GOOD, "to": "end"}]), step("b", "bob")],
        "/steps/0/routes", 'requires "else"',
    ),
    "a branch into a branch": (
        [step("a", "ada", routes=[{"when": GOOD, "to": "b"}], **{"else": "c"}), step("b", "bob"),
         step("c", "ada")],
        "/steps/1", 'continues with "c"',
    ),
    "then beside routes": (
        [step("a", "ada", then="end", routes=[{"when": GOOD, "to": "end"}], **{"else": "fail"})],
        "/steps/0/then", "no effect",
    ),
    "a condition that is none": (
        [step("a", "ada", routes=[{"when": {"field": "x", "op": "equals"}, "to": "end"}],
              **{"else": "fail"})],
        "/steps/0/routes/0/when/op", 'no operation "equals"',
    ),
    "a field of nothing": (
        [step("a", "ada", routes=[{"when": {"field": "verdict", "op": "exists"}, "to": "end"}],
              **{"else": "fail"})],
        "/steps/0/routes/0/when/field", "answer.verdict",
    ),
    "a loop without limit": (
        [step("a", "ada"), step("b", "bob", then="a")], "/steps/1/then", "must have a limit",
    ),
    "nobody leads there": ([step("a", "ada", then="end"), step("b", "bob")], "/steps/1", "is never reached"),
    "a later step": (
        [step("a", "ada", task="{{steps.b}}"), step("b", "bob")], "/steps/0/task", "runs later",
    ),
    "a sibling": (
        [{"name": "b", "parallel": [step("x", "ada"), step("y", "bob", context=["steps.x"])]}],
        "/steps/0/parallel/1/context/0", "at the same time",
    ),
    "itself referred to": ([step("a", "ada", task="{{steps.a}}")], "/steps/0/task", "its own answer"),
    "an unknown step referred to": (
        [step("draft", "ada"), step("b", "bob", task="{{steps.darft}}")], "/steps/1/task", 'mean "draft"?',
    ),
    "an unknown root": (
        [step("draft", "ada"), step("b", "bob", task="{{draft}}")], "/steps/1/task", 'mean "steps.draft"?',
    ),
    "nothing before": ([step("a", "ada", task="{{previous}}")], "/steps/0/task", "no step before"),
    "an unknown key": (
        [step("a", "ada"), step("b", "bob", task="{{keys.x}}")], "/steps/1/task", "no step writes",
    ),
    "a later key": (
        [step("a", "ada", task="{{keys.x}}"), step("b", "bob", writes="x")], "/steps/0/task", "written later",
    ),
    "two writers": (
        [step("a", "ada", writes="x"), step("b", "bob", writes="x")], "/steps/1/writes", 'both write "x"',
    ),
    "two writers in a band": (
        [{"name": "b", "parallel": [step("x", "ada", writes="k"), step("y", "bob", writes="k")]}],
        "/steps/0/parallel/1/writes", 'both write "k"',
    ),
    "silence that runs a command": (
        [step("may", "human", deadline=3, default={"text": "yes"}), {"name": "go", "tool": "shell"}],
        "/steps/0/default", "calls shell (execute)",
    ),
    "two who verify": (
        [step("a", "ada", verify={"ask": "bob", "tool": "shell"})], "/steps/0/verify", "expected one judge",
    ),
    "last of nobody": ([step("a", "ada", context=["last.bbob"])], "/steps/0/context/0", 'mean "bob"?'),
    "last of nobody, in a route": (
        [step("a", "ada", routes=[{"when": LATE, "to": "end"}], **{"else": "fail"})],
        "/steps/0/routes/0/when/field", 'mean "bob"?',
    ),
    "an argument that the tool has not": (
        [{"name": "a", "tool": "shell", "args": {"comand": "ls"}}], "/steps/0/args/comand", '"command"?',
    ),
    "an argument that is missing": (
        [{"name": "a", "tool": "shell", "args": {}}], "/steps/0/args", 'requires the argument "command"',
    ),
    "a field outside a closed schema": (
        [step("a", "ada", output=CLOSED), step("b", "bob", task="{{steps.a.prise}}")],
        "/steps/1/task", 'mean "price"?',
    ),
    "such a field in a route": (
        [step("a", "ada", output=CLOSED, routes=[{"when": GOOD, "to": "end"}], **{"else": "fail"})],
        "/steps/0/routes/0/when/field", 'a field "verdict"',
    ),
    "a retry without a band": ([step("a", "ada", retry="failed_only")], "/steps/0/retry", 'without "parallel"'),
    "a task for a band": (
        [{"name": "b", "task": "x", "parallel": [step("x", "ada"), step("y", "bob")]}],
        "/steps/0/task", "in a step that is a band",
    ),
    "no key": ([step("a", "ada", writes="a b")], "/steps/0/writes", '"a b" is not a valid key'),
    "a deadline in no words": ([step("a", "human", deadline="soonish")], "/steps/0/deadline", "soonish"),
    "a policy for who only answers": (
        [step("a", "ada", verify={"ask": "bob", "policy": "be kind"})], "/steps/0/verify/policy", "no effect",
    ),
    "args for who is asked": (
        [step("a", "ada", verify={"ask": "bob", "args": {"x": 1}})], "/steps/0/verify/args", "no effect",
    ),
    "two that decide": (
        [step("a", "ada", routes=[{"when": GOOD, "to": "end"}], choose={"field": "v", "to": {"a": "end"}},
              **{"else": "fail"})], "/steps/0/choose", "exclude each other",
    ),
    "an else for nothing": ([step("a", "ada", **{"else": "end"})], "/steps/0/else", 'without "routes"'),
    "a field of no answer": (
        [step("a", "ada", output={"properties": {"verdict": {}}},
              choose={"field": "verdit", "to": {"a": "end"}}, **{"else": "end"})],
        "/steps/0/choose/field", 'no field "verdit"',
    ),
}  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, mistake: str) -> None:
    steps, pointer, words = MISTAKES[mistake]
    problems = said(planned_org(tmp_path, *steps))
    assert [problem for problem in problems if words in str(problem) and problem.pointer == pointer], problems
    assert all(problem.file == "agents/desk/plan.json" and problem.line for problem in problems)
    assert all(problem.hint for problem in problems)


def test_branches_that_exclude_each_other_may_write_one_key(tmp_path: Path) -> None:
    base = planned_org(
        tmp_path,
        step("a", "ada", routes=[{"when": GOOD, "to": "b"}], **{"else": "c"}),
        step("b", "bob", writes="x", then="d"),
        step("c", "ada", writes="x", then="d"),
        step("d", "bob", task="{{keys.x}}"),
    )
    assert said(base) == []


def test_a_default_that_says_no_leads_nowhere(tmp_path: Path) -> None:
    yes = {"field": "answer.text", "op": "is", "value": "yes"}
    may = step("may", "human", deadline=3, default="no", routes=[{"when": yes, "to": "go"}], **{"else": "end"})
    assert said(planned_org(tmp_path, may, {"name": "go", "tool": "shell", "args": {"command": "ls"}})) == []


def test_who_may_not_read_whom_is_said_with_the_line_that_is_missing(tmp_path: Path) -> None:
    base = planned_org(tmp_path, step("a", "ada"), step("b", "bob"), step("c", "human"))
    deaf = resume("ada", permissions={"read_outboxes": ["bob"]})
    fs.write_atomic(base, "agents/ada/resume.json", dump_pretty(deaf))
    blind = resume("desk", model={"key": "plan"}, permissions={"read_outboxes": ["ada", "human"]})
    fs.write_atomic(base, "agents/desk/resume.json", dump_pretty(blind))
    found = {problem.pointer: problem for problem in said(base)}
    assert "ada may not read desk" in found["/steps/0/ask"].message
    assert found["/steps/0/ask"].hint == 'add "desk" to permissions.read_outboxes in agents/ada/resume.json'
    assert "desk may not read bob" in found["/steps/1/ask"].message
    assert "/steps/2/ask" not in found


def test_plans_that_ask_each_other_in_a_circle_are_named(tmp_path: Path) -> None:
    base = planned_org(tmp_path, {"name": "a", "plan": "other", "task": "x"})
    fs.write_atomic(base, "agents/other/resume.json", dump_pretty(resume("other", model={"key": "plan"})))
    write_plan(base, {"name": "b", "plan": "desk", "task": "x"}, agent="other")
    assert "desk -> other -> desk" in str(said(base)[0])


def test_a_plan_that_is_missing_or_followed_by_nobody_is_said(tmp_path: Path) -> None:
    base = planned_org(tmp_path, step("a", "ada"))
    write_plan(base, step("a", "bob"), agent="ada")
    assert "the plan has no effect" in str(said(base, "ada")[0])
    fs.remove(base, "agents/desk/plan.json")
    assert "does not exist" in str(said(base)[0])


def test_a_file_that_is_no_plan_is_said_with_its_line(tmp_path: Path) -> None:
    base = planned_org(tmp_path)
    fs.write_atomic(base, "agents/desk/plan.json", b'{"steps": [\n  {"name": "a", "ask": 3}\n]}')
    assert said(base)[0].where == "agents/desk/plan.json:2:17 /steps/0/ask"
    fs.write_atomic(base, "agents/desk/plan.json", b'{"steps": [\n  {"name": "a", "aks": "ada"}]}')
    assert 'did you mean "ask"?' in str(said(base)[0])


def test_a_line_of_models_that_no_plan_can_read_is_named(tmp_path: Path) -> None:
    base = planned_org(tmp_path, step("a", "ada"))
    fs.write_atomic(base, "config/models.json", dump_pretty({"mine": {"provider": "plan"}}))
    (wrong,) = [it for it in validate_config(base, load_config(base)) if it.pointer == "/mine"]
    assert 'must be "values" for plan' in wrong.message
    assert wrong.hint == 'add "prompt": "values" next to provider'


def test_a_key_that_is_none_in_a_step_fails_the_turn_and_asks_nobody(tmp_path: Path) -> None:
    base = planned_org(tmp_path, step("a", "ada", verfy={"ask": "bob"}))
    (problem,) = said(base)
    assert (problem.pointer, problem.severity) == ("/steps/0/verfy", "error")
    assert problem.hint == 'did you mean "verify"?'
    (turn,) = (it for it in run_once(base).turns if it.agent == "desk")
    assert (turn.status, turn.entries) == ("failed", [])
    assert "/steps/0/verfy" in turn.reason


def test_an_agent_with_a_broken_resume_is_not_said_to_be_missing(tmp_path: Path) -> None:
    base = planned_org(tmp_path, step("a", "ada", context=["last.ada"], verify={"ask": "ada"}))
    (base / "agents/ada/resume.json").write_text("{")
    problems = said(base)
    assert {problem.message for problem in problems} == {"ada takes no turns: its resume is broken"}
    assert {problem.severity for problem in problems} == {"warning"}
    assert all("correct agents/ada/resume.json" in problem.hint for problem in problems)
