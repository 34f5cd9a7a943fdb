"""What calls cost that a cluster makes: for more of them at once than one machine should hold."""

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
from benchmarks.parallel import ticking, waiting
from benchmarks.sides import Side, interleave
from lemming.kernel.base.jsontext import pretty

TURNS, DELAY_S = 200, 1.0
WORKERS = 2
REPOSITORY = Path(__file__).parent.parent


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the wall time and the engine's CPU of a tick whose calls workers make, beside its own threads."""
    if importlib.util.find_spec("distributed") is None:
        print("cluster: distributed is not installed: pip install 'lemming-engine[dask]'", file=sys.stderr)
        return
    with _cluster(options.place) as address:
        bases = {
            executor: _org(options.place / executor, executor, address) for executor in ("dask", "threads")
        }
        timings = interleave({name: Side(ticking, (base,)) for name, base in bases.items()}, options.rounds)
    wall = {name: [timing.wall_s for timing in found] for name, found in timings.items()}
    cpu = {name: [timing.cpu_s / TURNS for timing in found] for name, found in timings.items()}
    case = f"{TURNS} turns at once that read nobody, a model of {DELAY_S:g} s, {WORKERS} workers"
    yield Measurement.paired(
        wall["dask"], wall["threads"], unit="s", case=case, figure="wall a tick", floor_is='"threads"'
    )
    yield Measurement.paired(
        cpu["dask"], cpu["threads"], scale=1e3, unit="ms",
        case=case, figure="CPU of the engine a turn", floor_is='"threads"',
    )  # fmt: skip


def _org(base: Path, executor: str, address: str) -> Path:
    """Make an organisation whose calls are made by the engine's threads, or by the cluster."""
    waiting(base, TURNS, "nobody", DELAY_S, max_parallel=TURNS)
    file = base / "config/org.json"
    file.write_bytes(
        pretty({**json.loads(file.read_bytes()), "executor": executor, "executor_address": address})
    )
    return base


@contextmanager
def _cluster(folder: Path) -> Iterator[str]:
    """Run a scheduler and workers, each in a process of its own, that make all the calls at once."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{found.getsockname()[1]}"
    threads = str(TURNS // WORKERS)
    worker = ("worker", address, "--nthreads", threads, "--no-dashboard", "--local-directory", str(folder))
    running = [_dask("scheduler", "--port", address.rpartition(":")[2], "--no-dashboard")]
    try:
        running += [_dask(*worker) for _ in range(WORKERS)]
        _await_workers(address)
        yield address
    finally:
        for process in running:
            process.kill()
            process.wait()


def _dask(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *words],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _await_workers(address: str) -> None:
    from lemming.capabilities.cluster.calls import DaskCalls

    calls = DaskCalls(address, connect_s=60)
    ends = time.monotonic() + 60
    while len(calls.workers()) < WORKERS and time.monotonic() < ends:
        time.sleep(0.2)
    calls.close()
