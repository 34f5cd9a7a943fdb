"""Cost of calls on a cluster, for more concurrent calls than a single machine should hold."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.parallel import make_slow_org, make_tick_work
from benchmarks.sides import Side, interleave
from lemming.kernel.base.jsontext import dump_pretty

TURNS, DELAY_S = 200, 1.0
WORKERS = 2
REPOSITORY = Path(__file__).parent.parent


def measure(options: Options) -> Iterator[Measurement]:
    """Yield wall time and engine CPU of a tick with calls on workers, against the engine's own threads."""
    if importlib.util.find_spec("distributed") is None:
        print("cluster: distributed is not installed: pip install 'lemming-engine[dask]'", file=sys.stderr)
        return
    with run_cluster(options.folder) as address:
        bases = {executor: _make_org(options.folder / executor, executor, address) for executor in ("dask", "threads")}
        timings = interleave({name: Side(make_tick_work, (base,)) for name, base in bases.items()}, options.rounds)
    wall = {name: [timing.wall_s for timing in side_timings] for name, side_timings in timings.items()}
    cpu = {name: [timing.cpu_s / TURNS for timing in side_timings] for name, side_timings in timings.items()}
    case = f"{TURNS} turns at once that read nobody, a model of {DELAY_S:g} s, {WORKERS} workers"
    yield Measurement.from_pairs(
        wall["dask"], wall["threads"], unit="s", case=case, figure="wall a tick", floor_is='"threads"'
    )
    yield Measurement.from_pairs(
        cpu["dask"], cpu["threads"], scale=1e3, unit="ms",
        case=case, figure="CPU of the engine a turn", floor_is='"threads"',
    )  # fmt: skip


def _make_org(base: Path, executor: str, address: str) -> Path:
    """Make an organisation with calls on the engine's threads or on the cluster."""
    make_slow_org(base, TURNS, "nobody", DELAY_S, max_parallel=TURNS)
    file = base / "config/org.json"
    file.write_bytes(dump_pretty({**json.loads(file.read_bytes()), "executor": executor, "executor_address": address}))
    return base


@contextmanager
def run_cluster(
    folder: Path, *, workers: int = WORKERS, threads: int = TURNS // WORKERS, is_pinned: bool = False
) -> Iterator[str]:
    """Run a scheduler and workers in separate processes, with a thread for every call.

    `is_pinned`: each worker has one core for itself, as far as there are cores.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    worker = ("worker", address, "--nthreads", str(threads), "--no-dashboard", "--local-directory", str(folder))
    processes = [_start_dask("scheduler", "--port", address.rpartition(":")[2], "--no-dashboard")]
    try:
        for number in range(workers):
            cores = ("taskset", "-c", str(number % (os.cpu_count() or 1))) if is_pinned else ()
            processes.append(_start_dask(*worker, prefix=cores))
        _wait_for_workers(address, workers)
        yield address
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _start_dask(*arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*prefix, sys.executable, "-m", "dask", *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _wait_for_workers(address: str, workers: int) -> None:
    from lemming.capabilities.cluster.cluster_calls import DaskCalls

    calls = DaskCalls(address, connect_s=60)
    deadline = time.monotonic() + 60
    while len(calls.count_worker_slots()) < workers and time.monotonic() < deadline:
        time.sleep(0.2)
    calls.close()
