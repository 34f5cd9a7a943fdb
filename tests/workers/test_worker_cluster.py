"""Workers whose harness runs on a cluster: the base and the patch travel, and the engine merges."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_dask import new_cluster
from worker_org import git, make_worker_org, outbox

from lemming.engine import run_once
from lemming.testing import FrozenClock

if TYPE_CHECKING:
    from distributed import LocalCluster

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="distributed is not installed"),
    pytest.mark.long,
]
NAMES = ["w0", "w1", "w2", "w3"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two worker processes with a state folder of their own, as another machine has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("elsewhere")))
        with new_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
            yield cluster


def run_workers(tmp_path: Path, org: dict[str, str]) -> list[str]:
    script = "cat >/dev/null; echo $$ > pid.txt; rm pid.txt; echo line >> src/a.txt; git log > /dev/null; echo done"
    base, site = make_worker_org(tmp_path, dict.fromkeys(NAMES, script), org=org)
    run_once(base, clock=FrozenClock())
    texts = [outbox(base, name)[-1]["payload"] for name in NAMES]
    assert [text["text"] for text in texts] == ["done"] * 4
    heads = [git(site, "rev-parse", f"lemming/{name}") for name in NAMES]
    assert [text["commit"] for text in texts] == heads
    trees = {git(site, "rev-parse", f"{head}^{{tree}}") for head in heads}
    assert len(trees) == 1
    assert git(site, "show", f"{heads[0]}:src/a.txt").splitlines() == ["one", "line"]
    return [*trees]


def test_the_harness_runs_on_the_cluster_and_the_patch_comes_back(cluster: LocalCluster, tmp_path: Path) -> None:
    settings = {"executor": "dask", "executor_address": cluster.scheduler_address}
    trees = run_workers(tmp_path / "far", settings)
    assert not list(Path(os.environ["XDG_STATE_HOME"]).rglob("clone")), "no clone is made here"
    assert run_workers(tmp_path / "near", {"executor": "threads"}) == trees
