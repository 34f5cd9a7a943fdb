"""Cases are run in copies; what is recorded is not asked again, and the organisation stays as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tried import Counted, Tried

from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.testing import Crash, FrozenClock, make_org, resume, say, tree


@pytest.fixture
def tried(tmp_path: Path) -> Tried:
    return Tried(tmp_path / "org")


def test_an_unchanged_case_makes_no_call_and_comes_out_the_same(tried: Tried, tmp_path: Path) -> None:
    tried.case(ticks=2, repeat=2)
    recorded = tried.runs(tmp_path, "--record")
    assert (len(tried.asked), [it["asked"] for it in recorded]) == (4, [2, 2])
    again = tried.runs(tmp_path)
    assert (len(tried.asked), [it["asked"] for it in again]) == (4, [0, 0])
    assert [{**it, "asked": 2} for it in again] == recorded
    assert len({it["state_root"] for it in again}) == 2  # each repeat has answers of its own
    assert again[0]["cost_usd"] == pytest.approx(0.008)


def test_a_changed_prompt_is_not_answered_from_the_record(tried: Tried, tmp_path: Path) -> None:
    tried.case()
    tried.eval("--record")
    (changed,) = tried.runs(tmp_path, "--set", "agents/ada/resume.json:/instructions=Be short.")
    assert "no answer is recorded for question 0 of ada in tick 1" in changed["error"]
    assert len(tried.asked) == 1


def test_recording_again_asks_only_what_is_new(tried: Tried) -> None:
    tried.case(ticks=2)
    tried.eval("--record")
    tried.case(ticks=3)
    assert tried.eval("--record") == 0
    assert len(tried.asked) == 3


def test_a_crash_leaves_the_organisation_as_it_was_and_what_was_paid_for(
    tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried.case(ticks=3)
    before = tree(tried.base, without=("evals",))
    monkeypatch.setattr(Counted, "dies_at", 3)
    with pytest.raises(Crash):
        tried.eval("--record")
    assert tree(tried.base, without=("evals",)) == before
    monkeypatch.undo()
    assert tried.eval("--record") == 0
    assert len(tried.asked) == 3  # two before, one now


def test_a_torn_last_line_of_the_record_is_asked_again(tried: Tried) -> None:
    folder = tried.case(ticks=2)
    tried.eval("--record")
    record = folder / "recorded.jsonl"
    record.write_bytes(record.read_bytes()[:-10])
    assert tried.eval() == 1
    assert tried.eval("--record") == 0
    assert len(tried.asked) == 3
    assert tried.eval() == 0


def test_live_asks_every_time_with_another_seed_for_each_repeat(tried: Tried) -> None:
    tried.case(answers="live", repeat=2)
    tried.eval()
    tried.eval()
    assert len(tried.asked) == 4
    assert len({request.seed for request in tried.asked}) == 2


def test_nothing_is_written_in_the_organisation_but_what_was_recorded(tried: Tried) -> None:
    tried.case(send=[{"text": "hello", "to": "ada"}])
    before = tree(tried.base, without=("logs",))
    tried.eval("--record")
    after = tree(tried.base, without=("logs",))
    assert {*after} - {*before} == {"evals/first/recorded.jsonl"}
    assert {file: after[file] for file in before} == before


def test_the_copy_has_no_evals_for_agents_to_see(tried: Tried, tmp_path: Path) -> None:
    tried.case(expect=[{"entry": {"author": "nobody"}}])
    (failed,) = tried.runs(tmp_path, "--record", "--keep", str(tmp_path / "kept"))
    copy = Path(failed["folder"])
    assert (copy / "agents/ada/outbox").is_dir()
    assert not (copy / "evals").exists()


def test_a_copy_that_was_right_is_not_kept(tried: Tried, tmp_path: Path) -> None:
    tried.case()
    tried.eval("--record", "--keep", str(tmp_path / "kept"))
    assert list((tmp_path / "kept").iterdir()) == []


def test_scripted_answers_lie_beside_the_case(tried: Tried) -> None:
    folder = tried.case(answers="scripted", expect=[{"entry": {"matches": "^scripted$"}}])
    (folder / "answers.jsonl").write_text(json.dumps({"agent": "ada", "reply": say("scripted")}) + "\n")
    assert (tried.eval(), tried.asked) == (0, [])


def test_a_model_without_a_script_is_not_asked(tried: Tried, tmp_path: Path) -> None:
    tried.case(answers="scripted")
    (result,) = tried.runs(tmp_path)
    assert "no answer is scripted for question 0 of ada" in result["error"]
    assert tried.asked == []


def test_a_budget_holds_before_the_call_that_could_exceed_it(tried: Tried, tmp_path: Path) -> None:
    tried.case(ticks=5)
    (result,) = tried.runs(tmp_path, "--record", "--budget", "0.011")
    assert "the next call can cost" in result["error"]
    assert len(tried.asked) == 2  # they cost 0.008 of it, and a third could cost more than the rest
    tried.eval("--record", "--budget", "0")
    assert len(tried.asked) == 2


def test_a_budget_cannot_hold_where_no_price_is_known(tried: Tried, tmp_path: Path) -> None:
    models = json.loads((tried.base / "config/models.json").read_text())
    models["counted"] |= {"usd_per_million_input_tokens": None}
    fs.write_atomic(tried.base, "config/models.json", dump_pretty(models))
    tried.case()
    (result,) = tried.runs(tmp_path, "--record", "--budget", "9")
    assert "m has no known price" in result["error"]
    assert tried.asked == []


def test_arms_and_models_are_run_each_with_each(tried: Tried, tmp_path: Path) -> None:
    tried.case(repeat=2)
    short = "short=agents/ada/resume.json:/instructions=Be short."
    runs = tried.runs(
        tmp_path, "--record", "--arm", "before=", "--arm", short, "--model", "counted", "--model", "other"
    )
    arms = ["before counted", "before other", "short counted", "short other"]
    assert [it["arm"] for it in runs] == [arm for arm in arms for _ in range(2)]
    assert {(request.model_name, "Be short." in str(request.messages)) for request in tried.asked} == {
        (model, is_short) for model in "mn" for is_short in (False, True)
    }


@pytest.mark.parametrize(
    "change",
    [
        {"instructions": "Changed."},
        {"/instructions": "Changed."},
        json.dumps(resume("ada", model={"key": "counted"}, instructions="Changed.")),
    ],
    ids=["merged", "by pointer", "the whole file"],
)
def test_what_a_case_sets_is_so_in_its_copy(tried: Tried, change: Any) -> None:
    tried.case(set={"agents/ada/resume.json": change, "shared/note.md": "hello"},
               expect=[{"file": {"path": "shared/note.md", "matches": "hello"}}])  # fmt: skip
    assert tried.eval("--record") == 0
    assert "Changed." in str(tried.asked[0].messages)


def test_what_people_send_comes_before_its_tick(tried: Tried) -> None:
    tried.case(ticks=2, send=[{"text": "first words", "to": "ada"}, {"text": "later words", "before_tick": 2}])
    tried.eval("--record")
    first, second = (str(request.messages) for request in tried.asked)
    assert ("first words" in first, "later words" in first) == (True, False)
    assert "later words" in second


def test_without_ticks_it_goes_on_until_it_is_quiet(tried: Tried, tmp_path: Path) -> None:
    tried.case(ticks=None, send=[{"text": "x", "to": "ada"}, {"text": "y", "to": "ada", "before_tick": 3}])
    (result,) = tried.runs(tmp_path, "--record")
    assert result["ticks"] == 3


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ({"send": [{"text": "x", "to": "adda"}]}, 'agent "adda" does not exist'),
        ({"send": [{"text": "x", "from": "ada"}]}, "ada is not a person"),
        ({"ask": {"to": "adda", "text": "x"}}, 'agent "adda"'),
        ({"from": "fixture"}, '"fixture" must be an organisation'),
        ({"from": "../../.."}, "must be inside the organisation"),
        ({"at": 7}, "no tick has run yet"),
    ],
)
def test_what_cannot_be_run_says_why(tried: Tried, tmp_path: Path, case: dict[str, Any], said: str) -> None:
    tried.case(**case)
    (result,) = tried.runs(tmp_path, "--record")
    assert said in result["error"]
    assert (tried.asked, result["passed"]) == ([], False)


def test_a_case_may_start_from_an_organisation_of_its_own(tried: Tried) -> None:
    folder = tried.case(**{"from": "fixture"}, expect=[{"entry": {"author": "bob", "matches": "from bob"}}])
    make_org(folder / "fixture", resume("bob"), script=[{"reply": say("from bob")}])
    assert (tried.eval(), tried.asked) == (0, [])


def test_a_case_may_start_after_a_tick_of_the_past(tried: Tried, tmp_path: Path) -> None:
    for _ in range(3):
        run_once(tried.base, clock=FrozenClock())
    tried.case(at=1, expect=[{"entry": {"author": "ada", "within_ticks": 1}}])
    (result,) = tried.runs(tmp_path, "--record", "--keep", str(tmp_path / "kept"))
    assert result["passed"]
    asked = str(tried.asked[-1].messages)
    assert ("answer 1" in asked, "answer 2" in asked) == (True, False)


def test_tick_0_is_the_beginning_also_where_nothing_has_been_run(tried: Tried, tmp_path: Path) -> None:
    tried.case(at=0)
    (before,) = tried.runs(tmp_path, "--record")
    run_once(tried.base, clock=FrozenClock())
    (after,) = tried.runs(tmp_path)
    assert after == {**before, "asked": 0}
    assert before["passed"]


def test_a_broken_case_keeps_all_from_being_run(tried: Tried, capsys: pytest.CaptureFixture[str]) -> None:
    tried.case("sound")
    tried.case("broken", expect=[])
    assert tried.eval("--record") == 3
    assert tried.asked == []
    assert "evals/broken/case.json:" in capsys.readouterr().err


def test_a_name_that_is_no_case_has_its_nearest(tried: Tried, capsys: pytest.CaptureFixture[str]) -> None:
    tried.case("ferry")
    assert tried.eval("fery") == 2
    assert "ferry" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        (("--arm", "short=agents/ada/resume.json:/instuctions=Short."), "instructions"),
        (("--arm", "short=agents/adda/resume.json:/instructions=Short."), "agents/adda/resume.json cannot be read"),
        (("--model", "othr"), "other"),
    ],
)
def test_an_arm_that_fits_no_case_is_refused_before_anything_is_asked(
    tried: Tried, capsys: pytest.CaptureFixture[str], arm: tuple[str, str], said: str
) -> None:
    tried.case("ferry")
    assert tried.eval("--record", "--arm", "before=", *arm) == 2
    assert said in capsys.readouterr().err
    assert tried.asked == []


def test_the_table_has_arms_beside_each_other_and_the_exit_status_tells(
    tried: Tried, capsys: pytest.CaptureFixture[str]
) -> None:
    short = "agents/ada/resume.json:/instructions=Short."
    tried.case("first", repeat=4)
    tried.case("second", expect=[{"entry": {"matches": "nothing like it"}, "name": "the wrong words"}])
    assert tried.eval("--record", "--arm", "before=", "--arm", f"short={short}") == 1
    shown = capsys.readouterr().out
    assert "BEFORE" in shown
    assert "SHORT" in shown
    assert "4/4 passed, 100% (51% to 100%), $0.0160" in shown
    assert "cases that passed in all runs  1 of 2" in shown
    assert "no matching entry among" in shown
    assert "written by ada" in shown  # why: the way that entry came


def test_json_has_a_line_for_each_run_case_and_arm(tried: Tried, capsys: pytest.CaptureFixture[str]) -> None:
    tried.case(repeat=2)
    assert tried.eval("--record", "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["type"] for line in lines] == ["eval_run", "eval_run", "eval", "eval_total"]
    assert (lines[2]["passed"], lines[2]["all_right"], lines[3]["cases_all_right"]) == (2, True, 1)


def test_an_organisation_without_cases_says_how_to_write_one(tried: Tried, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-C", str(tried.base), "eval"]) == 2
    assert "evals/first/case.json" in capsys.readouterr().err
