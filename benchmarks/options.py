"""What a run of the benchmarks is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line, and where to measure.

    `place` is an empty folder for one subject, `shelf` one for what several subjects copy; both are on the
    file system that is measured. `environments` keeps what the peers need between runs,
    `org` the organisation that is simulated. `server` is the address of the model server that is asked for a
    `model`, through a `provider` and with a `prompt` of LeMMing; `recording` keeps its replies.
    """

    place: Path
    shelf: Path
    file_system: str
    rounds: int = 5
    agents: tuple[int, ...] = (10, 100, 1000)
    reading: tuple[str, ...] = ("one", "all")
    entries: tuple[int, ...] = (0, 100)
    durability: tuple[str, ...] = ("off", "tick", "turn")
    ages: tuple[int, ...] = (100, 10_000)
    is_full: bool = False
    peers: tuple[str, ...] = ()
    kills: int = 20
    environments: Path = Path(".venv/peers")
    org: Path | None = None
    ticks: int | None = None
    minutes: float = 10.0
    server: str = ""
    model: str = ""
    provider: str = "llamacpp"
    prompt: str = ""
    key_env: str = ""
    recording: Path | None = None
    kinds: tuple[str, ...] = ()
    sides: tuple[str, ...] = ()
