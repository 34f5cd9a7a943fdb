"""The same cases as a task of Inspect, where it is installed: 300 MB, so no tool of development."""

from __future__ import annotations

from pathlib import Path

import pytest
from tried import Tried

from lemming.evals.inspect_task import cases_as_task
from lemming.evals.suite import RunOptions
from lemming.kernel.base.errors import ConfigError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore")  # it leaves streams open


@pytest.fixture
def tried(tmp_path: Path) -> Tried:
    pytest.importorskip("inspect_ai", reason="inspect-ai is not installed")
    return Tried(tmp_path / "org")


def test_a_case_is_a_sample_and_a_repeat_an_epoch(tried: Tried, tmp_path: Path) -> None:
    from inspect_ai import eval as run_inspect

    tried.case("right", repeat=2)
    tried.case("wrong", expect=[{"entry": {"matches": "nothing like it"}, "name": "the words"}])
    task = cases_as_task(tried.base, manner=RunOptions(should_record=True))
    (log,) = run_inspect(task, model="none/none", log_dir=str(tmp_path / "logs"), display="none")
    assert (log.status, len(log.samples)) == ("success", 4)
    assert log.results.scores[0].metrics["accuracy"].value == 0.5
    explained = {sample.id: next(iter(sample.scores.values())).explanation for sample in log.samples}
    assert explained["right"] == "all that is expected came"
    assert explained["wrong"].startswith("the words: expected an entry")
    asked = len(tried.asked)
    run_inspect(cases_as_task(tried.base, "right"), model="none/none", log_dir=str(tmp_path), display="none")
    assert len(tried.asked) == asked  # recorded


def test_cases_that_are_not_sound_are_named_at_once(tried: Tried) -> None:
    with pytest.raises(UsageError, match="no cases"):
        cases_as_task(tried.base)
    tried.case(expect=[])
    with pytest.raises(ConfigError, match="at least 1"):
        cases_as_task(tried.base)
