"""What is wrong with a case is said with its place, before anything is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run
from lemming.kernel.base.errors import ConfigError
from lemming.queries.case_format import load_case
from lemming.testing import make_org, resume

FINE: dict[str, Any] = {"expect": [{"entry": {"author": "ada"}}]}


def written(base: Path, case: dict[str, Any], name: str = "first") -> Path:
    """Write a case into an organisation."""
    folder = base / "evals" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.json").write_text(json.dumps(case))
    return base


@pytest.mark.parametrize(
    ("case", "pointer", "said"),
    [
        ({"expect": []}, "/expect", "at least 1"),
        ({"expect": [{}]}, "/expect/0", "no expectation is set"),
        ({"expect": [{"entry": {}, "file": {"path": "x"}}]}, "/expect/0", "got entry and file"),
        ({"expect": [{"entry": {"matches": "("}}]}, "/expect/0/entry/matches", "must be a regular expression"),
        (
            {"expect": [{"file": {"path": "x", "when": {"field": "a", "op": "iss", "value": 1}}}]},
            "/expect/0/file/when/op",
            'no operation "iss"',
        ),
        ({"expect": [{"answer": {}}]}, "/expect/0/answer", "the case makes no request"),
        ({"expect": [{"cost": {}}]}, "/expect/0/cost", "no limit"),
        ({"expect": [{"findings": {"at_least": 2, "at_most": 1}}]}, "/expect/0/findings", "got 2 and 1"),
        (
            {"expect": [{"judge": {"by": {"command": ["x"]}, "rubric": "y", "file": "z"}}]},
            "/expect/0/judge/by",
            "a judge must be",
        ),
        ({"expect": [{"judge": {"by": "a", "rubric": "y"}}]}, "/expect/0/judge", "either entries or a file"),
        ({**FINE, "now": "tomorrow"}, "/now", "must be a time"),
        ({**FINE, "set": {"../x.json": {}}}, "/set/..~1x.json", "must be a path in the organisation"),
        ({**FINE, "set": {"logs/x": ""}}, "/set/logs~1x", "not in the copy"),
        ({**FINE, "set": {"shared/x": 1}}, "/set/shared~1x", "an object or a text"),
        ({**FINE, "ticks": 1, "send": [{"text": "x", "before_tick": 2}]}, "/send/0/before_tick", "1 tick"),
        ({**FINE, "repeat": 0}, "/repeat", "at least 1"),
        ({"expect": [{"entry": {"athor": "ada"}}]}, "/expect/0/entry/athor", 'unknown key "athor"'),
        ({**FINE, "answers": "recordd"}, "/answers", "'recorded'"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, case: dict[str, Any], pointer: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_case(written(tmp_path, case), "first")
    problem = caught.value.problems[0]
    assert (problem.pointer, problem.line > 0) == (pointer, True)
    assert said in problem.message


def test_validate_tells_of_every_case_with_file_line_and_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = make_org(tmp_path / "org", resume("ada"))
    written(base, {"expect": [{"entry": {"athor": "ada"}}]}, "misspelt")
    written(base, {"expect": [{"entry": {"author": "adda"}}]}, "unknown")
    written(base, {"expect": [{"entyr": {}}]}, "wrong")
    assert run(["-C", str(base), "validate"]) == 3
    said = capsys.readouterr().err
    assert "evals/misspelt/case.json:1:" in said
    assert '"author"' in said
    assert 'agent "adda" does not exist' in said
    assert "evals/wrong/case.json:1:" in said


def test_an_organisation_without_cases_has_no_problems_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["-C", str(make_org(tmp_path / "org", resume("ada"))), "validate"]) == 0
    assert "evals" not in capsys.readouterr().err


def test_a_key_of_another_place_is_not_to_be_renamed_to_one_that_is_missing(tmp_path: Path) -> None:
    base = written(tmp_path, {"ask": {"to": "ada", "text": "x"}, "text": "x"})
    with pytest.raises(ConfigError) as caught:
        load_case(base, "first")
    assert {problem.hint for problem in caught.value.problems if "required" in problem.message} == {'add "expect" here'}
