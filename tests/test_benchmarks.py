"""The benchmarks count what they say they count, and their two outputs agree. No test looks at a time."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from benchmarks import argument_labels
from benchmarks.__main__ import SUBJECTS, main
from benchmarks.bare import make_bare_work
from benchmarks.counting import count_writes
from benchmarks.counts import count_modules
from benchmarks.floor import FilesTmp
from benchmarks.instructions import count_instructions
from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import make_benchmark_org
from benchmarks.parallel import count_different_files
from benchmarks.processes import PYTHON
from benchmarks.targets import TARGETS, Target
from lemming.testing import tree

TICKS = 3
PAGES = sorted((Path(__file__).parent.parent / "docs").glob("*.md"))
SHOWN = sorted(
    {line for page in PAGES for line in re.findall(r"(?<=python -m benchmarks )[a-z-][^`|#\n]*", page.read_text())}
)


def counted(base: Path, agents: int, durability: str) -> dict[str, int]:
    """Return what some ticks of an organisation did to the disk, once every file is there."""
    return count_writes(make_benchmark_org(base, agents, "one", org={"durability": durability}), 2, TICKS)


@pytest.mark.long
def test_the_table_and_the_results_hold_the_same_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    smallest = ["--agents", "2", "--reading", "one", "--entries", "0", "--durability", "off", "--ages"]
    results = tmp_path / "results.json"
    main(["overhead", *smallest, "--rounds", "1", "--dir", str(tmp_path), "--results", str(results)])
    rows = json.loads(results.read_text())["measurements"]
    table = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| 2 ")]
    assert [[f"| {row['case']}", row["figure"]] for row in rows] == [cells[:2] for cells in table]
    assert {row["figure"] for row in rows} == {"CPU a turn", "wall a turn"}
    assert all(row["file_system"] and row["ratio"] == row["spread"][0] for row in rows)


def test_a_turn_creates_one_file_and_replaces_the_memory_that_changed(tmp_path: Path) -> None:
    counts = counted(tmp_path / "org", 2, "off")
    assert (counts["agents' files created"], counts["agents' files replaced"]) == (2 * TICKS, 2 * TICKS)


def test_nothing_is_flushed_when_durability_is_off(tmp_path: Path) -> None:
    assert counted(tmp_path / "org", 2, "off")["flushes"] == 0


def test_flushes_of_a_tick_do_not_depend_on_the_number_of_agents(tmp_path: Path) -> None:
    few, more = (counted(tmp_path / str(agents), agents, "tick") for agents in (1, 3))
    assert few["flushes"] == more["flushes"] > 0


def test_the_same_work_done_bare_writes_what_the_engine_wrote(tmp_path: Path) -> None:
    base = make_benchmark_org(tmp_path / "org", 2, "one", org={"durability": "off"})
    make_bare_work(base, 2, 1)()
    engines, bares = tree(base, without=(".lemming",)), tree(tmp_path / "org-bare", without=())
    assert engines == {path.removesuffix(".1"): content for path, content in bares.items()}


def test_the_floor_writes_a_message_and_a_memory_a_turn(tmp_path: Path) -> None:
    floor = FilesTmp(tmp_path / "floor", 2, "one")
    for _ in range(TICKS):
        floor.tick()
    messages, memories = (list(tmp_path.rglob(pattern)) for pattern in ("outbox/*.json", "memory/*.json"))
    assert (len(messages), len(memories)) == (2 * TICKS, 2)
    sizes = [sum(path.stat().st_size for path in paths) for paths in (messages, memories)]
    assert floor.written_bytes == sizes[0] + TICKS * sizes[1]


def test_the_tree_of_turns_at_once_is_compared_with_that_of_one_after_another(tmp_path: Path) -> None:
    assert count_different_files(tmp_path) == 0


def test_a_module_that_is_imported_is_counted() -> None:
    bare, one_more = (count_modules((PYTHON, "-c", code)) for code in ("pass", "import colorsys"))
    assert one_more == bare + 1


def test_a_ratio_is_that_of_pairs_of_the_same_round() -> None:
    row = Measurement.from_pairs([2.0, 3.0, 8.0], [1.0, 1.0, 2.0], scale=10, case="", figure="")
    assert (row.value, row.floor, row.ratio, row.spread) == (30.0, 10.0, 3.0, (2.0, 4.0))


@pytest.mark.parametrize(
    ("target", "is_met"),
    [
        (Target("", 3), True),
        (Target("", 2), True),
        (Target("", 1.9), False),
        (Target("", 3, more_is_better=True), False),
        (Target("", 4, of="value"), True),
        (Target("", 3, of="value"), False),
    ],
)
def test_a_target_is_met_by_its_own_number(target: Target, is_met: bool) -> None:
    assert target.is_met(Measurement.from_count(4, 2, case="", figure="")) is is_met


def test_the_better_target_is_never_the_easier_one() -> None:
    for target in TARGETS.values():
        assert (
            target.dream is None
            or (target.dream >= target.goal) == target.more_is_better
            or (target.dream == target.goal)
        )


@pytest.mark.long
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
def test_instructions_grow_with_the_work_and_with_nothing_else(tmp_path: Path) -> None:
    once, again, more = (
        count_instructions((PYTHON, "-I", "-S", "-c", f"sum(range({number}))"), tmp_path / "report")
        for number in (10, 10, 100_000)
    )
    assert abs(once - again) < 100_000
    assert more - once > 1_000_000


@pytest.mark.parametrize("words", SHOWN)
def test_what_the_pages_have_one_type_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    asked: list[Options] = []

    def measure(options: Options) -> list[Measurement]:
        asked.append(options)
        return [Measurement.from_count(1, 1, case="", figure="")]

    for subject in SUBJECTS:
        monkeypatch.setitem(SUBJECTS, subject, measure)
    main([*shlex.split(words), "--dir", str(tmp_path), "--results", str(tmp_path / "results.json")])
    assert asked


@pytest.mark.long
def test_the_page_on_trust_has_the_figures_of_values_in_arguments(tmp_path: Path) -> None:
    samples = argument_labels.build_samples(tmp_path)
    page = (Path(__file__).parent.parent / "docs/security.md").read_text()
    assert argument_labels.render_rules(samples) in page
    total = argument_labels.render_orgs(samples).splitlines()[-1]
    assert total == "| all | 11 | 0 | 99 | 16 | 9 |"
    assert "Their 11 calls and 99 entries" in page
