"""What is compared, and an environment of its own for each framework, made once and kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import PYTHON
from lemming import __version__

ROOT = Path(__file__).parents[2]
SILENT = {
    "PYTHONPATH": str(ROOT),  # for `python -m benchmarks.peers.NAME` in environments that do not have us
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
    "BURR_TELEMETRY_ENABLED": "false",
}


class LeftOut(Exception):
    """A framework that cannot be had here, and why."""


@dataclass(frozen=True)
class Peer:
    """One of those compared: `module` is its script, `packages` what is installed for it, the first named.

    `folder` is the one of the script, below `benchmarks`.
    """

    title: str
    module: str
    variant: str = ""
    packages: tuple[str, ...] = ()
    is_floor: bool = False
    """It takes nothing up after a kill, and its process holds the engine: memory and start tell nothing."""
    folder: str = "peers"

    def python(self, environments: Path) -> str:
        """Return the interpreter that has its packages, made where there is none yet."""
        return _made(environments / self.module, self.packages) if self.packages else PYTHON

    def version(self, python: str) -> str:
        """Return the version of what is measured; empty where there is none."""
        if not self.packages:
            return "" if self.module == "files_tmp" else __version__
        ask = f"from importlib.metadata import version; print(version({self.packages[0]!r}))"
        return subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()

    def command(self, python: str, folder: Path, *arguments: str) -> tuple[str, ...]:
        """Return the command line that has it work in a folder; the arguments are those of `work.main`."""
        script = (python, "-m", f"benchmarks.{self.folder}.{self.module}", str(folder))
        return (*script, "--variant", self.variant, *arguments)


LANGGRAPH = ("langgraph", "langgraph-checkpoint-sqlite")
PEERS = {
    "files_tmp": Peer("`files_tmp`, the floor", "files_tmp", is_floor=True),
    "lemming-off": Peer("LeMMing, durability off", "lemming", "off"),
    "lemming-tick": Peer("LeMMing, durability tick", "lemming", "tick"),
    "lemming-turn": Peer("LeMMing, durability turn", "lemming", "turn"),
    "langgraph-exit": Peer("LangGraph, SQLite, exit", "langgraph", "exit", LANGGRAPH),
    "langgraph-sync": Peer("LangGraph, SQLite, sync", "langgraph", "sync", LANGGRAPH),
    "autogen": Peer("AutoGen, JSON", "autogen", packages=("autogen-agentchat",)),
    "burr": Peer("Burr, SQLite", "burr", packages=("apache-burr",)),
    "dbos": Peer("DBOS, SQLite", "dbos", packages=("dbos",)),
    "openai-agents": Peer("OpenAI Agents SDK, SQLite", "openai_agents", packages=("openai-agents",)),
    "crewai": Peer("CrewAI flows, SQLite", "crewai", packages=("crewai",)),
}
FLOOR = "files_tmp"


@contextmanager
def silent() -> Iterator[None]:
    """Have every process that is started find our scripts, and send nothing anywhere."""
    before = dict(os.environ)
    os.environ.update(SILENT)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _made(place: Path, packages: Sequence[str]) -> str:
    """Make an environment, unless it was made before; raise `LeftOut` when something cannot be installed."""
    python, ready = place / "bin/python", place / "ready"
    if not ready.exists():
        print(f"installing {' '.join(packages)} into {place}", file=sys.stderr)
        tried([PYTHON, "-m", "venv", "--clear", str(place)])
        tried([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
        ready.touch()
    return str(python)


def tried(command: Sequence[str]) -> None:
    """Run a command to its end; raise `LeftOut` with the last line it said when it fails."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        raise LeftOut(lines[-1] if lines else f"{command[0]} ended with {ended.returncode}")
