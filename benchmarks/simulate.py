"""An organisation of thousands of agents that lives on: what a tick costs as it ages, and what grows.

Teams of twenty: a lead reports and now and then asks the desk, whose brain is a plan; clerks answer it when
they are asked; a watcher wakes when somebody has written; staff take one turn a day and remember it. A tick
stands for ten minutes. The model answers at once. `--org FOLDER` keeps the organisation, and goes on with it.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import resource
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.floor import FilesTmp
from benchmarks.measurement import Measurement
from benchmarks.options import Options
from benchmarks.orgs import SENTENCE
from lemming.engine import ticks
from lemming.kernel.base.jsontext import pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.report import TickReport
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.testing import make_org, resume, say

TEAM = 20
TICKS_A_DAY = 144
WINDOW = 100
FLOOR_TURNS = 100
FLOOR = f"files_tmp, {FLOOR_TURNS} turns"
SETTINGS = {
    "durability": "tick", "inbox_limit": 20,
    "retention_ticks": 3 * TICKS_A_DAY, "kept_journals": 7 * TICKS_A_DAY,
}  # fmt: skip
PLAN = {
    "steps": [
        {"name": "look", "ask": "{team}c0", "task": "Look into: {{start}}", "deadline": 20},
        {"name": "write", "ask": "{team}c1", "task": "Write up: {{steps.look}}", "deadline": 20},
    ],
    "answer": "{{steps.write}}",
}  # fmt: skip
KINDS = {
    "outbox": "entries", "memory": "memories", "logs": "logs", "turns.jsonl": "ledgers",
    "resume.json": "resumes and plans", "plan.json": "resumes and plans",
}  # fmt: skip


class Simulated(Backend):
    """A model that answers at once: with a report, or in some turns of a lead with a request."""

    keeps_deadline = True
    can_be_down = False

    def complete(self, request: Request) -> Reply:
        """Return one entry, or what else the role says."""
        role = request.agent.partition("-")[2][:1]
        reply = say(f"{SENTENCE}, {request.agent} in tick {request.tick}")
        if role == "l" and request.tick // (TICKS_A_DAY // 4) % 2 == 0:
            asked = {"text": SENTENCE, "target": f"{request.agent.partition('-')[0]}-desk", "deadline": 100}
            reply["outbox_entries"] = [{"kind": "request", "payload": asked, "tags": []}]
        if role in "ls":
            reply["memory_updates"] = [{"key": "state", "value": {"n": request.tick}}]
        return Reply(text=json.dumps(reply), input_tokens=1000, output_tokens=100)


@dataclass(frozen=True)
class Window:
    """What so many ticks in a row cost, and what there was on the disk after them."""

    first: int
    last: int
    turns: int
    cpu_s: float
    floor_s: float
    memory_mb: float
    files: dict[str, int]
    bytes: dict[str, int]
    ends: dict[str, int]


def measure(options: Options) -> Iterator[Measurement]:
    """Yield a row for the first and the last ticks and each tenth between, and what is on the disk then."""
    base = options.org or options.place / "org"
    notes = base.with_name(f"{base.name}.windows.jsonl")
    if not (base / "tick.json").exists():
        options.place.mkdir(exist_ok=True)
        make(base, max(options.agents))
    for window in _windows(base, options):
        with notes.open("a") as file:
            file.write(json.dumps(window.__dict__) + "\n")
    known = [Window(**json.loads(line)) for line in notes.read_text().splitlines()]
    yield from _rows(known, sum(1 for _ in (base / "agents").iterdir()))


def make(base: Path, size: int) -> Path:
    """Make an organisation of so many agents, rounded up to whole teams."""
    make_org(base, models={"simulated": {"provider": "simulated"}}, org=SETTINGS)
    for number in range(-(-size // TEAM)):
        team = f"t{number:04d}-"
        for plain in _team(team, number):
            fs.publish(base, f"agents/{plain['name']}/resume.json", pretty(plain))
        plan = json.loads(json.dumps(PLAN).replace("{team}", team))
        fs.publish(base, f"agents/{team}desk/plan.json", pretty(plan))
    return base


def _team(team: str, number: int) -> Iterator[dict[str, Any]]:
    lead, desk = f"{team}lead", f"{team}desk"
    clerks = [f"{team}c{count}" for count in range(4)]
    often = {"run_every_n_ticks": TICKS_A_DAY // 4, "phase_offset": number}
    yield _agent(lead, [desk, f"{team}watch"], often)
    yield _agent(desk, [lead, *clerks], {"wake": "addressed"}, model={"key": "plan"})
    for clerk in clerks:
        yield _agent(clerk, [desk], {"wake": "addressed"}, turn={"take": "one"})
    yield _agent(f"{team}watch", [lead], {"wake": "changed"})
    for count in range(TEAM - 3 - len(clerks)):
        daily = {"run_every_n_ticks": TICKS_A_DAY, "phase_offset": number * TEAM + count}
        yield _agent(f"{team}s{count}", [lead], daily)


def _agent(name: str, reads: list[str], schedule: dict[str, Any], **more: Any) -> dict[str, Any]:
    permissions = {"read_outboxes": reads, "tools": []}
    plain = {"model": {"key": "simulated"}, "permissions": permissions, "schedule": schedule, **more}
    return resume(name, **plain)


def _windows(base: Path, options: Options) -> Iterator[Window]:
    """Run for as long as asked, and yield what each window of ticks cost; the last may be a short one."""
    register_provider("simulated", Simulated)
    gc.set_threshold(50_000, 50, 100)  # as the command `lemming` does
    floor = FilesTmp(options.place / "floor", FLOOR_TURNS, "one")
    until = time.monotonic() + options.minutes * 60
    running = ticks(base, interval_s=0, max_ticks=options.ticks)
    with contextlib.closing(running):  # type: ignore[type-var]
        timed = itertools.takewhile(lambda _: time.monotonic() < until, _timed(running))
        while found := list(itertools.islice(timed, WINDOW)):
            yield _window(base, found, _floor_s(floor))


def _timed(running: Iterable[TickReport]) -> Iterator[tuple[TickReport, float]]:
    began = time.process_time()
    for report in running:
        yield report, time.process_time() - began
        began = time.process_time()


def _floor_s(floor: FilesTmp) -> float:
    """Return the least of five times, as what else the machine does only adds to it."""
    times = []
    for _ in range(5):
        began = time.process_time()
        floor.tick()
        times.append(time.process_time() - began)
    return min(times)


def _window(base: Path, found: list[tuple[TickReport, float]], floor_s: float) -> Window:
    ends: Counter[str] = Counter(
        turn.status for report, _ in found for turn in report.turns if turn.status != "skipped"
    )
    files, sizes = on_disk(base)
    return Window(
        found[0][0].tick, found[-1][0].tick, sum(ends.values()), sum(cpu for _, cpu in found), floor_s,
        _memory_mb(), files, sizes, dict(ends),
    )  # fmt: skip


def on_disk(base: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return how many files there are and their bytes, by what they are."""
    files: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for folder, _, names in os.walk(base):
        parts = Path(folder).relative_to(base).parts
        for name in names:
            kind = _kind(parts, name)
            files[kind] += 1
            sizes[kind] += os.stat(f"{folder}/{name}").st_size
    return dict(files), dict(sizes)


def _kind(parts: tuple[str, ...], name: str) -> str:
    if parts[:1] == ("agents",):
        return KINDS.get(parts[2] if len(parts) > 2 else name, "other")
    if parts[:2] == ("logs", "ticks"):
        return "packed journals" if parts[2:] else "journals"
    return {"logs": "logs", ".lemming": "caches"}.get(parts[0] if parts else "", "other")


def _memory_mb() -> float:
    """Return what the process holds now; where the system does not tell, the most that it held."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _rows(windows: list[Window], agents: int) -> Iterator[Measurement]:
    step = max(1, len(windows) // 10)
    for window in [*windows[:-1:step], windows[-1]]:
        count = window.last - window.first + 1
        case = f"{agents:,} agents, ticks {window.first:,} to {window.last:,}"
        turns = window.turns / count
        yield Measurement.counted(turns, case=case, figure="turns a tick")
        yield Measurement.paired(
            [window.cpu_s / count], [window.floor_s],
            scale=1e3, unit="ms", case=case, figure="CPU a tick", floor_is=FLOOR,
        )  # fmt: skip
        yield Measurement.counted(window.memory_mb, case=case, figure="memory", unit="MB")
        yield Measurement.counted(sum(window.files.values()), case=case, figure="files")
        yield Measurement.counted(
            sum(window.bytes.values()) / 1e6, case=case, figure="on the disk", unit="MB"
        )
    for kind, size in sorted(windows[-1].bytes.items()):
        case = f"{kind}, {windows[-1].files[kind]:,} files after tick {windows[-1].last:,}"
        yield Measurement.counted(size / 1e6, case=case, figure="on the disk", unit="MB")
