"""What a turn costs in an organisation that uses nothing beyond it: calls and what is kept are counted."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from benchmarks.orgs import WARM_TICKS, make_benchmark_org, running
from lemming.engine import run_once
from lemming.kernel.base import paths
from lemming.kernel.files.stat_cache import has_exact_mtime, to_identity
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.organisation import Organisation
from lemming.messages import write_outbox_entry
from lemming.testing import FrozenClock, make_org, resume

AGENTS, TICKS = 20, 2
MOST_CALLS = {"one": 1150, "all": 1512}
"""So many calls of functions, those of Python itself among them, may a turn make, by whom the agents read.

When it is more, something that most organisations do not use is looked at in every turn.
"""
MOST_CALLS_TO_READ_AGAIN = 300
MOST_NAMES_KEPT = 1 << 12
MOST_KEPT_OF_A_TICK = 10
"""So many pieces of memory a tick may leave: of its journal, until it is packed."""


def calls_of_a_turn(base: Path, reading: str) -> tuple[float, bool]:
    """Return how many calls an engine makes for a turn, once it knows the organisation.

    And whether the disk's stamps tell every change: where they do not, files are read again until they rest.
    """
    org = make_benchmark_org(base, AGENTS, reading, org={"durability": "off"})
    calls = calls_of(running(org, TICKS, warm=WARM_TICKS[reading])) / AGENTS / TICKS
    return calls, has_exact_mtime(to_identity(org.stat()))


def calls_of(work: Callable[[], object]) -> int:
    """Return how many calls some work makes in this thread."""
    count = 0

    def note(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("reading", MOST_CALLS)
def test_a_turn_makes_no_more_calls_than_it_did(tmp_path: Path, reading: str) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:  # what tests leave in theirs costs
        calls, tells = fresh.submit(calls_of_a_turn, tmp_path / "org", reading).result()
    most = MOST_CALLS[reading] + (0 if tells else MOST_CALLS_TO_READ_AGAIN)
    assert most / 2 < calls <= most


def test_a_turn_for_one_of_many_open_requests_looks_through_each_outbox_once(tmp_path: Path) -> None:
    counts = []
    for many in (5, 50, 400):
        ada = resume("ada", turn={"take": "one"})
        org = Organisation(make_org(tmp_path / f"org{many}", ada, resume("post", model={"key": "human"})))
        for number in range(many):
            payload = {"text": "x", "target": "ada"}
            write_outbox_entry(org, "post", OutboxEntry(f"m{number}", 0, "post", "request", payload, [], ""))
        counts.append(calls_of(partial(run_once, org, clock=FrozenClock())))
    assert counts[2] < 8 * counts[1]  # the first knows what no organisation needs anew


def test_what_an_engine_keeps_does_not_grow_with_its_ticks(tmp_path: Path) -> None:
    org = make_benchmark_org(tmp_path / "org", 2, "all", org={"durability": "off", "retention_ticks": 3})
    run, kept = running(org, 20, warm=20), []
    for _ in range(2):
        run()
        for names in (paths.entry_file, paths.memory_file, paths.agent_folder):
            assert (names.cache_info().maxsize or sys.maxsize) <= MOST_NAMES_KEPT
            names.cache_clear()
        gc.collect()
        kept.append(sys.getallocatedblocks())
    assert (kept[1] - kept[0]) / 20 <= MOST_KEPT_OF_A_TICK
