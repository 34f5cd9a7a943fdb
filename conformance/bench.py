"""Workbench of a check: organisations in a temporary folder, and the engine's command to run there."""

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

from conformance.answering import Answer, Call, ModelServer, make_reply
from conformance.reading import find_differences, load_state_files, require, require_equal

TICK_DONE_STATUSES = (0, 1, 5, 6)
TIMEOUT_S = 120.0
POLL_S = 0.0005


def answer_with_position(call: Call) -> dict[str, Any]:
    """Answer with a message of the agent's name and the tick."""
    return make_reply(f"{call.agent} {call.tick}")


class Org:
    """An organisation on disk with its model server and its engine processes."""

    def __init__(self, folder: Path, engine: list[str], answer: Answer) -> None:
        self.folder = folder
        self._engine, self._running = engine, list[subprocess.Popen[bytes]]()
        self.models = ModelServer(answer)
        folder.mkdir(parents=True, exist_ok=True)
        self.write_file("config/models.json", {"default": self.make_model_entry()})

    @property
    def calls(self) -> list[Call]:
        """All calls of the engine, in order of arrival."""
        return self.models.calls

    def make_model_entry(self, **keys: Any) -> dict[str, Any]:
        """Return an entry of `config/models.json` that calls this suite."""
        options = {"command": self.models.command, "effects": "none"}
        return {"provider": "cli", "prompt": "values", "options": options, "attempts": 1, **keys}

    def write_file(self, path: str, value: Any) -> Path:
        """Write a file: bytes unchanged, any other value as JSON."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(value if isinstance(value, bytes) else json.dumps(value, indent=2).encode() + b"\n")
        return file

    def add_agent(self, name: str, *authors: str, **resume: Any) -> None:
        """Write an agent with read access to the outboxes of `authors`."""
        permissions = {"read_outboxes": list(authors), **resume.pop("permissions", {})}
        resume_json = {"name": name, "instructions": "Go on.", "permissions": permissions, **resume}
        self.write_file(f"agents/{name}/resume.json", resume_json)

    def add_entry(self, author: str, tick: int, ident: str, text: str, **payload: Any) -> None:
        """Write an entry into an outbox by hand."""
        entry_json = {
            "id": ident, "tick": tick, "agent": author, "kind": "message",
            "payload": {"text": text, **payload}, "tags": [], "created_at": "2025-12-08T10:30:00Z",
        }  # fmt: skip
        self.write_file(f"agents/{author}/outbox/{tick:08}_{ident}.json", entry_json)

    def load_next_tick(self) -> int:
        """Return the number in `tick.json`, or 1 without the file."""
        file = self.folder / "tick.json"
        return int(json.loads(file.read_bytes())["current_tick"]) if file.exists() else 1

    def run_ticks(self, count: int = 1) -> list[Call]:
        """Run ticks to completion and return their calls."""
        earlier_count = len(self.calls)
        for _ in range(count):
            expected = self.load_next_tick() + 1
            status, output = self.run_engine()
            require(status in TICK_DONE_STATUSES, f"the engine ended with {status}: {output}")
            require_equal(self.load_next_tick(), expected, f"tick.json after the engine has ended with {status}")
        require(not self.models.problems, "; ".join(self.models.problems))
        return self.calls[earlier_count:]

    def require_refusal(self, case: str) -> None:
        """Run the engine and require a refusal: no tick, no state change, no model call."""
        old_files, calls = load_state_files(self.folder), len(self.calls)
        status, _ = self.run_engine()
        require(status not in TICK_DONE_STATUSES, f"{case}: the engine says that the tick is over ({status})")
        require(len(self.calls) == calls, f"{case}: a model was asked")
        changed = find_differences(load_state_files(self.folder), old_files)
        require(not changed, f"{case}: changed {', '.join(changed)}")

    def run_engine(self, kill_when: Callable[[], bool] | None = None) -> tuple[int, str]:
        """Run the engine's command and return status and output.

        The engine is killed once `kill_when` returns True.
        """
        deadline = time.monotonic() + TIMEOUT_S
        with tempfile.TemporaryFile() as output, self._start_engine(output) as engine:
            while engine.poll() is None:
                require(time.monotonic() < deadline, f"the engine has not ended after {TIMEOUT_S:g} s")
                if kill_when is not None and kill_when():
                    self.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    engine.wait(POLL_S if kill_when else TIMEOUT_S)
            output.seek(0)
            return engine.returncode, output.read().decode("utf-8", "replace").strip()[-500:]

    @contextlib.contextmanager
    def _start_engine(self, output: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
        """Start the engine's command, and kill a still running engine at the end of the block.

        The output goes to a file: with a pipe, the suite would wait for every surviving child process.
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
            _kill_process(engine)
            self._running.remove(engine)

    def kill(self) -> None:
        """Kill the running engine, as `kill -9` does, and wait for the end."""
        for engine in self._running:
            _kill_process(engine)

    def close(self) -> None:
        """Stop all processes and the model server."""
        self.kill()
        self.models.close()


def _kill_process(engine: subprocess.Popen[bytes]) -> None:
    if engine.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(engine.pid, signal.SIGKILL)
        engine.wait()


class Bench:
    """Workbench for a check: creates organisations and stops their processes at the end."""

    def __init__(self, folder: Path, engine: list[str], *, points: int) -> None:
        """Create a workbench; `points` limits the kills of each kind in a check."""
        self.points = points
        self._folder, self._engine = folder, engine
        self._orgs: list[Org] = []

    def make_org(self, answer: Answer = answer_with_position) -> Org:
        """Return a new organisation without agents."""
        org = Org(self._folder / f"org{len(self._orgs)}", self._engine, answer)
        self._orgs.append(org)
        return org

    def copy_org(self, org: Org, answer: Answer = answer_with_position) -> Org:
        """Return a copy of an organisation in another folder, without caches."""
        target = self.make_org(answer)
        own_models = (target.folder / "config/models.json").read_bytes()
        shutil.copytree(
            org.folder, target.folder, dirs_exist_ok=True, symlinks=True, ignore=shutil.ignore_patterns(".lemming")
        )
        target.write_file("config/models.json", own_models)
        return target

    def sample(self, count: int) -> list[int]:
        """Return up to `points` numbers between 1 and `count`, evenly spread."""
        count_of_points = min(count, self.points)
        return [1 + index * count // count_of_points for index in range(count_of_points)]

    def close(self) -> None:
        """Stop everything started by the check."""
        for org in self._orgs:
            org.close()
