"""Every side does the same work in one run: its CPU, instructions, bytes, flushes, memory, start, and kills.

The work: agents in a ring, each shown up to 20 messages of the one before; a turn makes a prompt, asks a
model that answers at once, writes a message and changes a memory, and is kept as the side's documentation
says.
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
from benchmarks.peers.environments import FLOOR, PEERS, LeftOut, Peer, silent, tried
from benchmarks.peers.kills import toll
from benchmarks.peers.running import Served, instructions, writing
from benchmarks.processes import Ended, run

AGENTS = 20
WARM, TICKS_A_ROUND, COUNTED_TICKS = 21, 4, 3
SHORT, LONG = 22, 42  # ticks of the runs that are traced and weighed
CPU, INSTRUCTIONS, BYTES, FLUSHES = "CPU a turn", "instructions a turn", "bytes a turn", "flushes a turn"
PEAK, START, REPEATED, LOST = "peak memory", "cold start", "calls repeated", "answers lost"


@dataclass(frozen=True)
class Ready:
    """A side that can be run here; `case` is its title with its version."""

    peer: Peer
    python: str
    case: str
    place: Path

    def command(self, folder: Path, *arguments: str) -> tuple[str, ...]:
        """Return the command line that has it work in a folder."""
        return self.peer.command(self.python, folder, "--agents", str(AGENTS), *arguments)


def measure(options: Options) -> Iterator[Measurement]:
    """Yield every figure of every side that can be had; each is told as it comes, for all take long."""
    with silent():
        for row in _rows(options):
            print(f"{row.case}: {row.figure} {row.value:,.4g} {row.unit}", file=sys.stderr)
            yield row


def _rows(options: Options) -> Iterator[Measurement]:
    sides = {name: found for name in _names(options) if (found := _ready(name, options))}
    yield from _cpu(sides, options.rounds)
    for side in sides.values():
        try:
            yield from _alone(side, options.kills)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"Not measured to its end: {side.case}: {error}\n")
        shutil.rmtree(side.place)
    yield from _starts({name: side for name, side in sides.items() if not side.peer.is_floor}, options)


def _alone(side: Ready, kills: int) -> Iterator[Measurement]:
    yield from _counted(side)
    if not side.peer.is_floor:
        yield _peak(side)
        yield from _killed(side, kills)


def _names(options: Options) -> list[str]:
    return [FLOOR, *(name for name in PEERS if name in options.peers and name != FLOOR)]


def _ready(name: str, options: Options) -> Ready | None:
    """Return a side with all that it needs; without, None, having said why."""
    peer = PEERS[name]
    try:
        python = peer.python(options.environments.absolute())
        if peer.packages:
            tried(peer.command(python, options.place / f"{name}-tried"))
    except LeftOut as error:
        print(f"Left out: {peer.title}: {error}\n")
        return None
    title, _, rest = peer.title.partition(",")
    case = f"{title} {peer.version(python)}".strip() + (f",{rest}" if rest else "")
    place = options.place / name
    place.mkdir()
    return Ready(peer, python, case, place)


def _cpu(sides: Mapping[str, Ready], rounds: int) -> Iterator[Measurement]:
    """Measure in rounds: every side once in each, one working at a time."""
    timings: dict[str, list[Timing]] = {name: [] for name in sides}
    with ExitStack() as stack:
        served = {name: stack.enter_context(_served(side)) for name, side in sides.items()}
        for number in range(rounds):
            for name in list(served)[:: 1 if number % 2 == 0 else -1]:
                served[name].sweep()
                timings[name].append(served[name].tick(TICKS_A_ROUND))
    cpu = {name: [timing.cpu_s for timing in found] for name, found in timings.items()}
    scale = 1e6 / AGENTS / TICKS_A_ROUND
    for name, side in sides.items():
        yield Measurement.paired(
            cpu[name], cpu[FLOOR], scale=scale, unit="µs", case=side.case, figure=CPU, floor_is="files_tmp"
        )


def _served(side: Ready) -> Served:
    return Served(side.command(side.place / "cpu", "--until", str(WARM)), side.place / "errors.txt")


def _counted(side: Ready) -> Iterator[Measurement]:
    """Yield what is exact, as far as there is a tool that counts it."""
    if shutil.which("valgrind"):
        told, counted = (_instructions(side, ticks) for ticks in (0, COUNTED_TICKS))
        value = (counted - told) / AGENTS / COUNTED_TICKS / 1e3
        yield Measurement.counted(value, case=side.case, figure=INSTRUCTIONS, unit="thousand")
    if shutil.which("strace"):
        short, long = (_writing(side, ticks) for ticks in (SHORT, LONG))
        for figure, what, unit in ((BYTES, "bytes", "B"), (FLUSHES, "flushes", "")):
            value = (long[what] - short[what]) / AGENTS / (LONG - SHORT)
            yield Measurement.counted(value, case=side.case, figure=figure, unit=unit)


def _peak(side: Ready) -> Measurement:
    ended = run(side.command(side.place / "peak", "--until", str(LONG)))
    return Measurement.counted(ended.peak_mb, case=side.case, figure=PEAK, unit="MB")


def _instructions(side: Ready, ticks: int) -> int:
    folder, warm = side.place / f"valgrind-{ticks}", WARM if ticks else 0
    return instructions(side.command(folder, "--until", str(warm)), ticks, side.place)


def _writing(side: Ready, ticks: int) -> Mapping[str, int]:
    folder = side.place / f"traced-{ticks}"
    return writing(side.command(folder, "--until", str(ticks)), folder, side.place / f"calls-{ticks}")


def _killed(side: Ready, kills: int) -> Iterator[Measurement]:
    found = toll(side.command, side.place / "kills", kills)
    for error in found.failed:
        print(f"peers: {side.case} did not start again after a kill: {error}", file=sys.stderr)
    for figure, value in ((REPEATED, found.repeated), (LOST, found.lost)):
        yield Measurement.counted(value, case=side.case, figure=figure, unit=f"of {kills} kills")


def _starts(sides: Mapping[str, Ready], options: Options) -> Iterator[Measurement]:
    """Measure processes that take one turn in a new folder; the first, which compiles, does not count."""
    ended: dict[str, list[Ended]] = {name: [] for name in sides}
    for number in range(options.rounds + 1):
        for name, side in sides.items():
            folder = options.place / f"start-{name}-{number}"
            ended[name].append(run(side.peer.command(side.python, folder, "--agents", "1", "--until", "1")))
    for name, side in sides.items():
        value = statistics.median(each.cpu_s for each in ended[name][1:])
        yield Measurement.counted(value * 1e3, case=side.case, figure=START, unit="ms")
