"""What commands cost in an organisation that has run for long: 1,000 agents, 10,000 ticks, 100,000 entries.

It is made by running it, which takes two minutes and a gigabyte, so it is measured on purpose only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import NEVER, SENTENCE, agent_names, forget_models, make, write_resumes
from benchmarks.processes import PYTHON, YARDSTICK, lemming, run
from benchmarks.targets import AT_ONCE, CHECKING
from lemming.engine import run_forever
from lemming.facts.views.dispatch import VIEWS
from lemming.kernel.base.jsontext import pretty
from lemming.kernel.files import fs
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.testing import say

ENTRIES_A_TURN = 10
LONG = ("validate --all", "verify --all", "replay {middle}")
READERS = {"prompt a00000": ", who reads all", "prompt a00001": ", who reads one"}
ONE_A_TICK = {"run_every_n_ticks": 1}


class Talkative(Backend):
    """A model that says ten sentences and remembers another number in every tick, at once."""

    keeps_deadline = True
    can_be_down = False

    def complete(self, request: Request) -> Reply:
        """Return ten entries and one memory."""
        said = say(SENTENCE, memory_updates=[{"key": "state", "value": {"n": request.tick}}])
        return Reply(text=json.dumps({**said, "outbox_entries": said["outbox_entries"] * ENTRIES_A_TURN}))


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the CPU time of whole commands in an organisation of so many agents and ticks."""
    agents, age = max(options.agents), max(options.ages)
    base = old(options.place / "old", agents, age)
    about = f"{agents:,} agents, {age:,} ticks"
    newest = sorted((base / "agents/a00000/outbox").iterdir())[-1]
    named = {
        "middle": age // 2,
        "entry": json.loads(newest.read_bytes())["id"],
        "resume": "agents/a00001/resume.json",
        "entry_file": newest.relative_to(base).as_posix(),
    }
    for words in AT_ONCE:  # some keep what they find: as where somebody has looked before
        run(lemming(base, *words.format(**named).split()), any_status=True)
    for words in (*AT_ONCE, *CHECKING, *LONG):
        case = f"{about}: {words.format(**named)}{READERS.get(words, '')}"
        target = f"at once: {words}" if words in (*AT_ONCE, *CHECKING) else ""
        yield _timed(base, words.format(**named), case, options.rounds, target)
    for name in VIEWS:
        yield _viewed(base, name, f"{about}: the page's {name}", named["entry_file"], options.rounds)
    write_resumes(base, agents, "one", NEVER, "scripted")
    yield _timed(base, "run-once", f"{about}: run-once, nobody is due", options.rounds)
    _change(base, "a00001", schedule=ONE_A_TICK)
    yield _timed(base, "run-once", f"{about}: run-once, one turn", options.rounds)
    for name in agent_names(agents)[2:11]:
        _change(base, name, schedule=ONE_A_TICK)
    case = f"{about}: run-once, ten turns"
    yield _timed(base, "run-once", case, options.rounds, "at once: run-once")


def _viewed(base: Path, name: str, case: str, entry: str, rounds: int) -> Measurement:
    """Return the CPU time of a process that shows one view of the page, beside that of the yardstick."""
    parameters = {"agent": {"name": "a00001"}, "why": {"target": entry}}.get(name, {})
    shown = f"view(Path({str(base)!r}), {name!r}, {parameters!r})"
    code = f"from pathlib import Path; from lemming.facts.views.dispatch import view; {shown}"
    floors, times = [], []
    for _ in range(rounds):
        floors.append(run(YARDSTICK).cpu_s)
        times.append(run((PYTHON, "-c", code)).cpu_s)
    return Measurement.paired(
        times, floors, scale=1e3, unit="ms", case=case, figure="CPU", floor_is="import typer, pydantic"
    )


def _timed(base: Path, words: str, case: str, rounds: int, target: str = "") -> Measurement:
    """Return the CPU time of a command, beside that of the yardstick."""
    command, floors, times = lemming(base, *words.split()), [], []
    for _ in range(rounds):
        floors.append(run(YARDSTICK).cpu_s)
        times.append(run(command, any_status=words == "history").cpu_s)
    return Measurement.paired(
        times, floors, scale=1e3, unit="ms", case=case, figure="CPU", floor_is="import typer, pydantic",
        target=target,
    )  # fmt: skip


def old(base: Path, size: int, age: int) -> Path:
    """Return an organisation that has run `age` ticks, one agent in each; the first agent reads all."""
    register_provider("instant", Talkative)
    make(base, size, "one", org={"durability": "off", "retention_ticks": 0})
    for number, name in enumerate(agent_names(size)):
        _change(base, name, schedule={"run_every_n_ticks": size, "phase_offset": -number})
    run_forever(base, interval_s=0, max_ticks=age)
    write_resumes(base, size, "one", model="scripted")
    _change(base, agent_names(size)[0], permissions={"read_outboxes": ["*"], "tools": []})
    return forget_models(base)


def _change(base: Path, name: str, **values: object) -> None:
    file = f"agents/{name}/resume.json"
    fs.publish(base, file, pretty({**json.loads((base / file).read_bytes()), **values}))
