"""CPU per turn and turns per second of every side in the same rounds, against LangGraph.

The work: agents without inputs call the model concurrently with OpenAI's SDK over loopback, and the server
answers after 300 milliseconds. A turn builds a prompt, calls the model, writes a message, changes a memory,
and is stored as the side's documentation recommends.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.measurement import Measurement, Timing
from benchmarks.options import Options
from benchmarks.peers.environments import LeftOut, Peer, quiet_environment, require_success
from benchmarks.peers.running import ServedSide
from benchmarks.real.at_once import SERVER
from benchmarks.real.server import run_server

DELAY_S = 0.3
AGENTS, MANY_AGENTS = 200, 1000
WARM_TICKS, TICKS_PER_ROUND = 3, 2
LANGGRAPH = ("langgraph", "langgraph-checkpoint-sqlite", "openai")
FLOOR = "langgraph-exit"
OURS = "lemming-tick"
SIDES = {
    "sdk-httpx2": Peer("OpenAI's SDK alone", "sdk", "httpx2", folder="real"),
    "sdk-aiohttp": Peer("OpenAI's SDK alone, on aiohttp", "sdk", "aiohttp", folder="real"),
    OURS: Peer("LeMMing, durability tick", "lemming", "tick", folder="real"),
    "lemming-turn": Peer("LeMMing, durability turn", "lemming", "turn", folder="real"),
    FLOOR: Peer("LangGraph, SQLite, exit", "langgraph", "exit", LANGGRAPH, folder="real"),
    "langgraph-sync": Peer("LangGraph, SQLite, sync", "langgraph", "sync", LANGGRAPH, folder="real"),
    "openai-agents": Peer("OpenAI Agents SDK, SQLite", "openai_agents", packages=("openai-agents",), folder="real"),
    "pydantic-ai": Peer("pydantic-ai, JSON", "pydantic_agents", packages=("pydantic-ai-slim", "openai"), folder="real"),
}
CPU, TURNS, WALL = "CPU a turn", "turns a second", "wall a tick"
TARGETS = {CPU: "real CPU", TURNS: "real turns"}


@dataclass(frozen=True)
class _PreparedSide:
    """A side available for measurement; `case` is the title with the version."""

    peer: Peer
    python: str
    case: str
    folder: Path

    def serve(self, agents: int) -> ServedSide:
        """Start the side with some agents, and run warm-up ticks."""
        self.folder.mkdir(parents=True, exist_ok=True)
        folder, errors = self.folder / str(agents), self.folder / f"errors-{agents}.txt"
        arguments = ("--agents", str(agents), "--until", str(WARM_TICKS))
        return ServedSide(self.peer.make_command(self.python, folder, *arguments), errors)


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the figures of every available side, with progress on standard error."""
    with quiet_environment(), run_server(DELAY_S) as address:
        os.environ[SERVER] = address
        for row in _iter_rows(options):
            print(f"{row.case}: {row.figure} {row.value:,.4g} {row.unit}", file=sys.stderr)
            yield row


def _iter_rows(options: Options) -> Iterator[Measurement]:
    sides = {name: side for name in SIDES if (side := _prepare_side(name, options))}
    timings = _time_sides(sides, AGENTS, options.rounds)
    floor = FLOOR if FLOOR in sides else "sdk-httpx2"
    for name, side in sides.items():
        yield from _compare_with_floor(name, side, sides[floor], timings[name], timings[floor])
    (many,) = _time_sides({OURS: sides[OURS]}, MANY_AGENTS, options.rounds).values()
    wall_ms = statistics.median(timing.wall_s for timing in many) / TICKS_PER_ROUND * 1e3
    case = f"{sides[OURS].case}, {MANY_AGENTS:,} at once"
    yield Measurement.from_count(wall_ms, case=case, figure=WALL, unit="ms", target="real many")


def _prepare_side(name: str, options: Options) -> _PreparedSide | None:
    """Prepare a side, or print the reason and return None."""
    peer = SIDES[name]
    try:
        python = peer.find_python(options.environments.absolute() / "real")
        require_success(peer.make_command(python, options.folder / f"{name}-tried", "--agents", "2"))
    except LeftOut as error:
        print(f"Left out: {peer.title}: {error}\n")
        return None
    title, _, variant_title = peer.title.partition(",")
    version_text = version("openai") if peer.module == "sdk" else peer.find_version(python)
    case = f"{title} {version_text}" + (f",{variant_title}" if variant_title else "")
    return _PreparedSide(peer, python, case, options.folder / name)


def _time_sides(sides: Mapping[str, _PreparedSide], agents: int, rounds: int) -> dict[str, list[Timing]]:
    """Measure in rounds with all sides, a single side at a time."""
    timings: dict[str, list[Timing]] = {name: [] for name in sides}
    with ExitStack() as stack:
        processes = {name: stack.enter_context(side.serve(agents)) for name, side in sides.items()}
        for number in range(rounds):
            for name in list(processes)[:: 1 if number % 2 == 0 else -1]:
                processes[name].sweep()
                timings[name].append(processes[name].tick(TICKS_PER_ROUND))
    return timings


def _compare_with_floor(
    name: str, side: _PreparedSide, floor: _PreparedSide, timings: list[Timing], floors: list[Timing]
) -> Iterator[Measurement]:
    turns = AGENTS * TICKS_PER_ROUND
    targets = TARGETS if name == OURS else dict.fromkeys(TARGETS, "")
    yield Measurement.from_pairs(
        [timing.cpu_s for timing in timings], [timing.cpu_s for timing in floors],
        scale=1e3 / turns, unit="ms", case=side.case, figure=CPU, floor_is=floor.case, target=targets[CPU],
    )  # fmt: skip
    yield Measurement.from_pairs(
        [turns / timing.wall_s for timing in timings], [turns / timing.wall_s for timing in floors],
        case=side.case, figure=TURNS, floor_is=floor.case, target=targets[TURNS],
    )  # fmt: skip
