"""The organisations of `examples/`, on their recorded answers: each does what its page says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lemming.engine import run_once
from lemming.kernel.org.config import load_config
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.queries.org_validation import validate_agents
from lemming.testing import FrozenClock

EXAMPLES = Path(__file__).parents[2] / "examples"
SAYS = {
    "draft-and-critic": ("You are welcome on Saturday at ten. Bring shoes", 5),
    "debate": ("The debate (5 calls): Yes, on Fridays: the need is real", 6),
    "plan-execute": ("Summer: every hour from 7 to 21. Winter: 8, 12 and 16.", 9),
    "supervisor": ("Yes, at ten, in the inner basin", 6),
    "planner": ("41 m: it was measured with an echo sounder in 1998.", 5),
    "task-board": ("first: Who dances here?", 9),
}


def test_every_example_is_tried() -> None:
    assert {folder.name for folder in EXAMPLES.iterdir() if (folder / "agents").is_dir()} == SAYS.keys()


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SAYS)
def test_an_example_answers_on_its_recorded_answers(tmp_path: Path, name: str) -> None:
    base, (says, calls) = tmp_path / name, SAYS[name]
    shutil.copytree(EXAMPLES / name, base)
    assert list(validate_agents(base, load_config(base), None)) == []
    question = (base / "question.txt").read_text().strip()
    write_person_entry(base, "human", tick=load_tick(base), kind="request", payload={"text": question, "target": "desk"},
         tags=[], created_at="2026-01-01T00:00:00Z")  # fmt: skip
    until = int((base / "README.md").read_text().partition("--until-tick ")[2].split()[0])
    clock, models, plan = FrozenClock(), 0, base / "agents/desk/plan.json"
    while load_tick(base) < until:
        report = run_once(base, clock=clock)
        models += sum(turn.calls for turn in report.turns if turn.agent != "desk" or not plan.exists())
    answers = [entry.payload for entry in read_outbox_entries(base, "desk") if entry.kind == "response"]
    assert [answer["text"].startswith(says) for answer in answers] == [True], answers
    assert models == calls
