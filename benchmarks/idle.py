"""Cost of a tick without model calls, against a `stat` of every resume."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.floor import scan_resumes
from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import NEVER, make_benchmark_org, running
from benchmarks.sides import Side, interleave

FLOOR = "scan and stat the resumes"
TICKS_PER_ROUND = 5
WARM_TICKS = 3


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the CPU time of an idle tick of the largest requested organisation."""
    size = max(options.agents)
    wake_on_change = {"run_every_n_ticks": 1, "phase_offset": 0, "wake": "changed"}
    bases = {
        "nobody due": make_benchmark_org(options.folder / "never", size, "one", schedule=NEVER),
        "all due, woken by changes, one neighbour": make_benchmark_org(
            options.folder / "one", size, "one", schedule=wake_on_change, model="quiet"
        ),
        "all due, woken by changes, read all": make_benchmark_org(
            options.folder / "all", size, "all", schedule=wake_on_change, model="quiet"
        ),
    }
    sides = {name: Side(running, (base, TICKS_PER_ROUND, WARM_TICKS)) for name, base in bases.items()}
    floor = Side(scan_resumes, (bases["nobody due"], TICKS_PER_ROUND))
    timings = interleave({FLOOR: floor, **sides}, options.rounds)
    cpu = {name: [timing.cpu_s / TICKS_PER_ROUND for timing in side_timings] for name, side_timings in timings.items()}
    for name in bases:
        yield Measurement.from_pairs(
            cpu[name], cpu[FLOOR],
            scale=1e3, unit="ms", case=f"{size:,} agents, {name}", figure="CPU an idle tick", floor_is=FLOOR,
            target="idle" if size >= 1000 else "",
        )  # fmt: skip
