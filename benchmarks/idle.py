"""What a tick costs in which no model is asked, beside looking at every resume without reading it."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.floor import scan_resumes
from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import NEVER, make, running
from benchmarks.sides import Side, interleave

FLOOR = "scan and stat the resumes"
TICKS_A_ROUND = 5
WARM_TICKS = 3


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the CPU time of an idle tick of the largest organisation that was asked for."""
    size = max(options.agents)
    changed = {"run_every_n_ticks": 1, "phase_offset": 0, "wake": "changed"}
    bases = {
        "nobody due": make(options.place / "never", size, "one", schedule=NEVER),
        "all due, woken by changes, one neighbour": make(
            options.place / "one", size, "one", schedule=changed, model="quiet"
        ),
        "all due, woken by changes, read all": make(
            options.place / "all", size, "all", schedule=changed, model="quiet"
        ),
    }
    sides = {name: Side(running, (base, TICKS_A_ROUND, WARM_TICKS)) for name, base in bases.items()}
    floor = Side(scan_resumes, (bases["nobody due"], TICKS_A_ROUND))
    timings = interleave({FLOOR: floor, **sides}, options.rounds)
    cpu = {name: [timing.cpu_s / TICKS_A_ROUND for timing in found] for name, found in timings.items()}
    for name in bases:
        yield Measurement.paired(
            cpu[name], cpu[FLOOR],
            scale=1e3, unit="ms", case=f"{size:,} agents, {name}", figure="CPU an idle tick", floor_is=FLOOR,
            target="idle" if size >= 1000 else "",
        )  # fmt: skip
