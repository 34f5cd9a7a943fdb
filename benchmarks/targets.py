"""Targets of the figures. A measurement names its target by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchmarks.measurement import Measurement


@dataclass(frozen=True)
class Target:
    """A goal and a stretch goal for the ratio or the value: upper bounds, unless `more_is_better`."""

    what: str
    goal: float
    dream: float | None = None
    of: Literal["ratio", "value"] = "ratio"
    more_is_better: bool = False

    def get_number(self, measurement: Measurement) -> float | None:
        """Return the number to compare with the goal."""
        return measurement.ratio if self.of == "ratio" else measurement.value

    def is_met(self, measurement: Measurement) -> bool | None:
        """Return True if the goal is reached, or None without a number."""
        number = self.get_number(measurement)
        if number is None:
            return None
        return number >= self.goal if self.more_is_better else number <= self.goal


TARGETS = {
    "turn": Target("CPU, or instructions, of a turn, 100 agents that read one neighbour, against files_tmp", 2.5, 1.25),
    "size": Target("CPU of a turn among 1,000 and 10,000 agents, against 10", 1.2, 1.1),
    "reading": Target("CPU of a turn that reads all, against one neighbour", 1.5, 1.2),
    "age": Target("CPU of a turn after 10,000 ticks, against after 100", 1.1, 1.05),
    "entries": Target("CPU of a turn, 100 entries in every outbox, against none", 1.1, 1.05),
    "flushes per tick": Target('flushes of a tick, durability "tick"', 2, 1, of="value"),
    "flushes per turn": Target('flushes that one more turn adds to a tick, durability "turn"', 1, 1, of="value"),
    "replaced": Target("existing files replaced in a turn, for each memory key that changed", 1, of="value"),
    "bytes": Target("bytes written, against files_tmp", 3, 2),
    "start": Target("CPU of `--help` and of an idle `run-once`, against `import typer, pydantic`", 1.5, 1.0),
    "start with turns": Target("CPU of a `run-once` with turns, against `import typer, pydantic`", 2.0, 1.5),
    "history": Target("CPU of a cold idle `run-once` after 10,000 ticks, against after 20", 1.2, 1.1),
    "idle": Target("an idle tick of 1,000 agents, against scanning and stat-ing their resumes", 3, 2),
    "at once": Target("1,000 turns of 50 ms that read nobody, against 50 ms", 4, 1.5),
    "speed-up": Target("8 agents, a model of 100 ms: max_parallel 8, against 1", 7, more_is_better=True),
    "real CPU": Target("CPU of a turn through OpenAI's SDK, 200 at once, in ms", 1.7, 1.0, of="value"),
    "real turns": Target("turns a second, 200 at once, against LangGraph", 2, more_is_better=True),
    "real many": Target("wall time of a tick of 1,000 agents at once, in ms", 1200, 600, of="value"),
    "same tree": Target("files that differ between max_parallel 1 and 8", 0, of="value"),
}

FAST_COMMANDS = (
    "status", "status --json", "plan", "agents list", "agents show a00001", "waiting", "approvals",
    "requests", "cost", "cost --by model", "cost --by request", "cost --by tick", "cost --by day",
    "cost --since {middle}", "credits show", "why {entry}", "why a00000/memory/state", "why {resume}",
    "tick {middle}", "logs", "history", "inbox a00000", "inbox a00001", "outbox a00000", "outbox a00001",
    "memory a00000", "prompt a00000", "prompt a00001", "events --ticks {middle}", "channels", "plans",
    "calendar", "graph", "metrics",
)  # fmt: skip
"""Commands that look, which answer in a second however old and large an organisation is."""

CHECK_COMMANDS = {
    "status --check": 1000, "findings": 1000, "validate": 1000, "doctor": 1000, "verify --newest 100": 1000,
    "verify": 6000, "check": 8000, "check --newest 100": 2000,
}  # fmt: skip
"""Commands that say what is wrong, each with the CPU in ms that it may take; the long ones show a bar."""
SLOW_WHY_LABEL = "CPU of `why` of a file that no turn wrote, which looks through all journals and says so, in ms"

TARGETS |= (
    {
        f"at once: {words}": Target(
            f"CPU of `{words}`, 1,000 agents, 10,000 ticks, 100,000 entries, in ms", 1000, 500, of="value"
        )
        for words in (*FAST_COMMANDS, "run-once")
    }
    | {
        f"at once: {words}": Target(f"CPU of `{words}`, likewise", goal, goal / 2, of="value")
        for words, goal in CHECK_COMMANDS.items()
    }
    | {"at once: why {resume}": Target(SLOW_WHY_LABEL, 3000, 1000, of="value")}
)
