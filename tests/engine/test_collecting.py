"""While turns are under way the interpreter looks for garbage rarely, and afterwards as before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from lemming.engine import run_once
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.operations.turns.parallel_turns import RARE, limit_garbage_collection
from lemming.testing import make_org, resume


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_blocks_that_overlap_end_together() -> None:
    one, other = limit_garbage_collection(), limit_garbage_collection()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert gc.get_threshold() == RARE
    other.__exit__(None, None, None)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("threshold", [(0, 10, 10), (90_000, 5, 5)])
def test_whoever_collects_more_rarely_or_never_is_left_alone(threshold: tuple[int, int, int]) -> None:
    gc.set_threshold(*threshold)
    with limit_garbage_collection():
        assert gc.get_threshold() == threshold
    assert gc.get_threshold() == threshold


def test_a_tick_collects_rarely_and_leaves_things_as_they_were(tmp_path: Path) -> None:
    seen = []

    class Looking(Backend):
        keeps_deadline = True

        def complete(self, request: Request) -> Reply:
            seen.append(gc.get_threshold())
            return Reply(text="hello")

    register_provider("collecting", Looking)
    names = [resume(name, model={"key": "m"}, permissions={}) for name in ("ada", "bob")]
    run_once(make_org(tmp_path / "org", *names, models={"m": {"provider": "collecting"}}))
    assert set(seen) == {RARE}
    assert gc.get_threshold() == (700, 10, 10)
