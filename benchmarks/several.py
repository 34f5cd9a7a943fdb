"""Organisations that are each other's channels, killed at random moments: nothing is lost, nothing doubled.

    python -m benchmarks.several FOLDER --messages 40 --hops 6 --kills 12

Four run on this machine, each in a process and with a clock of its own. In each an agent stands for every
other one, and what is addressed to it goes there by HTTP, signed. Messages go from one to the next; meanwhile
one of the processes is killed (`kill -9`), and started again, as often as asked.
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

from benchmarks.processes import environment, lemming
from lemming.testing import make_org, resume

NAMES = ("north", "east", "south", "west")
REPOSITORY = Path(__file__).parent.parent
LIMIT_S = 600


@dataclass
class Engine:
    """The process that runs one of the organisations; `close` ends it."""

    base: Path
    port: int
    hops: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again."""
        others = " ".join(name for name in NAMES if name != self.base.name)
        more = {
            "OTHERS": others,
            "HOPS": str(self.hops),
            "DOOR": "a secret of them all",
            "PYTHONPATH": str(REPOSITORY),
        }
        words = ("run-forever", "--interval", "0.5", "--wake-on-change", "--serve", str(self.port), "-q")
        with (self.base.parent / f"{self.base.name}.errors").open("ab") as errors:
            self.process = subprocess.Popen(
                lemming(self.base, *words), env={**environment(), **more}, stdout=errors, stderr=errors
            )

    def kill(self) -> None:
        """End it at once."""
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def make(base: Path, ports: dict[str, int], messages: int) -> None:
    """Make an organisation with a desk, and an agent for each of the others."""
    channels = {name: port for name, port in ports.items() if name != base.name}
    options = {
        "to": "desk",
        "kind": "message",
        "secret_env": "DOOR",
        "deliver_secret_env": "DOOR",
        "per_sender_an_hour": 10**6,
    }
    models = {
        name: {
            "provider": "http",
            "options": {**options, "deliver_to": f"http://127.0.0.1:{port}/hooks/{base.name}"},
        }
        for name, port in channels.items()
    }
    desk = resume(
        "desk", model={"key": "passing"}, schedule={"wake": "addressed"},
        permissions={"read_outboxes": [*channels, "human"], "tools": []},
    )  # fmt: skip
    reads = {"read_outboxes": ["desk"], "tools": []}
    doors = [resume(name, model={"key": name}, permissions=reads) for name in channels]
    human = resume("human", model={"key": "human"})
    models |= {"passing": {"provider": "passing"}, "human": {"provider": "human"}}
    make_org(
        base, desk, human, *doors, models=models, org={"plugins": ["benchmarks.passing"], "inbox_limit": 200}
    )
    mine = list(NAMES).index(base.name)
    _lemming(base, "trust", "--yes")
    for number in range(mine, messages, len(NAMES)):
        _lemming(base, "send", f"{number} 0", "--to", "desk")


def messages_in(base: Path, author: str) -> Iterator[str]:
    """Yield the messages in an outbox."""
    for file in base.glob(f"agents/{author}/outbox/*.json"):
        yield json.loads(file.read_bytes())["payload"]["text"]


def arrived(bases: list[Path]) -> Counter[str]:
    """Return how often each message has arrived at an organisation from another one."""
    return Counter(text for base in bases for name in NAMES for text in messages_in(base, name))


def sent(bases: list[Path]) -> Counter[str]:
    """Return how often each message was written for another organisation."""
    return Counter(text for base in bases for text in messages_in(base, "desk"))


@contextmanager
def running(engines: list[Engine]) -> Iterator[None]:
    """Have all of them run."""
    with ExitStack() as stack:
        for engine in engines:
            engine.start()
            stack.callback(engine.kill)
        yield


def main(arguments: list[str] | None = None) -> int:
    """Run, kill, count; return 1 where a message is lost or was doubled."""
    wanted = _parser().parse_args(arguments)
    shutil.rmtree(wanted.folder, ignore_errors=True)
    wanted.folder.mkdir(parents=True)
    bases = [(wanted.folder / name).absolute() for name in NAMES]
    ports = {name: _free_port() for name in NAMES}
    for base in bases:
        make(base, ports, wanted.messages)
    engines = [Engine(base, ports[base.name], wanted.hops) for base in bases]
    chance, kills, began = random.Random(wanted.seed), 0, time.monotonic()
    expected = {f"{number} {hop}" for number in range(wanted.messages) for hop in range(1, wanted.hops + 1)}
    with running(engines):
        while time.monotonic() - began < LIMIT_S:
            time.sleep(chance.uniform(0.5, 3))
            if kills < wanted.kills:
                engine = chance.choice(engines)
                engine.kill()
                engine.start()
                kills += 1
            elif expected <= arrived(bases).keys():
                break
    found, written = arrived(bases), sent(bases)
    lost, doubled = (
        expected - found.keys(),
        [it for each in (found, written) for it, count in each.items() if count > 1],
    )
    print(
        f"{len(NAMES)} organisations, {len(expected)} messages from one to another, {kills} kills: "
        f"{len(lost)} lost, {len(doubled)} doubled, {time.monotonic() - began:.0f} s"
    )
    return int(bool(lost or doubled))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.several", description=__doc__)
    parser.add_argument("folder", type=Path, help="is made anew")
    parser.add_argument("--messages", type=int, default=40)
    parser.add_argument("--hops", type=int, default=6, help="how often each goes from one to another")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def _lemming(base: Path, *words: str) -> None:
    more: dict[str, Any] = {
        "env": {**os.environ, "PYTHONPATH": str(REPOSITORY)},
        "stdout": subprocess.DEVNULL,
    }
    subprocess.run(lemming(base, *words), check=True, **more)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
