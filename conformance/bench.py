"""Where a check works: organisations in a temporary folder, and the engine's command run in them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from conformance.answering import Answer, Answering, Call, say
from conformance.reading import differences, files_of, require, same

TICK_IS_OVER = (0, 1, 5, 6)
LONGEST_S = 120.0
LOOK_EVERY_S = 0.0005


def silent(call: Call) -> dict[str, Any]:
    """Answer with one message that says whose it is and when."""
    return say(f"{call.agent} {call.tick}")


class Org:
    """One organisation on the disk, the models that answer for it, and the engine that is run in it."""

    def __init__(self, folder: Path, engine: list[str], answer: Answer) -> None:
        self.folder = folder
        self._engine, self._running = engine, list[subprocess.Popen[bytes]]()
        self.models = Answering(answer)
        folder.mkdir(parents=True, exist_ok=True)
        self.write("config/models.json", {"default": self.model()})

    @property
    def calls(self) -> list[Call]:
        """All calls that the engine has made, in the order in which they came."""
        return self.models.calls

    def model(self, **keys: Any) -> dict[str, Any]:
        """Return a line of `config/models.json` with which an engine asks this suite."""
        options = {"command": self.models.command}
        return {"provider": "cli", "prompt": "values", "options": options, "attempts": 1, **keys}

    def write(self, path: str, value: Any) -> Path:
        """Write a file as JSON, or as it is if it is bytes."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(value if isinstance(value, bytes) else json.dumps(value, indent=2).encode() + b"\n")
        return file

    def agent(self, name: str, *reads: str, **resume: Any) -> None:
        """Write an agent that may read the outboxes of `reads`."""
        permissions = {"read_outboxes": list(reads), **resume.pop("permissions", {})}
        plain = {"name": name, "instructions": "Go on.", "permissions": permissions, **resume}
        self.write(f"agents/{name}/resume.json", plain)

    def entry(self, author: str, tick: int, ident: str, text: str, **payload: Any) -> None:
        """Put an entry into an outbox by hand."""
        plain = {
            "id": ident, "tick": tick, "agent": author, "kind": "message",
            "payload": {"text": text, **payload}, "tags": [], "created_at": "2025-12-08T10:30:00Z",
        }  # fmt: skip
        self.write(f"agents/{author}/outbox/{tick:08}_{ident}.json", plain)

    def next_tick(self) -> int:
        """Return what `tick.json` holds; 1 where there is none."""
        file = self.folder / "tick.json"
        return int(json.loads(file.read_bytes())["current_tick"]) if file.exists() else 1

    def tick(self, count: int = 1) -> list[Call]:
        """Run ticks, each to its end; return the calls that they made."""
        before = len(self.calls)
        for _ in range(count):
            expected = self.next_tick() + 1
            status, said = self.run()
            require(status in TICK_IS_OVER, f"the engine ended with {status}: {said}")
            same(self.next_tick(), expected, f"tick.json after the engine has ended with {status}")
        require(not self.models.problems, "; ".join(self.models.problems))
        return self.calls[before:]

    def refused(self, what: str) -> None:
        """Run the engine, which must not run a tick: it changes no state and asks nobody."""
        before, calls = files_of(self.folder), len(self.calls)
        status, _ = self.run()
        require(status not in TICK_IS_OVER, f"{what}: the engine says that the tick is over ({status})")
        require(len(self.calls) == calls, f"{what}: a model was asked")
        changed = differences(files_of(self.folder), before)
        require(not changed, f"{what}: changed {', '.join(changed)}")

    def run(self, kill_when: Callable[[], bool] | None = None) -> tuple[int, str]:
        """Run the engine's command; return its status and what it said. Killed as soon as `kill_when`."""
        until = time.monotonic() + LONGEST_S
        with tempfile.TemporaryFile() as output, self._started(output) as engine:
            while engine.poll() is None:
                require(time.monotonic() < until, f"the engine has not ended after {LONGEST_S:g} s")
                if kill_when is not None and kill_when():
                    self.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    engine.wait(LOOK_EVERY_S if kill_when else LONGEST_S)
            output.seek(0)
            return engine.returncode, output.read().decode("utf-8", "replace").strip()[-500:]

    @contextlib.contextmanager
    def _started(self, output: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
        """Start the engine's command; at the end of the block it is killed if it still runs.

        It writes to a file: with a pipe, whatever outlives it would be waited for.
        """
        engine = subprocess.Popen(
            self._engine,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._running.append(engine)
        try:
            yield engine
        finally:
            _kill(engine)
            self._running.remove(engine)

    def kill(self) -> None:
        """Kill the engine under way, as `kill -9` does; it has ended when this returns."""
        for engine in self._running:
            _kill(engine)

    def close(self) -> None:
        """End what was started."""
        self.kill()
        self.models.close()


def _kill(engine: subprocess.Popen[bytes]) -> None:
    if engine.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(engine.pid, signal.SIGKILL)
        engine.wait()


class Bench:
    """What a check is given: organisations as it needs them, all gone when it is over."""

    def __init__(self, folder: Path, engine: list[str], *, points: int) -> None:
        """`points` is how many kills of a kind a check does at most."""
        self.points = points
        self._folder, self._engine = folder, engine
        self._orgs: list[Org] = []

    def org(self, answer: Answer = silent) -> Org:
        """Return a new organisation that has no agents yet."""
        org = Org(self._folder / f"org{len(self._orgs)}", self._engine, answer)
        self._orgs.append(org)
        return org

    def copy(self, org: Org, answer: Answer = silent) -> Org:
        """Return a copy of an organisation's files, at another place, without what is throw-away."""
        new = self.org(answer)
        ours = (new.folder / "config/models.json").read_bytes()
        shutil.copytree(
            org.folder,
            new.folder,
            dirs_exist_ok=True,
            symlinks=True,
            ignore=shutil.ignore_patterns(".lemming"),
        )
        new.write("config/models.json", ours)
        return new

    def sample(self, count: int) -> list[int]:
        """Return up to `points` of the numbers from 1 to `count`, spread over them."""
        wanted = min(count, self.points)
        return [1 + index * count // wanted for index in range(wanted)]

    def close(self) -> None:
        """End everything that was started."""
        for org in self._orgs:
            org.close()
