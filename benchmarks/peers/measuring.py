"""Measurement of all sides with the same work: CPU, instructions, bytes, flushes, memory, start, and kills.

The work: agents in a ring, each with up to 20 messages of the predecessor. A turn builds a prompt, calls a
model with an immediate answer, writes a message, changes a memory, and is stored as the side's documentation
recommends.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measurement import Measurement, Timing
from benchmarks.options import Options
from benchmarks.peers.environments import FLOOR, PEERS, LeftOut, Peer, quiet_environment, require_success
from benchmarks.peers.kills import measure_kills
from benchmarks.peers.running import ServedSide, count_side_instructions, count_side_writes
from benchmarks.processes import ProcessUsage, run_measured

AGENTS = 20
WARM_TICKS, TICKS_PER_ROUND, COUNTED_TICKS = 21, 4, 3
SHORT_TICKS, LONG_TICKS = 22, 42  # ticks of the runs that are traced and weighed
CPU, INSTRUCTIONS, BYTES, FLUSHES = "CPU a turn", "instructions a turn", "bytes a turn", "flushes a turn"
PEAK, START, REPEATED, LOST = "peak memory", "cold start", "calls repeated", "answers lost"


@dataclass(frozen=True)
class PreparedSide:
    """A side available for measurement; `case` is the title with the version."""

    peer: Peer
    python: str
    case: str
    folder: Path

    def make_command(self, folder: Path, *arguments: str) -> tuple[str, ...]:
        """Return the command line to run the side in a folder."""
        return self.peer.make_command(self.python, folder, "--agents", str(AGENTS), *arguments)


def measure(options: Options) -> Iterator[Measurement]:
    """Yield every figure of every available side, with progress on standard error."""
    with quiet_environment():
        for row in _iter_rows(options):
            print(f"{row.case}: {row.figure} {row.value:,.4g} {row.unit}", file=sys.stderr)
            yield row


def _iter_rows(options: Options) -> Iterator[Measurement]:
    sides = {name: prepared for name in _select_names(options) if (prepared := _prepare_side(name, options))}
    yield from _measure_cpu(sides, options.rounds)
    for side in sides.values():
        try:
            yield from _measure_alone(side, options.kills)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"Not measured to its end: {side.case}: {error}\n")
        shutil.rmtree(side.folder)
    yield from _measure_starts({name: side for name, side in sides.items() if not side.peer.is_floor}, options)


def _measure_alone(side: PreparedSide, kills: int) -> Iterator[Measurement]:
    yield from _measure_counts(side)
    if not side.peer.is_floor:
        yield _measure_peak(side)
        yield from _measure_kills(side, kills)


def _select_names(options: Options) -> list[str]:
    return [FLOOR, *(name for name in PEERS if name in options.peers and name != FLOOR)]


def _prepare_side(name: str, options: Options) -> PreparedSide | None:
    """Prepare a side, or print the reason and return None."""
    peer = PEERS[name]
    try:
        python = peer.find_python(options.environments.absolute())
        if peer.packages:
            require_success(peer.make_command(python, options.folder / f"{name}-tried"))
    except LeftOut as error:
        print(f"Left out: {peer.title}: {error}\n")
        return None
    title, _, variant_title = peer.title.partition(",")
    case = f"{title} {peer.find_version(python)}".strip() + (f",{variant_title}" if variant_title else "")
    folder = options.folder / name
    folder.mkdir()
    return PreparedSide(peer, python, case, folder)


def _measure_cpu(sides: Mapping[str, PreparedSide], rounds: int) -> Iterator[Measurement]:
    """Measure in rounds with all sides, a single side at a time."""
    timings: dict[str, list[Timing]] = {name: [] for name in sides}
    with ExitStack() as stack:
        processes = {name: stack.enter_context(_serve_side(side)) for name, side in sides.items()}
        for number in range(rounds):
            for name in list(processes)[:: 1 if number % 2 == 0 else -1]:
                processes[name].sweep()
                timings[name].append(processes[name].tick(TICKS_PER_ROUND))
    cpu = {name: [timing.cpu_s for timing in side_timings] for name, side_timings in timings.items()}
    scale = 1e6 / AGENTS / TICKS_PER_ROUND
    for name, side in sides.items():
        yield Measurement.from_pairs(
            cpu[name], cpu[FLOOR], scale=scale, unit="µs", case=side.case, figure=CPU, floor_is="files_tmp"
        )


def _serve_side(side: PreparedSide) -> ServedSide:
    return ServedSide(side.make_command(side.folder / "cpu", "--until", str(WARM_TICKS)), side.folder / "errors.txt")


def _measure_counts(side: PreparedSide) -> Iterator[Measurement]:
    """Yield the exact counts, as far as tools are installed."""
    if shutil.which("valgrind"):
        startup_count, total_count = (_count_instructions(side, ticks) for ticks in (0, COUNTED_TICKS))
        value = (total_count - startup_count) / AGENTS / COUNTED_TICKS / 1e3
        yield Measurement.from_count(value, case=side.case, figure=INSTRUCTIONS, unit="thousand")
    if shutil.which("strace"):
        short_run, long_run = (_count_writes(side, ticks) for ticks in (SHORT_TICKS, LONG_TICKS))
        for figure, key, unit in ((BYTES, "bytes", "B"), (FLUSHES, "flushes", "")):
            value = (long_run[key] - short_run[key]) / AGENTS / (LONG_TICKS - SHORT_TICKS)
            yield Measurement.from_count(value, case=side.case, figure=figure, unit=unit)


def _measure_peak(side: PreparedSide) -> Measurement:
    usage = run_measured(side.make_command(side.folder / "peak", "--until", str(LONG_TICKS)))
    return Measurement.from_count(usage.peak_mb, case=side.case, figure=PEAK, unit="MB")


def _count_instructions(side: PreparedSide, ticks: int) -> int:
    folder, warm = side.folder / f"valgrind-{ticks}", WARM_TICKS if ticks else 0
    return count_side_instructions(side.make_command(folder, "--until", str(warm)), ticks, side.folder)


def _count_writes(side: PreparedSide, ticks: int) -> Mapping[str, int]:
    folder = side.folder / f"traced-{ticks}"
    return count_side_writes(side.make_command(folder, "--until", str(ticks)), folder, side.folder / f"calls-{ticks}")


def _measure_kills(side: PreparedSide, kills: int) -> Iterator[Measurement]:
    costs = measure_kills(side.make_command, side.folder / "kills", kills)
    for error in costs.failed:
        print(f"peers: {side.case} did not start again after a kill: {error}", file=sys.stderr)
    for figure, value in ((REPEATED, costs.repeated), (LOST, costs.lost)):
        yield Measurement.from_count(value, case=side.case, figure=figure, unit=f"of {kills} kills")


def _measure_starts(sides: Mapping[str, PreparedSide], options: Options) -> Iterator[Measurement]:
    """Measure processes with a single turn in a new folder, without the first, which compiles modules."""
    usages: dict[str, list[ProcessUsage]] = {name: [] for name in sides}
    for number in range(options.rounds + 1):
        for name, side in sides.items():
            folder = options.folder / f"start-{name}-{number}"
            usages[name].append(
                run_measured(side.peer.make_command(side.python, folder, "--agents", "1", "--until", "1"))
            )
    for name, side in sides.items():
        value = statistics.median(usage.cpu_s for usage in usages[name][1:])
        yield Measurement.from_count(value * 1e3, case=side.case, figure=START, unit="ms")
