"""The organisations that are measured, and the model that answers them without waiting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.sides import Work
from lemming import fs
from lemming.engine import persist_tick, ticks
from lemming.jsontext import pretty
from lemming.messages import OutboxEntry, entry_id, write_outbox_entry
from lemming.providers import Backend, Reply, Request, register_provider
from lemming.testing import make_org, resume, say

SENTENCE = "a sentence of an ordinary length, as one agent writes it to another"
MODEL = {"prompt-and-reply": {"provider": "instant"}}
NEVER = {"run_every_n_ticks": 10**6, "phase_offset": 1}
WARM_TICKS = 7  # enough to read a hundred entries, 20 at a time, and what is written meanwhile


class Instant(Backend):
    """A model that says one sentence and remembers another number in every tick, at once."""

    keeps_deadline = True
    can_be_down = False

    def complete(self, request: Request) -> Reply:
        """Return one entry and one memory."""
        memory = [{"key": "state", "value": {"n": request.tick}}]
        return Reply(text=json.dumps(say(SENTENCE, memory_updates=memory)))


def agent_names(size: int) -> list[str]:
    return [f"a{number:05d}" for number in range(size)]


def make(
    base: Path,
    size: int,
    reading: str,
    *,
    schedule: dict[str, Any] | None = None,
    entries: int = 0,
    org: dict[str, Any] | None = None,
) -> Path:
    """Make an organisation whose agents read "one" neighbour, "all" or "nobody".

    `entries`: how many are in every outbox already, one for each tick before the first that will run.
    """
    settings = {"inbox_limit": 20, **(org or {})}
    make_org(base, models=MODEL, org=settings)
    write_resumes(base, size, reading, schedule)
    for name in agent_names(size):
        for tick in range(1, entries + 1):
            write_outbox_entry(base, name, _entry(name, tick))
    if entries:
        persist_tick(base, entries + 1)
    return base


def write_resumes(base: Path, size: int, reading: str, schedule: dict[str, Any] | None = None) -> None:
    """Write the resumes of all agents, over those that are there."""
    names = agent_names(size)
    for number, name in enumerate(names):
        readable = {"one": [names[number - 1]], "all": ["*"], "nobody": []}[reading]
        plain = resume(
            name,
            model={"key": "prompt-and-reply"},
            permissions={"read_outboxes": readable, "tools": []},
            **({"schedule": schedule} if schedule else {}),
        )
        fs.publish(base, f"agents/{name}/resume.json", pretty(plain))


def running(base: Path, count: int) -> Work:
    """Return the work of `count` ticks of an engine that holds the organisation, as `run-forever` does."""
    register_provider("instant", Instant)
    reports = ticks(base, interval_s=0)
    for _ in range(WARM_TICKS):
        next(reports)

    def work() -> None:
        for _ in range(count):
            report = next(reports)
            assert all(turn.status != "failed" for turn in report.turns), report.turns[0].reason

    return work


def _entry(name: str, tick: int) -> OutboxEntry:
    identity = entry_id(tick, name, 0)
    return OutboxEntry(identity, tick, name, "message", {"text": SENTENCE}, [], "2025-12-08T10:30:00.000Z")


def aged(place: Path, size: int, count: int, *, org: dict[str, Any] | None = None) -> Path:
    """Make an organisation that has run `count` ticks, one agent in each, and from now on all in each."""
    register_provider("instant", Instant)
    base = make(place / f"aged-{size}-{count}", size, "one", org={**(org or {}), "durability": "off"})
    for number, name in enumerate(agent_names(size)):
        file = base / f"agents/{name}/resume.json"
        plain = json.loads(file.read_bytes())
        plain["schedule"] = {"run_every_n_ticks": size, "phase_offset": number}
        file.write_bytes(pretty(plain))
    for _ in ticks(base, interval_s=0, max_ticks=count):
        pass
    write_resumes(base, size, "one")
    return base
