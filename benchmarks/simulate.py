"""Simulation of a growing organisation with thousands of agents: cost of a tick with age, and growth on disk.

Teams of twenty: a lead writes reports and sometimes asks the desk, which follows a plan. Clerks answer the
desk, a watcher wakes on new entries, and staff take a turn a day with a memory update. A tick stands for ten
minutes, and the model answers at once. `--org FOLDER` keeps the organisation and continues the simulation
later.
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
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.testing import make_org, resume, say

TEAM_SIZE = 20
TICKS_PER_DAY = 144
WINDOW_TICKS = 100
FLOOR_TURNS = 100
FLOOR = f"files_tmp, {FLOOR_TURNS} turns"
SETTINGS = {
    "durability": "tick", "inbox_limit": 20,
    "retention_ticks": 3 * TICKS_PER_DAY, "kept_journals": 7 * TICKS_PER_DAY,
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


class SimulatedBackend(Backend):
    """A model with immediate answers: a report, or in some turns of a lead a request."""

    keeps_deadline = True
    can_be_down = False

    def complete(self, request: Request) -> Reply:
        """Return a reply for the agent's role."""
        role = request.agent.partition("-")[2][:1]
        reply = say(f"{SENTENCE}, {request.agent} in tick {request.tick}")
        if role == "l" and request.tick // (TICKS_PER_DAY // 4) % 2 == 0:
            request_payload = {"text": SENTENCE, "target": f"{request.agent.partition('-')[0]}-desk", "deadline": 100}
            reply["outbox_entries"] = [{"kind": "request", "payload": request_payload, "tags": []}]
        if role in "ls":
            reply["memory_updates"] = [{"key": "state", "value": {"n": request.tick}}]
        return Reply(text=json.dumps(reply), input_tokens=1000, output_tokens=100)


@dataclass(frozen=True)
class Window:
    """Cost of a series of ticks, and the files on disk afterwards."""

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
    """Yield rows for the first and last ticks, and for each tenth between."""
    base = options.org or options.folder / "org"
    notes = base.with_name(f"{base.name}.windows.jsonl")
    if not (base / "tick.json").exists():
        options.folder.mkdir(exist_ok=True)
        make_simulated_org(base, max(options.agents))
    for window in _iter_windows(base, options):
        with notes.open("a") as file:
            file.write(json.dumps(window.__dict__) + "\n")
    windows = [Window(**json.loads(line)) for line in notes.read_text().splitlines()]
    yield from _iter_rows(windows, sum(1 for _ in (base / "agents").iterdir()))


def make_simulated_org(base: Path, size: int) -> Path:
    """Make an organisation with at least `size` agents in whole teams."""
    make_org(base, models={"simulated": {"provider": "simulated"}}, org=SETTINGS)
    for number in range(-(-size // TEAM_SIZE)):
        team = f"t{number:04d}-"
        for resume_json in _iter_team(team, number):
            fs.write_atomic(base, f"agents/{resume_json['name']}/resume.json", dump_pretty(resume_json))
        plan = json.loads(json.dumps(PLAN).replace("{team}", team))
        fs.write_atomic(base, f"agents/{team}desk/plan.json", dump_pretty(plan))
    return base


def _iter_team(team: str, number: int) -> Iterator[dict[str, Any]]:
    lead, desk = f"{team}lead", f"{team}desk"
    clerks = [f"{team}c{count}" for count in range(4)]
    lead_schedule = {"run_every_n_ticks": TICKS_PER_DAY // 4, "phase_offset": number}
    yield _make_agent(lead, [desk, f"{team}watch"], lead_schedule)
    yield _make_agent(desk, [lead, *clerks], {"wake": "addressed"}, model={"key": "plan"})
    for clerk in clerks:
        yield _make_agent(clerk, [desk], {"wake": "addressed"}, turn={"take": "one"})
    yield _make_agent(f"{team}watch", [lead], {"wake": "changed"})
    for count in range(TEAM_SIZE - 3 - len(clerks)):
        staff_schedule = {"run_every_n_ticks": TICKS_PER_DAY, "phase_offset": number * TEAM_SIZE + count}
        yield _make_agent(f"{team}s{count}", [lead], staff_schedule)


def _make_agent(name: str, authors: list[str], schedule: dict[str, Any], **options: Any) -> dict[str, Any]:
    permissions = {"read_outboxes": authors, "tools": []}
    fields = {"model": {"key": "simulated"}, "permissions": permissions, "schedule": schedule, **options}
    return resume(name, **fields)


def _iter_windows(base: Path, options: Options) -> Iterator[Window]:
    """Run for the requested time, and yield the cost of each window of ticks; the last window may be shorter."""
    register_provider("simulated", SimulatedBackend)
    gc.set_threshold(50_000, 50, 100)  # as the command `lemming` does
    floor = FilesTmp(options.folder / "floor", FLOOR_TURNS, "one")
    deadline = time.monotonic() + options.minutes * 60
    reports = ticks(base, interval_s=0, max_ticks=options.ticks)
    with contextlib.closing(reports):  # type: ignore[type-var]
        limited = itertools.takewhile(lambda _: time.monotonic() < deadline, _time_reports(reports))
        while timed_reports := list(itertools.islice(limited, WINDOW_TICKS)):
            yield _make_window(base, timed_reports, _measure_floor_s(floor))


def _time_reports(reports: Iterable[TickReport]) -> Iterator[tuple[TickReport, float]]:
    start_time = time.process_time()
    for report in reports:
        yield report, time.process_time() - start_time
        start_time = time.process_time()


def _measure_floor_s(floor: FilesTmp) -> float:
    """Return the minimum of five runs, because other load only adds time."""
    times = []
    for _ in range(5):
        start_time = time.process_time()
        floor.tick()
        times.append(time.process_time() - start_time)
    return min(times)


def _make_window(base: Path, timed_reports: list[tuple[TickReport, float]], floor_s: float) -> Window:
    ends: Counter[str] = Counter(
        turn.status for report, _ in timed_reports for turn in report.turns if turn.status != "skipped"
    )
    files, sizes = count_files_by_kind(base)
    return Window(
        timed_reports[0][0].tick, timed_reports[-1][0].tick, sum(ends.values()), sum(cpu for _, cpu in timed_reports), floor_s,
        _measure_memory_mb(), files, sizes, dict(ends),
    )  # fmt: skip


def count_files_by_kind(base: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return the number and the bytes of files by kind."""
    files: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for folder, _, names in os.walk(base):
        parts = Path(folder).relative_to(base).parts
        for name in names:
            kind = _classify_file(parts, name)
            files[kind] += 1
            sizes[kind] += os.stat(f"{folder}/{name}").st_size
    return dict(files), dict(sizes)


def _classify_file(parts: tuple[str, ...], name: str) -> str:
    if parts[:1] == ("agents",):
        return KINDS.get(parts[2] if len(parts) > 2 else name, "other")
    if parts[:2] == ("logs", "ticks"):
        return "packed journals" if parts[2:] else "journals"
    return {"logs": "logs", ".lemming": "caches"}.get(parts[0] if parts else "", "other")


def _measure_memory_mb() -> float:
    """Return the resident memory of the process, or the peak on systems without /proc."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _iter_rows(windows: list[Window], agents: int) -> Iterator[Measurement]:
    step = max(1, len(windows) // 10)
    for window in [*windows[:-1:step], windows[-1]]:
        count = window.last - window.first + 1
        case = f"{agents:,} agents, ticks {window.first:,} to {window.last:,}"
        turns = window.turns / count
        yield Measurement.from_count(turns, case=case, figure="turns a tick")
        yield Measurement.from_pairs(
            [window.cpu_s / count], [window.floor_s],
            scale=1e3, unit="ms", case=case, figure="CPU a tick", floor_is=FLOOR,
        )  # fmt: skip
        yield Measurement.from_count(window.memory_mb, case=case, figure="memory", unit="MB")
        yield Measurement.from_count(sum(window.files.values()), case=case, figure="files")
        yield Measurement.from_count(sum(window.bytes.values()) / 1e6, case=case, figure="on the disk", unit="MB")
    for kind, size in sorted(windows[-1].bytes.items()):
        case = f"{kind}, {windows[-1].files[kind]:,} files after tick {windows[-1].last:,}"
        yield Measurement.from_count(size / 1e6, case=case, figure="on the disk", unit="MB")
