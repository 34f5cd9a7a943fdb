"""Test of organisations connected by channels under random kills: no message lost, no message doubled.

    python -m benchmarks.several FOLDER --messages 40 --hops 6 --kills 12

Four organisations run on this machine, each in a process with a separate clock. Each has an agent for every
other organisation, and entries to such an agent go to the organisation by signed HTTP. Messages travel from
organisation to organisation, while processes are killed (`kill -9`) and restarted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import child_environment, lemming_command
from lemming.testing import make_org, resume

NAMES = ("north", "east", "south", "west")
REPOSITORY = Path(__file__).parent.parent
LIMIT_S = 600


@dataclass
class EngineProcess:
    """Process of an organisation's engine; `kill` ends the process."""

    base: Path
    port: int
    hops: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start or restart the process."""
        neighbours = " ".join(name for name in NAMES if name != self.base.name)
        variables = {
            "OTHERS": neighbours,
            "HOPS": str(self.hops),
            "DOOR": "a secret of them all",
            "PYTHONPATH": str(REPOSITORY),
        }
        arguments = ("run-forever", "--interval", "0.5", "--wake-on-change", "--serve", str(self.port), "-q")
        with (self.base.parent / f"{self.base.name}.errors").open("ab") as errors:
            self.process = subprocess.Popen(
                lemming_command(self.base, *arguments),
                env={**child_environment(), **variables},
                stdout=errors,
                stderr=errors,
            )

    def kill(self) -> None:
        """Kill the process."""
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def make_connected_org(base: Path, ports: dict[str, int], messages: int) -> None:
    """Make an organisation with a desk and an agent for each of the other organisations."""
    channels = {name: port for name, port in ports.items() if name != base.name}
    options = {
        "to": "desk",
        "kind": "message",
        "secret_env": "DOOR",
        "deliver_secret_env": "DOOR",
        "per_sender_an_hour": 10**6,
    }
    models = {
        name: {"provider": "http", "options": {**options, "deliver_to": f"http://127.0.0.1:{port}/hooks/{base.name}"}}
        for name, port in channels.items()
    }
    desk = resume(
        "desk", model={"key": "passing"}, schedule={"wake": "addressed"},
        permissions={"read_outboxes": [*channels, "human"], "tools": []},
    )  # fmt: skip
    permissions = {"read_outboxes": ["desk"], "tools": []}
    channel_agents = [resume(name, model={"key": name}, permissions=permissions) for name in channels]
    human = resume("human", model={"key": "human"})
    models |= {"passing": {"provider": "passing"}, "human": {"provider": "human"}}
    make_org(
        base, desk, human, *channel_agents, models=models, org={"plugins": ["benchmarks.passing"], "inbox_limit": 200}
    )
    first_number = list(NAMES).index(base.name)
    _run_lemming(base, "trust", "--yes")
    for number in range(first_number, messages, len(NAMES)):
        _run_lemming(base, "send", f"{number} 0", "--to", "desk")


def iter_messages(base: Path, author: str) -> Iterator[str]:
    """Yield the messages in an outbox."""
    for file in base.glob(f"agents/{author}/outbox/*.json"):
        yield json.loads(file.read_bytes())["payload"]["text"]


def count_arrivals(bases: list[Path]) -> Counter[str]:
    """Return the number of arrivals of each message from another organisation."""
    return Counter(text for base in bases for name in NAMES for text in iter_messages(base, name))


def count_sends(bases: list[Path]) -> Counter[str]:
    """Return the number of entries of each message for another organisation."""
    return Counter(text for base in bases for text in iter_messages(base, "desk"))


@contextmanager
def run_engines(engines: list[EngineProcess]) -> Iterator[None]:
    """Run all engines for the length of the block."""
    with ExitStack() as stack:
        for engine in engines:
            engine.start()
            stack.callback(engine.kill)
        yield


def main(arguments: list[str] | None = None) -> int:
    """Run, kill, count. Return 1 for a lost or doubled message."""
    options = _make_parser().parse_args(arguments)
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    bases = [(options.folder / name).absolute() for name in NAMES]
    ports = {name: _find_free_port() for name in NAMES}
    for base in bases:
        make_connected_org(base, ports, options.messages)
    engines = [EngineProcess(base, ports[base.name], options.hops) for base in bases]
    rng, kills, start_time = random.Random(options.seed), 0, time.monotonic()
    expected = {f"{number} {hop}" for number in range(options.messages) for hop in range(1, options.hops + 1)}
    with run_engines(engines):
        while time.monotonic() - start_time < LIMIT_S:
            time.sleep(rng.uniform(0.5, 3))
            if kills < options.kills:
                engine = rng.choice(engines)
                engine.kill()
                engine.start()
                kills += 1
            elif expected <= count_arrivals(bases).keys():
                break
    arrivals, sends = count_arrivals(bases), count_sends(bases)
    missing, doubled = (
        expected - arrivals.keys(),
        [message for counts in (arrivals, sends) for message, count in counts.items() if count > 1],
    )
    print(
        f"{len(NAMES)} organisations, {len(expected)} messages from one to another, {kills} kills: "
        f"{len(missing)} lost, {len(doubled)} doubled, {time.monotonic() - start_time:.0f} s"
    )
    return int(bool(missing or doubled))


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.several", description=__doc__)
    parser.add_argument("folder", type=Path, help="is made anew")
    parser.add_argument("--messages", type=int, default=40)
    parser.add_argument("--hops", type=int, default=6, help="how often each goes from one to another")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def _run_lemming(base: Path, *command: str) -> None:
    options: dict[str, Any] = {"env": {**os.environ, "PYTHONPATH": str(REPOSITORY)}, "stdout": subprocess.DEVNULL}
    subprocess.run(lemming_command(base, *command), check=True, **options)


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
