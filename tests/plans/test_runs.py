"""How a run goes on: steps, decisions, loops, bands, checks, waits."""

from __future__ import annotations

import pytest
from planned import step
from played import Played, plan


def test_four_steps_ask_four_times_and_the_answer_is_the_last_ones() -> None:
    run = Played(plan(
        step("facts", "ada", writes="facts"),
        step("draft", "bob", task="Write about {{start}}.", context=["keys.facts"]),
        step("review", "cat", task="Is it good? {{previous}}"),
        step("final", "bob", task="Last words.", context=["steps.draft", "steps.review"]),
    ))  # fmt: skip
    run.turn()
    for name, text in (("ada", "bees dance"), ("bob", "a draft"), ("cat", "fine")):
        assert run.open == [name]
        run.answer(name, text)
        run.turn()
    assert run.text_for("bob") == "Last words.\n\ndraft:\na draft\n\nreview:\nfine"
    run.answer("bob", "done")
    run.turn()
    assert len(run.asked) == 4
    assert run.response == {"text": "done"}
    assert run.memory["run-3fa9c1d2e0b7"]["status"] == "done"


def test_what_was_put_into_a_task_is_not_looked_through_again() -> None:
    run = Played(plan(step("a", "ada", task="About {{start}}, {{ start.topic }}.")), "{{memory.secret}}", topic="x")
    run.memory["secret"] = "hidden"
    run.turn()
    assert run.text_for("ada") == "About {{memory.secret}}, x."


def test_a_model_may_say_the_word_alone_or_in_a_json_text() -> None:
    for said in ("good", "Good.", '{"verdict": "Good!"}', '```json\n{"verdict": "good"}\n```'):
        run = Played(plan(step("a", "ada", choose={"field": "verdict", "to": {"good": "end"}})))
        run.turn()
        run.answer("ada", said)
        run.turn()
        assert run.memory["run-3fa9c1d2e0b7"]["status"] == "done", said


def test_a_loop_goes_round_as_often_as_it_may() -> None:
    run = Played(plan(
        step("draft", "ada", task="Draft {{round}}.", context=["steps.review"], limit=2, at_limit="ship"),
        step("review", "bob", choose={"field": "verdict", "to": {"good": "ship", "bad": "draft"}}),
        step("ship", "cat", task="{{steps.draft}}"),
    ))  # fmt: skip
    run.turn()
    for text in ("one", "two"):
        run.answer("ada", text)
        run.turn()
        run.answer("bob", "no good", verdict="bad")
        run.turn()
    assert run.text_for("ada") == "Draft 2.\n\nreview:\nno good"
    assert run.open == ["cat"]
    assert run.text_for("cat") == "two"


def test_conditions_decide_in_their_order() -> None:
    good = {"field": "answer.score", "op": "ge", "value": 7}
    made = plan(
        step("rate", "ada", routes=[{"when": good, "to": "yes"}], **{"else": "no"}),
        step("yes", "bob", then="end"),
        step("no", "cat"),
    )
    for score, who in ((9, "bob"), (3, "cat")):
        run = Played(made)
        run.turn()
        run.answer("ada", score=score)
        run.turn()
        assert run.open == [who]


def test_a_step_may_only_decide() -> None:
    long = {"field": "start.text", "op": "longer_than", "value": 10}
    made = plan(
        {"name": "size", "routes": [{"when": long, "to": "big"}], "else": "small"},
        step("big", "ada", then="end"),
        step("small", "bob"),
    )
    for text, who in (("x" * 20, "ada"), ("x", "bob")):
        run = Played(made, text)
        run.turn()
        assert run.open == [who]


BAND = {"name": "both", "attempts": 2, "parallel": [step("x", "ada"), step("y", "bob")]}


def test_a_band_asks_at_once_and_goes_on_when_all_have_answered() -> None:
    run = Played(plan({**BAND}, step("sum", "cat", task="{{steps.both}}", context=["steps.x"])))
    run.turn()
    assert run.open == ["ada", "bob"]
    run.answer("ada", "yes")
    run.turn()
    assert run.open == ["bob"]
    run.answer("bob", "no")
    run.turn()
    assert run.text_for("cat") == "x: yes\n\ny: no\n\nx:\nyes"


@pytest.mark.parametrize(("retry", "again"), [("all", ["ada", "bob"]), ("failed_only", ["bob"])])
def test_what_of_a_band_is_done_again_is_as_it_says(retry: str, again: list[str]) -> None:
    run = Played(plan({**BAND, "retry": retry}))
    run.turn()
    run.answer("ada", "yes")
    run.answer("bob", "cannot", end="failed")
    run.turn()
    assert run.open == again
    assert run.text_for("bob").endswith("The last try was not good enough: bob: failed: cannot")
    for name in again:
        run.answer(name, "fine")
    run.turn()
    assert run.response is not None
    assert "status" not in run.response


def test_a_band_that_fails_for_good_says_who_and_why() -> None:
    run = Played(plan({**BAND, "attempts": 1}))
    run.turn()
    run.answer("ada", "yes")
    run.answer("bob", "cannot", end="refused")
    run.turn()
    assert run.response == {"status": "failed", "text": 'the plan failed at "both": y: bob: refused: cannot'}


def test_a_verifier_sends_it_back_with_reasons_and_then_passes_it() -> None:
    run = Played(plan(step("draft", "ada", verify={"ask": "bob", "attempts": 3}), step("next", "cat")))
    run.turn()
    run.answer("ada", "one")
    run.turn()
    assert "The answer:\none" in run.text_for("bob")
    assert run.asked[-1]["payload"]["schema"]["required"] == ["passes"]
    run.answer("bob", passes=False, reason="too short")
    run.turn()
    assert run.text_for("ada").endswith("The last try was not good enough: too short")
    run.answer("ada", "two")
    run.turn()
    run.answer("bob", "pass")
    run.turn()
    assert run.open == ["cat"]


@pytest.mark.parametrize("said", ["", "looks fine to me", "passable", "PASSWORD", "fail"])
def test_what_does_not_say_pass_does_not_pass(said: str) -> None:
    run = Played(plan(step("draft", "ada", verify={"ask": "bob", "attempts": 1})))
    run.turn()
    run.answer("ada", "one")
    run.turn()
    run.answer("bob", said)
    run.turn()
    assert run.response is not None
    assert run.response["status"] == "failed"


def test_a_tool_verifies_by_working() -> None:
    run = Played(plan(step("code", "ada", verify={"tool": "shell", "args": {"command": "make {{answer.goal}}"}})))
    run.turn()
    run.answer("ada", "done", goal="test")
    assert run.turn()["tool_calls"] == [{"tool": "shell", "args": {"command": "make test"}}]
    run.results = [{"tool": "shell", "args": {}, "success": False, "output": "2 failed"}]
    run.turn()
    assert run.text_for("ada").endswith("shell failed: 2 failed")
    run.answer("ada", "again", goal="test")
    run.turn()
    run.results = [{"tool": "shell", "args": {}, "success": True, "output": "ok"}]
    run.turn()
    assert run.response == {"text": "again", "goal": "test"}


def test_a_tool_gives_its_fields_and_takes_values() -> None:
    run = Played(plan(
        {"name": "count", "tool": "count", "args": {"n": "{{start.n}}", "say": "n={{start.n}}"}},
        step("tell", "ada", task="{{steps.count.lines}} of {{steps.count}}"),
    ), n=3)  # fmt: skip
    assert run.turn()["tool_calls"] == [{"tool": "count", "args": {"n": 3, "say": "n=3"}}]
    run.results = [{"tool": "count", "args": {}, "success": True, "output": '{"lines": 7}'}]
    run.turn()
    assert run.text_for("ada") == '7 of {"lines": 7}'


def test_nobody_in_time_fails_a_step_unless_there_is_a_default() -> None:
    made = plan(step("a", "human", deadline=3, attempts=2, on_failure="b"), step("b", "ada"))
    run = Played(made)
    run.turn()
    for _ in range(2):
        assert run.open == ["human"]
        run.asked[-1]["end"] = "expired"
        run.turn()
    assert run.open == ["ada"]
    run = Played(plan(step("a", "human", deadline=3, default={"text": "no"})))
    run.turn()
    assert run.asked[0]["payload"]["default"] == {"text": "no"}
    run.answer("human", "no", end="expired")
    run.turn()
    assert run.response == {"text": "no"}


def test_an_answer_that_is_not_what_output_asks_for_is_asked_for_again_with_the_reason() -> None:
    output = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    run = Played(plan(step("a", "ada", output=output, attempts=2)))
    run.turn()
    run.answer("ada", "seven")
    run.turn()
    assert "'n' is a required property" in run.text_for("ada")
    run.answer("ada", '{"n": 7}')
    run.turn()
    assert run.response == {"n": 7, "text": '{"n": 7}'}


def test_waits_are_over_when_they_are() -> None:
    run = Played(plan({"name": "later", "wait": {"ticks": 2}}, step("a", "ada", task="now")))
    run.turn()
    assert run.open == []
    run.turn()
    assert run.open == []
    run.turn()
    assert run.open == ["ada"]
    run = Played(plan({"name": "in", "wait": {"file": "./shared/in.csv", "until": "changes", "at_most": 5}}))
    run.files = {"./shared/in.csv": "one"}
    run.turn()
    run.turn()
    assert run.response is None
    run.files = {"./shared/in.csv": "two"}
    run.turn()
    assert run.response is not None
    run = Played(plan({"name": "in", "wait": {"file": "./shared/in.csv", "at_most": 2}}))
    for _ in range(3):
        run.turn()
    assert run.response == {
        "status": "failed",
        "text": 'the plan failed at "in": in: waited 2 ticks for ./shared/in.csv to be there',
    }
    run = Played(plan({"name": "at", "wait": {"time": "{{start.when}}"}}), when="2027-01-31T10:00:00+01:00")
    run.time = "2027-01-31T08:59:59.000Z"
    run.turn()
    assert run.response is None
    run.time = "2027-01-31T09:00:00.000Z"
    run.turn()
    assert run.response is not None


def test_last_answers_come_with_their_age() -> None:
    made = plan(step("bob", "ada"), step("b", "bob", task="Ada said: {{last.ada}} {{steps.bob}}"))
    run = Played(made)
    run.turn()
    run.tick = 7
    run.answer("ada", "bees dance")
    run.turn()
    run.answer("bob", "so they do")
    run.turn()
    assert run.memory["last-answers"] == {"ada": {"text": "bees dance", "tick": 7}}
    later = Played(plan(step("b", "bob", task="{{last.ada}}", context=["last.cat"])))
    later.memory, later.tick = {"last-answers": run.memory["last-answers"]}, 10
    later.turn()
    assert later.text_for("bob") == "bees dance (3 ticks ago)"


def test_a_last_answer_that_only_a_route_looks_at_is_there() -> None:
    recent = {"field": "last.cat.age_ticks", "op": "lt", "value": 5}
    run = Played(plan(step("a", "ada", routes=[{"when": recent, "to": "b"}], **{"else": "fail"}), step("b", "bob")))
    run.memory, run.tick = {"last-answers": {"cat": {"text": "purr", "tick": 7}}}, 8
    run.turn()
    run.answer("ada", "done")
    run.turn()
    assert run.text_for("bob")


def test_the_answer_to_the_step_before_is_a_last_answer_too() -> None:
    red = {"field": "last.ada.text", "op": "is", "value": "red"}
    run = Played(
        plan(
            step("a", "ada"),
            {"name": "which", "routes": [{"when": red, "to": "b"}], "else": "fail"},
            step("b", "bob", task="She said {{last.ada}}"),
        )
    )
    run.turn()
    run.answer("ada", "red")
    run.turn()
    assert run.text_for("bob").startswith("She said red")


def test_too_many_steps_end_a_run() -> None:
    run = Played(plan(step("a", "ada", limit=1000, then="a"), max_steps=3))
    run.turn()
    for _ in range(3):
        run.answer("ada", "again")
        run.turn()
    assert run.response is not None
    assert "max_steps" in run.response["text"]


def test_a_run_whose_plan_was_changed_goes_on_by_name_or_says_why_not() -> None:
    run = Played(plan(step("a", "ada"), step("b", "bob")))
    run.turn()
    run.answer("ada", "one")
    run.plan = plan(step("a", "ada"), step("new", "cat"), step("b", "bob"))
    run.turn()
    assert run.open == ["cat"]
    run.plan = plan(step("b", "bob"))
    run.turn()
    assert run.response == {"status": "failed", "text": 'the plan failed at "new": the plan has no step "new" any more'}


def test_a_run_that_outgrows_its_memory_fails_with_the_reason() -> None:
    run = Played(plan(*(step(f"s{number}", "ada") for number in range(8))))
    run.turn()
    for _ in range(8):
        if run.response is None:
            run.answer("ada", "x" * 60_000)
            run.turn()
    assert run.response is not None
    assert "more than a memory may hold" in run.response["text"]
