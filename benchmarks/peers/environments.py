"""Compared frameworks, and a separate cached environment for each."""

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
QUIET_ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),  # for `python -m benchmarks.peers.NAME` in environments that do not have us
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
    "BURR_TELEMETRY_ENABLED": "false",
}


class LeftOut(Exception):
    """A framework is not available here; the message is the reason."""


@dataclass(frozen=True)
class Peer:
    """A compared side: `module` is the script, `packages` the packages to install, the framework first.

    `folder` is the script's folder below `benchmarks`.
    """

    title: str
    module: str
    variant: str = ""
    packages: tuple[str, ...] = ()
    is_floor: bool = False
    """It takes nothing up after a kill, and its process holds the engine: memory and start tell nothing."""
    folder: str = "peers"

    def find_python(self, environments: Path) -> str:
        """Return the interpreter with the packages, in an environment created on demand."""
        return _create_environment(environments / self.module, self.packages) if self.packages else PYTHON

    def find_version(self, python: str) -> str:
        """Return the version of the framework, or an empty string for the floor."""
        if not self.packages:
            return "" if self.module == "files_tmp" else __version__
        ask = f"from importlib.metadata import version; print(version({self.packages[0]!r}))"
        return subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()

    def make_command(self, python: str, folder: Path, *arguments: str) -> tuple[str, ...]:
        """Return the command line to run the side in a folder.

        The arguments are the options of `work.main`.
        """
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
def quiet_environment() -> Iterator[None]:
    """Set the environment for child processes: our scripts on the path, and no telemetry."""
    saved = dict(os.environ)
    os.environ.update(QUIET_ENVIRONMENT)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


def _create_environment(folder: Path, packages: Sequence[str]) -> str:
    """Create an environment on demand and return its interpreter.

    Raises: LeftOut if a package cannot be installed.
    """
    python, ready = folder / "bin/python", folder / "ready"
    if not ready.exists():
        print(f"installing {' '.join(packages)} into {folder}", file=sys.stderr)
        require_success([PYTHON, "-m", "venv", "--clear", str(folder)])
        require_success([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
        ready.touch()
    return str(python)


def require_success(command: Sequence[str]) -> None:
    """Run a command to the end.

    Raises: LeftOut with the last line of stderr if the command fails.
    """
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        lines = [line for line in completed.stderr.splitlines() if line.strip()]
        raise LeftOut(lines[-1] if lines else f"{command[0]} ended with {completed.returncode}")
