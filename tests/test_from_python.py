"""What docs/from-python.md and examples/compared show of ours runs, on scripted answers."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

import lemming
from lemming.kernel.journal.engine_events import Event, TickEnds
from lemming.kernel.journal.ledger import read_state
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, say

REPOSITORY = Path(__file__).parent.parent
PAGE = (REPOSITORY / "docs/from-python.md").read_text()
COMPARED = (REPOSITORY / "docs/compared.md").read_text()
LISTING = (REPOSITORY / "examples/compared/README.md").read_text()
FRAMEWORKS = ("LangGraph", "CrewAI", "OpenAI Agents SDK", "LeMMing")
PROGRAMS = {
    task: dict(re.findall(r"^([^\n]+):\n\n```python\n(.*?)```", section, re.MULTILINE | re.DOTALL))
    for task, _, section in (it.partition("\n") for it in LISTING.split("\n## ")[1:])
}
TASKS = list(PROGRAMS)
MODEL = '{"provider": "openai", "model": "gpt-6-luna"}'
Line = dict[str, Any]


def reply(agent: str, text: str = "", *, contains: str = "", fields: Line | None = None, **more: Any) -> Line:
    """Return a line of a script: an answer to a request."""
    payload: Line = fields if fields is not None else {"text": text}
    entry = {"kind": "response", "payload": payload, "tags": []}
    told = {"contains": contains} if contains else {}
    return {"agent": agent, **told, "reply": say("", outbox_entries=[entry]), **more}


def call(agent: str, tool: str, **args: Any) -> Line:
    return {"agent": agent, "step": 0, "calls": [{"tool": tool, "args": args}]}


def scripted(code: str, folder: Path, script: list[Line]) -> str:
    """Return a program of a page with a scripted model in the place of a real one."""
    file = folder / "answers.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in script))
    prices = {"usd_per_million_input_tokens": 0.1, "usd_per_million_output_tokens": 0.5}
    entry = {"provider": "scripted", "tools": "native", **prices, "options": {"file": str(file)}}
    assert MODEL in code
    return code.replace(MODEL, json.dumps(entry))


def run(code: str, folder: Path, script: list[Line], **names: Any) -> dict[str, Any]:
    """Run a program of a page in a folder, and return its variables."""
    file = folder / "program.py"
    file.write_text(scripted(code, folder, script))
    names |= {"__name__": __name__}
    exec(compile(file.read_text(), str(file), "exec", dont_inherit=True), names)
    return names


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


COUNTING = [
    call("clerk", "word_count", text="one two three"),
    reply("clerk", fields={"words": 3, "is_long": False, "text": "three"}),
]


def test_the_page_on_programs_runs_block_after_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names = run("\n".join(blocks), tmp_path, COUNTING)
    said = capsys.readouterr().out
    assert "3 answered" in said
    assert "clerk called word_count" in said
    assert "words=3 is_long=False\ntick_begins" in said
    assert names["report"].tick == lemming.engine.load_tick("clerks") - 1


def test_an_agent_with_a_tool_answers_as_its_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(PROGRAMS[TASKS[0]]["LeMMing"], tmp_path, COUNTING)
    assert capsys.readouterr().out == "3\n"


def test_who_is_handed_a_question_answers_it_and_the_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hands = call("triage", "hand_to_billing", message="A refund.")
    nothing = {"agent": "triage", "reply": say("", outbox_entries=[])}
    names = run(PROGRAMS[TASKS[1]]["LeMMing"], tmp_path, [hands, nothing, reply("billing", "On Monday.")])
    assert capsys.readouterr().out == "On Monday.\n"
    again = lemming.ask(names["org"], "triage", "Sure?", conversation="joris", timeout_s=PATIENCE_S)
    assert again.request.targets == ("billing",)


def test_a_branch_a_loop_and_an_approval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = [
        reply("writer", "Bees are busy.", contains="say more"),
        reply("writer", "Bees."),
        reply("critic", contains="Bees are busy.", fields={"score": 8, "advice": ""}),
        reply("critic", fields={"score": 5, "advice": "say more"}),
    ]
    run(PROGRAMS[TASKS[2]]["LeMMing"], tmp_path, script)
    assert capsys.readouterr().out == "Bees are busy.\nBees are busy.\n"
    assert (tmp_path / "press/article.txt").read_text() == "Bees are busy."


def test_by_the_clock_within_a_budget(tmp_path: Path) -> None:
    clock = FrozenClock(datetime(2026, 11, 23, 5, 30, tzinfo=UTC))  # a Monday
    called: list[tuple[datetime, str]] = []

    def an_hour_later(event: Event) -> None:
        if isinstance(event, TickEnds):
            called.extend((clock.time, it.status) for it in event.report.turns if it.agent == "reporter")
            clock.time += timedelta(hours=1)

    (tmp_path / "morning/shared").mkdir(parents=True)
    (tmp_path / "morning/shared/tickets.txt").write_text("one")
    costs = {"input_tokens": 2_000_000, "output_tokens": 100}
    script = [{**call("reporter", "tickets"), **costs}, {**reply("reporter", "Nothing burns."), **costs}]
    shortened = "run_forever(org, interval_s=0, max_ticks=200, clock=clock, notify=an_hour_later)"
    code = PROGRAMS[TASKS[3]]["LeMMing"].replace("run_forever(org)", shortened)
    names = run(code, tmp_path, script, clock=clock, an_hour_later=an_hour_later)
    assert [(it.day, it.hour) for it, _ in called[:4]] == [(23, 8), (24, 8), (25, 8), (26, 8)]
    assert [status for _, status in called[:4]] == ["done", "done", "waiting", "skipped"]
    spent = read_state(names["org"], "reporter").cost_usd
    assert spent is not None
    assert 1.0 < spent < 1.01


@pytest.mark.long
@pytest.mark.crash
def test_killed_and_run_again(tmp_path: Path) -> None:
    script = [reply("researcher", "Bees fly."), reply("writer", "They fly."), reply("editor", "How they fly!")]
    slow = [script[0], {**script[1], "delay_s": PATIENCE_S}, script[2]]  # it is killed while it waits
    file = tmp_path / "program.py"
    file.write_text(scripted(PROGRAMS[TASKS[4]]["LeMMing"], tmp_path, slow))
    path = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen([sys.executable, file], cwd=tmp_path, env=path) as first:
        while not list(tmp_path.glob("press/agents/researcher/outbox/*.json")):
            assert first.poll() is None
        first.send_signal(signal.SIGKILL)
    assert first.returncode == -signal.SIGKILL
    scripted(PROGRAMS[TASKS[4]]["LeMMing"], tmp_path, script)
    for _ in range(2):  # the second time there is nothing left to do
        again = subprocess.run([sys.executable, file], cwd=tmp_path, env=path, capture_output=True, text=True)
        assert again.stdout == "How they fly!\n"
    turns = {name: len(read_outbox_entries(tmp_path / "press", name, limit=9)) for name in ("researcher", "human")}
    assert turns == {"researcher": 1, "human": 1}
    org = tmp_path / "press"
    paid = [read_state(org, name).credits for name in ("researcher", "writer", "editor")]
    assert paid == [1, 1, 1]  # what was cut off has no answer, and is asked once more


def lines_of(code: str) -> int:
    return sum(bool(line.strip()) for line in code.splitlines())


def test_the_table_counts_the_lines_that_stand_there() -> None:
    for task, programs in PROGRAMS.items():
        assert programs.keys() == set(FRAMEWORKS)
        assert all(ast.parse(code) for code in programs.values())
        counts = " | ".join(str(lines_of(programs[name])) for name in FRAMEWORKS)
        (row,) = (line for line in COMPARED.splitlines() if line.startswith(f"| [{task}]("))
        assert row.endswith(f") | {counts} |")
    sums = [sum(lines_of(programs[name]) for programs in PROGRAMS.values()) for name in FRAMEWORKS]
    assert f"| in all | {' | '.join(map(str, sums))} |" in COMPARED


def test_what_the_comparison_shows_is_a_part_of_the_programs() -> None:
    shown = re.findall(r"```python\n(.*?)```", COMPARED, re.DOTALL)
    assert shown
    assert [code for code in shown if code not in LISTING] == []


def test_the_errors_are_there_once_lemming_is_imported() -> None:
    program = "import lemming; print(lemming.errors.ContractError.code, lemming.engine.run_once.__name__)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "LMG-401 run_once\n"
