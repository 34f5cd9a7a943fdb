"""Organisations to measure, and models with immediate answers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks.options import Options
from benchmarks.sides import Work
from lemming.engine import persist_tick, run_forever, ticks
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.messages import OutboxEntry, entry_id
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.messages import write_outbox_entry
from lemming.testing import make_org, resume, say

SENTENCE = "a sentence of an ordinary length, as one agent writes it to another"
MODELS = {"instant": {"provider": "instant"}, "quiet": {"provider": "quiet"}}
NEVER = {"run_every_n_ticks": 10**6, "phase_offset": 1}
# Enough for an inbox of 20 to be full, and for a hundred entries to be read while others are written.
WARM_TICKS = {"one": 21, "all": 3, "nobody": 3}


class InstantBackend(Backend):
    """A model with an immediate answer of a sentence, and another memory value in every tick."""

    keeps_deadline = True
    can_be_down = False
    answer = json.dumps(say(SENTENCE, memory_updates=[{"key": "state", "value": {"n": "TICK"}}]))

    def complete(self, request: Request) -> Reply:
        """Return an entry and a memory update."""
        return Reply(text=self.answer.replace('"TICK"', str(request.tick)))


class QuietBackend(Backend):
    """A model with empty replies."""

    keeps_deadline = True
    can_be_down = False

    def complete(self, request: Request) -> Reply:
        """Return a reply with the contract's four keys, all empty."""
        return Reply(text='{"outbox_entries": [], "tool_calls": [], "memory_updates": [], "notes": ""}')


def register_models() -> None:
    """Register the two models in this process."""
    register_provider("instant", InstantBackend)
    register_provider("quiet", QuietBackend)


def make_agent_names(size: int) -> list[str]:
    return [f"a{number:05d}" for number in range(size)]


def make_benchmark_org(
    base: Path,
    size: int,
    reading: str,
    *,
    schedule: dict[str, Any] | None = None,
    entries: int = 0,
    model: str = "instant",
    org: dict[str, Any] | None = None,
) -> Path:
    """Make an organisation of agents that read "one" neighbour, "all" or "nobody".

    `entries`: number of existing entries in every outbox, an entry for each tick before the first tick to
    run.
    """
    settings = {"inbox_limit": 20, **(org or {})}
    make_org(base, models=MODELS, org=settings)
    write_resumes(base, size, reading, schedule, model)
    for name in make_agent_names(size):
        for tick in range(1, entries + 1):
            write_outbox_entry(base, name, _make_entry(name, tick))
    if entries:
        persist_tick(base, entries + 1)
    return base


def write_resumes(
    base: Path, size: int, reading: str, schedule: dict[str, Any] | None = None, model: str = "instant"
) -> None:
    """Write the resumes of all agents over any existing resumes."""
    names = make_agent_names(size)
    for number, name in enumerate(names):
        authors = {"one": [names[number - 1]], "all": ["*"], "nobody": []}[reading]
        resume_json = resume(
            name,
            model={"key": model},
            permissions={"read_outboxes": authors, "tools": []},
            **({"schedule": schedule} if schedule else {}),
        )
        fs.write_atomic(base, f"agents/{name}/resume.json", dump_pretty(resume_json))


def remove_models(base: Path) -> Path:
    """Remove the two models from the settings, because a command does not know them and would load plugins."""
    models = json.loads((base / "config/models.json").read_bytes())
    other_models = {key: entry for key, entry in models.items() if key not in MODELS}
    fs.write_atomic(base, "config/models.json", dump_pretty(other_models))
    return base


def running(base: Path, count: int, warm: int = max(WARM_TICKS.values())) -> Work:
    """Return work that runs `count` ticks under a held lock, as `run-forever` does."""
    register_models()
    reports = ticks(base, interval_s=0)
    for _ in range(warm):
        next(reports)

    def work() -> None:
        for _ in range(count):
            report = next(reports)
            assert all(turn.status != "failed" for turn in report.turns), report.turns[0].reason

    return work


def make_aged_org(options: Options, size: int, age: int) -> Path:
    """Make an organisation after `age` ticks with a turn each; from then on every agent is due in each tick.

    The organisation is run once and copied for every subject.
    """
    original = options.shared_folder / f"aged-{size}-{age}"
    if not original.exists():
        register_models()
        make_benchmark_org(original, size, "one", org={"durability": "off"})
        for number, name in enumerate(make_agent_names(size)):
            _set_schedule(original, name, {"run_every_n_ticks": size, "phase_offset": number})
        run_forever(original, interval_s=0, max_ticks=age)
        write_resumes(original, size, "one")
    return Path(shutil.copytree(original, options.folder / original.name))


def _set_schedule(base: Path, name: str, schedule: dict[str, Any]) -> None:
    file = f"agents/{name}/resume.json"
    resume_json = json.loads((base / file).read_bytes())
    fs.write_atomic(base, file, dump_pretty({**resume_json, "schedule": schedule}))


def _make_entry(name: str, tick: int) -> OutboxEntry:
    identity = entry_id(tick, name, 0)
    return OutboxEntry(identity, tick, name, "message", {"text": SENTENCE}, [], "2025-12-08T10:30:00.000Z")
