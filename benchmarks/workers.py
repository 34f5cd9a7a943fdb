"""Workers on a cluster: eight harnesses that compute, on one process with one core and on two."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.cluster import run_cluster
from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.sides import Side, interleave
from lemming.engine import run_once
from lemming.testing import make_org, resume

WORKERS, CPU_S = 8, 5.0
COMPUTE = f"import time; end = time.process_time() + {CPU_S}\\nwhile time.process_time() < end: pass"
SCRIPT = f"cat >/dev/null; python3 -c \"$(printf '{COMPUTE}')\"; echo computed >> result.txt; echo done"


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the wall time of a tick with eight workers, on two processes with a core each against one."""
    missing = [name for name in ("git", "taskset") if shutil.which(name) is None]
    if missing or importlib.util.find_spec("distributed") is None:
        print(f"workers: needs git, taskset and distributed, without {missing}", file=sys.stderr)
        return
    site = _make_repository(options.folder / "site")
    with ExitStack() as stack:
        bases = {}
        for count in (1, 2):
            threads = WORKERS // count
            address = stack.enter_context(run_cluster(options.folder, workers=count, threads=threads, is_pinned=True))
            bases[count] = _make_org(options.folder / f"org{count}", site, address)
        timings = interleave({f"{count}": Side(_make_work, (base,)) for count, base in bases.items()}, options.rounds)
    wall = {name: [timing.wall_s for timing in side_timings] for name, side_timings in timings.items()}
    case = f"{WORKERS} workers of {CPU_S:g} s of CPU each, on two processes with a core each"
    yield Measurement.from_pairs(
        wall["2"], wall["1"], unit="s", case=case, figure="wall a tick", floor_is="one process"
    )


def _make_work(base: Path) -> Any:
    return lambda: run_once(base)


def _make_repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    as_author = ["-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "commit.gpgsign=false"]
    (folder / "result.txt").write_text("begin\n")
    for arguments in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "begin"]):
        subprocess.run(["git", "-C", str(folder), *as_author, *arguments], check=True)
    return folder


def _make_org(base: Path, site: Path, address: str) -> Path:
    workspace = {"repository": str(site), "sandbox": "none"}
    names = [f"{base.name}w{number}" for number in range(WORKERS)]
    common = {"model": {"key": "harness"}, "workspace": workspace, "schedule": {"wake": "always"}}
    workers = [resume(name, permissions={"read_outboxes": []}, **common) for name in names]  # nobody waits for another
    entry = {"provider": "harness", "options": {"command": ["/bin/sh", "-c", SCRIPT]}, "max_concurrent": WORKERS}
    settings = {"executor": "dask", "executor_address": address, "max_parallel": WORKERS}
    return make_org(base, *workers, models={"harness": entry}, org=settings)
