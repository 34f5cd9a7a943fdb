"""Workers on one branch run at once and merge in the order of their turns, whatever the number of lanes."""

from __future__ import annotations

from pathlib import Path

import pytest
from worker_org import git, make_worker_org, outbox

from lemming.engine import run_once

NAMES = [f"w{number}" for number in range(8)]


def edit(number: int) -> str:
    """Append a line to a file that every second worker changes too, and write a file of its own."""
    return (
        f"cat >/dev/null; echo line {number} >> shared{number % 2}.txt; echo own > own{number}.txt; echo turn {number}"
    )


def run_lanes(tmp_path: Path, lanes: int) -> dict[str, object]:
    scripts = {name: edit(number) for number, name in enumerate(NAMES)}
    org = {"max_parallel": lanes, "executor": "serial" if lanes == 1 else "threads"}
    base, site = make_worker_org(tmp_path, scripts, branch="lemming/all", org=org, wake="always")
    run_once(base)
    log = git(site, "log", "--first-parent", "--reverse", "--format=%an %T", "lemming/all").splitlines()
    return {
        "log": log,
        "texts": {name: outbox(base, name)[-1]["payload"]["text"] for name in NAMES},
        "base": base,
        "site": site,
    }


@pytest.mark.parametrize("lanes", [1, 8])
def test_conflicts_of_eight_workers_are_solved_in_the_same_order_at_every_lane(tmp_path: Path, lanes: int) -> None:
    run = run_lanes(tmp_path, lanes)
    site = run["site"]
    assert git(site, "show", "lemming/all:shared0.txt").splitlines() == [f"line {n}" for n in (0, 2, 4, 6)]
    assert git(site, "show", "lemming/all:shared1.txt").splitlines() == [f"line {n}" for n in (1, 3, 5, 7)]
    authors = [line.split()[0] for line in run["log"]]
    assert authors == ["ann", *NAMES]
    assert git(site, "status", "--porcelain") == ""
    assert git(site, "stash", "list") == ""
    assert len(git(site, "worktree", "list").splitlines()) == 1
