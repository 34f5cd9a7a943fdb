"""CPU of a turn and turns a second, every side in the same rounds, beside LangGraph.

The work: agents who read nobody ask at once, with OpenAI's SDK over loopback, a server that answers after 300
milliseconds. A turn makes a question, asks it, writes a message and changes a memory, and is kept as the
side's documentation says.
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
from benchmarks.peers.environments import LeftOut, Peer, silent, tried
from benchmarks.peers.running import Served
from benchmarks.real.at_once import SERVER
from benchmarks.real.server import running

DELAY_S = 0.3
AGENTS, MANY = 200, 1000
WARM, TICKS_A_ROUND = 3, 2
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
    "openai-agents": Peer(
        "OpenAI Agents SDK, SQLite", "openai_agents", packages=("openai-agents",), folder="real"
    ),
    "pydantic-ai": Peer(
        "pydantic-ai, JSON", "pydantic_agents", packages=("pydantic-ai-slim", "openai"), folder="real"
    ),
}
CPU, TURNS, WALL = "CPU a turn", "turns a second", "wall a tick"
TARGETS = {CPU: "real CPU", TURNS: "real turns"}


@dataclass(frozen=True)
class _Side:
    """A side that can be run here; `case` is its title with its version."""

    peer: Peer
    python: str
    case: str
    place: Path

    def served(self, agents: int) -> Served:
        """Start it with so many agents, and let it become warm."""
        self.place.mkdir(parents=True, exist_ok=True)
        folder, errors = self.place / str(agents), self.place / f"errors-{agents}.txt"
        arguments = ("--agents", str(agents), "--until", str(WARM))
        return Served(self.peer.command(self.python, folder, *arguments), errors)


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the figures of every side that can be had; each is told as it comes, for all take minutes."""
    with silent(), running(DELAY_S) as address:
        os.environ[SERVER] = address
        for row in _rows(options):
            print(f"{row.case}: {row.figure} {row.value:,.4g} {row.unit}", file=sys.stderr)
            yield row


def _rows(options: Options) -> Iterator[Measurement]:
    sides = {name: side for name in SIDES if (side := _ready(name, options))}
    timings = _timed(sides, AGENTS, options.rounds)
    floor = FLOOR if FLOOR in sides else "sdk-httpx2"
    for name, side in sides.items():
        yield from _compared(name, side, sides[floor], timings[name], timings[floor])
    (many,) = _timed({OURS: sides[OURS]}, MANY, options.rounds).values()
    wall_ms = statistics.median(timing.wall_s for timing in many) / TICKS_A_ROUND * 1e3
    case = f"{sides[OURS].case}, {MANY:,} at once"
    yield Measurement.counted(wall_ms, case=case, figure=WALL, unit="ms", target="real many")


def _ready(name: str, options: Options) -> _Side | None:
    """Return a side with all that it needs; without, None, having said why."""
    peer = SIDES[name]
    try:
        python = peer.python(options.environments.absolute() / "real")
        tried(peer.command(python, options.place / f"{name}-tried", "--agents", "2"))
    except LeftOut as error:
        print(f"Left out: {peer.title}: {error}\n")
        return None
    title, _, rest = peer.title.partition(",")
    number = version("openai") if peer.module == "sdk" else peer.version(python)
    case = f"{title} {number}" + (f",{rest}" if rest else "")
    return _Side(peer, python, case, options.place / name)


def _timed(sides: Mapping[str, _Side], agents: int, rounds: int) -> dict[str, list[Timing]]:
    """Measure in rounds: every side once in each, one working at a time."""
    timings: dict[str, list[Timing]] = {name: [] for name in sides}
    with ExitStack() as stack:
        served = {name: stack.enter_context(side.served(agents)) for name, side in sides.items()}
        for number in range(rounds):
            for name in list(served)[:: 1 if number % 2 == 0 else -1]:
                served[name].sweep()
                timings[name].append(served[name].tick(TICKS_A_ROUND))
    return timings


def _compared(
    name: str, side: _Side, floor: _Side, timings: list[Timing], floors: list[Timing]
) -> Iterator[Measurement]:
    turns = AGENTS * TICKS_A_ROUND
    targets = TARGETS if name == OURS else dict.fromkeys(TARGETS, "")
    yield Measurement.paired(
        [timing.cpu_s for timing in timings], [timing.cpu_s for timing in floors],
        scale=1e3 / turns, unit="ms", case=side.case, figure=CPU, floor_is=floor.case, target=targets[CPU],
    )  # fmt: skip
    yield Measurement.paired(
        [turns / timing.wall_s for timing in timings], [turns / timing.wall_s for timing in floors],
        case=side.case, figure=TURNS, floor_is=floor.case, target=targets[TURNS],
    )  # fmt: skip
