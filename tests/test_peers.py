"""Frameworks are compared by what every side does alike; the frameworks themselves no test needs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.measurement import Measurement
from benchmarks.peers import measuring
from benchmarks.peers.environments import quiet_environment
from benchmarks.peers.kills import TICKS_PER_RUN, measure_kills
from benchmarks.peers.table import to_wide_markdown
from benchmarks.peers.work import SHOWN, InstantModel, Progress, SequentialSide, Task, parse_answer

FORGETFUL = """
from benchmarks.peers.work import Side, main

class Forgetful(Side):
    def __init__(self, task):
        self.task, self.done, self.messages = task, 0, []

    def tick(self):
        self.done += 1
        self.messages += [self.task.model(name, self.done, "") for name in self.task.names]

    def count_ticks(self):
        return self.done

    def load_messages(self):
        return self.messages

main(Forgetful)
"""


class InMemory(SequentialSide):
    """Notes what each turn was shown."""

    def __init__(self, names: Sequence[str], kept: dict[str, Progress]) -> None:
        super().__init__(Task(Path(), names, InstantModel()))
        self.shown: list[tuple[str, int, list[str]]] = []
        self._kept = kept
        self.load_all_progress()

    def load_progress(self, agent: str) -> Progress:
        return self._kept.get(agent, Progress())

    def run_turn(self, agent: str, number: int, inbox: list[str]) -> str:
        self.shown.append((agent, number, inbox))
        return f"{agent} {number}"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few agents and ticks, and nothing that is slow to count."""
    for name, value in {"AGENTS": 2, "WARM_TICKS": 1, "TICKS_PER_ROUND": 1, "LONG_TICKS": 2}.items():
        monkeypatch.setattr(measuring, name, value)
    monkeypatch.setattr(measuring.shutil, "which", lambda _: None)


def run(tmp_path: Path, *arguments: str) -> list[dict[str, object]]:
    results = tmp_path / "results.json"
    places = ["--dir", str(tmp_path), "--environments", str(tmp_path / "environments")]
    main(["peers", "--rounds", "1", "--results", str(results), *places, *arguments])
    rows: list[dict[str, object]] = json.loads(results.read_text())["measurements"]
    return rows


@pytest.mark.long
@pytest.mark.usefixtures("small")
def test_the_engine_is_measured_beside_the_floor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run(tmp_path, "--peers", "lemming-tick", "--kills", "1")
    figures = [row["figure"] for row in rows if str(row["case"]).startswith("LeMMing")]
    assert figures == [
        measuring.CPU, measuring.PEAK, measuring.REPEATED, measuring.LOST, measuring.START
    ]  # fmt: skip
    floor, engine = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][2:]
    assert floor.startswith("| `files_tmp`")
    assert floor.endswith(" | – | – | – | – |")
    assert engine.startswith("| LeMMing ")
    assert "–" not in engine


@pytest.mark.usefixtures("small")
def test_a_framework_that_cannot_be_had_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "environments/burr"
    (broken / "bin").mkdir(parents=True)
    (broken / "bin/python").write_text("#!/bin/sh\necho no such processor >&2; exit 1\n")
    (broken / "bin/python").chmod(0o755)
    (broken / "ready").touch()
    rows = run(tmp_path, "--peers", "burr")
    assert {row["case"] for row in rows} == {"`files_tmp`, the floor"}
    assert "Left out: Burr, SQLite: no such processor" in capsys.readouterr().out


def test_an_agent_is_shown_the_newest_messages_of_the_one_before() -> None:
    side = InMemory(["a", "b"], {})
    for _ in range(SHOWN + 2):
        side.tick()
    assert side.shown[0] == ("a", 1, [])
    assert side.shown[-1] == ("b", SHOWN + 2, [f"a {number}" for number in range(3, SHOWN + 3)])


def test_a_tick_that_was_cut_off_is_ended_first() -> None:
    side = InMemory(["a", "b"], {"a": Progress(2, ["a 1", "a 2"]), "b": Progress(1, ["b 1"])})
    side.tick()
    assert (side.shown, side.count_ticks()) == ([("b", 2, ["a 1", "a 2"])], 2)


def test_every_call_is_noted_and_its_answer_can_be_told(tmp_path: Path) -> None:
    model = InstantModel(tmp_path / "log")
    texts = [parse_answer(model("a", number, ""))[0] for number in (1, 2)]
    marks = [text.split()[-1] for text in texts]
    lines = [f"{what} a {number + 1} {marks[number]}" for number in (0, 1) for what in ("asked", "given")]
    assert (tmp_path / "log").read_text().splitlines() == lines
    assert parse_answer(InstantModel()("a", 3, ""))[1] == {"n": 3}


def test_what_is_forgotten_in_a_kill_is_counted(tmp_path: Path) -> None:
    script = tmp_path / "forgetful.py"
    script.write_text(FORGETFUL)
    with quiet_environment():
        found = measure_kills(
            lambda folder, *rest: (sys.executable, str(script), str(folder), "--agents", "1000", *rest),
            tmp_path / "kills",
            1,
        )
    assert (found.kills, found.failed) == (1, [])
    assert 1000 <= found.repeated <= 1000 * TICKS_PER_RUN
    assert found.lost >= found.repeated


def test_a_start_that_fails_loses_what_was_answered(tmp_path: Path) -> None:
    script = tmp_path / "brittle.py"
    again = "import sys, pathlib\nif (pathlib.Path(sys.argv[1]) / 'been').exists(): sys.exit('torn')\n"
    been = "pathlib.Path(sys.argv[1], 'been').parent.mkdir(); pathlib.Path(sys.argv[1], 'been').touch()\n"
    script.write_text(again + been + FORGETFUL)
    with quiet_environment():
        found = measure_kills(
            lambda folder, *rest: (sys.executable, str(script), str(folder), "--agents", "1000", *rest),
            tmp_path / "kills",
            1,
        )
    assert found.failed == ["torn"]
    assert found.lost >= 1000


def test_a_figure_that_a_side_does_not_have_is_a_dash() -> None:
    rows = [
        Measurement.from_pairs([1.5], [1.0], case="a", figure="CPU", unit="µs"),
        Measurement.from_count(12345.6, case="b", figure="bytes", unit="B"),
    ]
    assert to_wide_markdown(rows).splitlines() == [
        "|  | CPU, µs | bytes, B |",
        "| --- | --: | --: |",
        "| a | 1.5 (1.5) | – |",
        "| b | – | 12,346 |",
    ]
