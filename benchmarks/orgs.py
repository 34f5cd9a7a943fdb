"""The organisations that are measured, and the model that answers them without waiting."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks.options import Options
from benchmarks.sides import Work
from lemming.engine import persist_tick, run_forever, ticks
from lemming.kernel.base.jsontext import pretty
from lemming.kernel.files import fs
from lemming.kernel.messages import OutboxEntry, entry_id, write_outbox_entry
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.testing import make_org, resume, say

SENTENCE = "a sentence of an ordinary length, as one agent writes it to another"
MODELS = {"instant": {"provider": "instant"}, "quiet": {"provider": "quiet"}}
NEVER = {"run_every_n_ticks": 10**6, "phase_offset": 1}
# Enough for an inbox of 20 to be full, and for a hundred entries to be read while others are written.
WARM_TICKS = {"one": 21, "all": 3, "nobody": 3}


class Instant(Backend):
    """A model that says one sentence and remembers another number in every tick, at once."""

    keeps_deadline = True
    can_be_down = False
    answer = json.dumps(say(SENTENCE, memory_updates=[{"key": "state", "value": {"n": "TICK"}}]))

    def complete(self, request: Request) -> Reply:
        """Return one entry and one memory."""
        return Reply(text=self.answer.replace('"TICK"', str(request.tick)))


class Quiet(Backend):
    """A model that has nothing to say."""

    keeps_deadline = True
    can_be_down = False

    def complete(self, request: Request) -> Reply:
        """Return the contract's four keys, empty."""
        return Reply(text='{"outbox_entries": [], "tool_calls": [], "memory_updates": [], "notes": ""}')


def register_models() -> None:
    """Make the two models available to this process."""
    register_provider("instant", Instant)
    register_provider("quiet", Quiet)


def agent_names(size: int) -> list[str]:
    return [f"a{number:05d}" for number in range(size)]


def make(
    base: Path,
    size: int,
    reading: str,
    *,
    schedule: dict[str, Any] | None = None,
    entries: int = 0,
    model: str = "instant",
    org: dict[str, Any] | None = None,
) -> Path:
    """Make an organisation whose agents read "one" neighbour, "all" or "nobody".

    `entries`: how many are in every outbox already, one for each tick before the first that will run.
    """
    settings = {"inbox_limit": 20, **(org or {})}
    make_org(base, models=MODELS, org=settings)
    write_resumes(base, size, reading, schedule, model)
    for name in agent_names(size):
        for tick in range(1, entries + 1):
            write_outbox_entry(base, name, _entry(name, tick))
    if entries:
        persist_tick(base, entries + 1)
    return base


def write_resumes(
    base: Path, size: int, reading: str, schedule: dict[str, Any] | None = None, model: str = "instant"
) -> None:
    """Write the resumes of all agents, over those that are there."""
    names = agent_names(size)
    for number, name in enumerate(names):
        readable = {"one": [names[number - 1]], "all": ["*"], "nobody": []}[reading]
        plain = resume(
            name,
            model={"key": model},
            permissions={"read_outboxes": readable, "tools": []},
            **({"schedule": schedule} if schedule else {}),
        )
        fs.publish(base, f"agents/{name}/resume.json", pretty(plain))


def forget_models(base: Path) -> Path:
    """Take the two models out of the settings: a command does not know them, and would look for plugins."""
    models = json.loads((base / "config/models.json").read_bytes())
    kept = {key: entry for key, entry in models.items() if key not in MODELS}
    fs.publish(base, "config/models.json", pretty(kept))
    return base


def running(base: Path, count: int, warm: int = max(WARM_TICKS.values())) -> Work:
    """Return the work of `count` ticks of an engine that holds the organisation, as `run-forever` does."""
    register_models()
    reports = ticks(base, interval_s=0)
    for _ in range(warm):
        next(reports)

    def work() -> None:
        for _ in range(count):
            report = next(reports)
            assert all(turn.status != "failed" for turn in report.turns), report.turns[0].reason

    return work


def aged(options: Options, size: int, age: int) -> Path:
    """Return an organisation that has run `age` ticks, one agent in each, and from now on all in each.

    It is run once and copied for every subject.
    """
    original = options.shelf / f"aged-{size}-{age}"
    if not original.exists():
        register_models()
        make(original, size, "one", org={"durability": "off"})
        for number, name in enumerate(agent_names(size)):
            _reschedule(original, name, {"run_every_n_ticks": size, "phase_offset": number})
        run_forever(original, interval_s=0, max_ticks=age)
        write_resumes(original, size, "one")
    return Path(shutil.copytree(original, options.place / original.name))


def _reschedule(base: Path, name: str, schedule: dict[str, Any]) -> None:
    file = f"agents/{name}/resume.json"
    plain = json.loads((base / file).read_bytes())
    fs.publish(base, file, pretty({**plain, "schedule": schedule}))


def _entry(name: str, tick: int) -> OutboxEntry:
    identity = entry_id(tick, name, 0)
    return OutboxEntry(identity, tick, name, "message", {"text": SENTENCE}, [], "2025-12-08T10:30:00.000Z")
