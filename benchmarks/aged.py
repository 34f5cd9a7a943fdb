"""Cost of commands in an old organisation: 1,000 agents, 10,000 ticks, 100,000 entries.

The organisation is created by running, which takes two minutes and a gigabyte, so this subject runs on
request only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import NEVER, SENTENCE, make_agent_names, make_benchmark_org, remove_models, write_resumes
from benchmarks.processes import PYTHON, YARDSTICK, lemming_command, run_measured
from benchmarks.targets import CHECK_COMMANDS, FAST_COMMANDS
from lemming.engine import run_forever
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.queries.views.view_registry import VIEWS
from lemming.testing import say

ENTRIES_PER_TURN = 10
SLOW_COMMANDS = ("validate --all", "verify --all", "replay {middle}")
CASE_SUFFIXES = {"prompt a00000": ", who reads all", "prompt a00001": ", who reads one"}
EVERY_TICK = {"run_every_n_ticks": 1}


class TalkativeBackend(Backend):
    """A model with an immediate answer of ten sentences, and another memory value in every tick."""

    keeps_deadline = True
    can_be_down = False

    def complete(self, request: Request) -> Reply:
        """Return ten entries and a memory update."""
        reply = say(SENTENCE, memory_updates=[{"key": "state", "value": {"n": request.tick}}])
        entries = [say(f"{number}. {SENTENCE}")["outbox_entries"][0] for number in range(ENTRIES_PER_TURN)]
        return Reply(text=json.dumps({**reply, "outbox_entries": entries}))


def measure(options: Options) -> Iterator[Measurement]:
    """Yield the CPU time of whole commands in an organisation with the requested agents and ticks."""
    agents, age = max(options.agents), max(options.ages)
    base = make_old_org(options.folder / "old", agents, age)
    description = f"{agents:,} agents, {age:,} ticks"
    newest = sorted((base / "agents/a00000/outbox").iterdir())[-1]
    placeholders = {
        "middle": age // 2,
        "entry": json.loads(newest.read_bytes())["id"],
        "resume": "agents/a00001/resume.json",
        "entry_file": newest.relative_to(base).as_posix(),
    }
    for command in FAST_COMMANDS:  # some keep what they find: as where somebody has looked before
        run_measured(lemming_command(base, *command.format(**placeholders).split()), any_status=True)
    for command in (*FAST_COMMANDS, *CHECK_COMMANDS, *SLOW_COMMANDS):
        case = f"{description}: {command.format(**placeholders)}{CASE_SUFFIXES.get(command, '')}"
        target = f"at once: {command}" if command in (*FAST_COMMANDS, *CHECK_COMMANDS) else ""
        yield _measure_command(base, command.format(**placeholders), case, options.rounds, target)
    for name in VIEWS:
        yield _measure_view(base, name, f"{description}: the page's {name}", placeholders["entry_file"], options.rounds)
    write_resumes(base, agents, "one", NEVER, "scripted")
    yield _measure_command(base, "run-once", f"{description}: run-once, nobody is due", options.rounds)
    _update_resume(base, "a00001", schedule=EVERY_TICK)
    yield _measure_command(base, "run-once", f"{description}: run-once, one turn", options.rounds)
    for name in make_agent_names(agents)[2:11]:
        _update_resume(base, name, schedule=EVERY_TICK)
    case = f"{description}: run-once, ten turns"
    yield _measure_command(base, "run-once", case, options.rounds, "at once: run-once")


def _measure_view(base: Path, name: str, case: str, entry: str, rounds: int) -> Measurement:
    """Measure the CPU time of a process that renders a view of the page, against the yardstick."""
    parameters = {"agent": {"name": "a00001"}, "why": {"target": entry}}.get(name, {})
    expression = f"view(Path({str(base)!r}), {name!r}, {parameters!r})"
    code = f"from pathlib import Path; from lemming.queries.views.view_registry import build_view; {expression}"
    floors, times = [], []
    for _ in range(rounds):
        floors.append(run_measured(YARDSTICK).cpu_s)
        times.append(run_measured((PYTHON, "-c", code)).cpu_s)
    return Measurement.from_pairs(
        times, floors, scale=1e3, unit="ms", case=case, figure="CPU", floor_is="import typer, pydantic"
    )


def _measure_command(base: Path, arguments: str, case: str, rounds: int, target: str = "") -> Measurement:
    """Measure the CPU time of a command, against the yardstick."""
    command, floors, times = lemming_command(base, *arguments.split()), [], []
    for _ in range(rounds):
        floors.append(run_measured(YARDSTICK).cpu_s)
        times.append(run_measured(command, any_status=arguments == "history").cpu_s)
    return Measurement.from_pairs(
        times, floors, scale=1e3, unit="ms", case=case, figure="CPU", floor_is="import typer, pydantic",
        target=target,
    )  # fmt: skip


def make_old_org(base: Path, size: int, age: int) -> Path:
    """Make an organisation after `age` ticks with a turn each; the first agent reads all."""
    register_provider("instant", TalkativeBackend)
    make_benchmark_org(base, size, "one", org={"durability": "off", "retention_ticks": 0})
    for number, name in enumerate(make_agent_names(size)):
        _update_resume(base, name, schedule={"run_every_n_ticks": size, "phase_offset": -number})
    run_forever(base, interval_s=0, max_ticks=age)
    write_resumes(base, size, "one", model="scripted")
    _update_resume(base, make_agent_names(size)[0], permissions={"read_outboxes": ["*"], "tools": []})
    return remove_models(base)


def _update_resume(base: Path, name: str, **values: object) -> None:
    file = f"agents/{name}/resume.json"
    fs.write_atomic(base, file, dump_pretty({**json.loads((base / file).read_bytes()), **values}))
