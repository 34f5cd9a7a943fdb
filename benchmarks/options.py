"""Options of a benchmark run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line, and the folders to measure in.

    `folder` is an empty folder for a subject, `shared_folder` a folder for organisations copied by several
    subjects; both are on the measured file system. `environments` keeps the peers' installations between
    runs, `org` the simulated organisation. `server` is the address of the model server for `model`, called
    through LeMMing's `provider` with LeMMing's `prompt`; `recording` stores the replies.
    """

    folder: Path
    shared_folder: Path
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
