"""Running workers as screens show them, and the request to stop one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lemming.capabilities.workers.attempts import STOP_FILE, Attempt, list_running
from lemming.ext import LemmingError
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.integers import bounded_int
from lemming.kernel.files import fs
from lemming.kernel.files.field_types import Json
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_table import provided
from lemming.libraries.wording import format_usd
from lemming.operations.engine_lock import find_running_engine
from lemming.queries.screens.screen import Column, Screen

MAX_STEPS, MAX_FILES, MAX_VISITED_FILES = 40, 200, 20_000


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """A running worker.

    `since`: timestamp. `steps`: the newest, oldest first, each with `at`, `kind`, `text` and `path`. `files`: paths that
    it has touched. `cost_usd`: dollars so far, None if the gateway knows no price. `tokens`: input and output so far.
    `state`: "running", or "gone" if its engine has ended: the next run finishes the turn. `stopped_by`: the person who
    asked for its end.
    """

    agent: str
    tick: int
    harness: str
    model: str
    workspace: str
    branch: str
    since: str
    state: str
    pid: int | None = None
    steps: list[Json] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    cost_usd: float | None = None
    tokens: int = 0
    stopped_by: str = ""

    @property
    def last_step(self) -> str:
        """The newest step on one line, or an empty text."""
        step = self.steps[-1] if self.steps else {}
        return " ".join(f"{step.get('text', '')} {step.get('path', '')}".split())

    def as_json(self) -> Json:
        """Return the status as JSON values."""
        return {**asdict(self), "last_step": self.last_step}


def list_workers(org: Organisation) -> list[WorkerStatus]:
    """List the running workers: since when, on which files, and for how much.

    A worker whose engine was killed is listed until the next run has finished its turn.

    \b
    Examples:
      lemming workers
      lemming workers --json | jq -r '.files[]'
    """
    engine = find_running_engine(org)
    return [_load_status(attempt, engine) for attempt in list_running(org)]


def list_watched_files(org: Organisation) -> Iterator[str]:
    """Yield the files that change while a worker makes progress."""
    for attempt in list_running(org):
        yield from (f"{attempt.folder}/{name}" for name in ("progress.jsonl", "usage.jsonl", STOP_FILE))


def stop_worker(org: Organisation, agent: str, *, by: str) -> None:
    """Ask the run of an agent's worker to end: its request is answered as failed, "stopped by NAME". Repeatable.

    Raises `UsageError` if the agent has no running worker, or the worker runs on another machine.
    """
    attempts = [attempt for attempt in list_running(org) if attempt.facts.get("agent") == agent]
    if not attempts:
        raise UsageError(f'no worker of "{agent}" is running', hint="list the running ones with `lemming workers`")
    if load_config(org).org.executor in provided("executors"):
        hint = "stop the engine: the worker ends with its connection"
        raise UsageError(f"the worker of {agent} must run on this machine, got another one", hint=hint)
    for attempt in attempts:
        fs.make_root(attempt.folder)
        attempt.write_json(STOP_FILE, {"by": by})


def _load_status(attempt: Attempt, engine: dict[str, Any] | None) -> WorkerStatus:
    facts, owner, costs = attempt.facts, attempt.read_json("owner.json"), [*attempt.iter_lines("usage.jsonl")]
    priced = [line["cost_usd"] for line in costs if isinstance(line.get("cost_usd"), int | float)]
    steps = [*_read_steps(attempt)]
    # Without an owner, the harness runs on another machine, or has not started yet.
    is_running = engine is not None and owner.get("pid", engine.get("pid")) == engine.get("pid")
    return WorkerStatus(
        **{key: str(facts.get(key, "")) for key in ("agent", "harness", "model", "workspace", "branch", "since")},
        tick=bounded_int(facts.get("tick")) or 0,
        state="running" if is_running else "gone",
        pid=bounded_int(owner.get("pid")),
        steps=[step for step in steps if step["kind"] not in ("usage", "session")][-MAX_STEPS:],
        files=_list_files(attempt, steps),
        cost_usd=sum(priced) if priced and len(priced) == len(costs) else None,
        tokens=sum(bounded_int(line.get(key)) or 0 for line in costs for key in ("input", "output")),
        stopped_by=str(attempt.read_json(STOP_FILE).get("by", "")),
    )


def _read_steps(attempt: Attempt) -> Iterator[Json]:
    """Yield the steps in texts, with paths relative to the clone."""
    with suppress(LemmingError):
        for step in attempt.iter_lines("progress.jsonl"):
            texts = {key: str(step.get(key, "")) for key in ("at", "kind", "text", "path")}
            yield {key: text.replace(f"{attempt.clone}/", "") for key, text in texts.items()}


def _list_files(attempt: Attempt, steps: list[Json]) -> list[str]:
    """Return the paths of files that a worker has touched, as it says, or else by their times."""
    paths = {step["path"] for step in steps if step["kind"] == "file"} - {""}
    return sorted(paths or _find_new_files(attempt))[:MAX_FILES]


def _find_new_files(attempt: Attempt) -> Iterator[str]:
    """Yield the files of the clone that are newer than the clone. Removed files are not seen."""
    try:
        start = (attempt.folder / "attempt.json").stat().st_mtime_ns
    except OSError:
        return
    visited = 0
    for folder, folders, files in os.walk(attempt.clone):  # follows no links
        folders[:] = [name for name in folders if name != ".git"]
        for name in files:
            visited += 1
            with suppress(OSError):
                if os.lstat(f"{folder}/{name}").st_mtime_ns > start:
                    yield str(Path(folder, name).relative_to(attempt.clone))
        if visited > MAX_VISITED_FILES:
            return


_STATES = {"running": "running", "gone": "engine is gone: finished by the next run"}


def _describe_state(worker: WorkerStatus) -> str:
    pid = f", pid {worker.pid}" if worker.pid and worker.state == "running" else ""
    stop = f", to be stopped for {worker.stopped_by}" if worker.stopped_by else ""
    return f"{_STATES[worker.state]}{pid}{stop}"


WORKERS = Screen(
    "workers",
    kind="worker",
    title="Workers",
    command="workers list",
    query=list_workers,
    row=WorkerStatus,
    empty="no worker is running",
    columns=(
        Column("agent", "AGENT", "Agent that the worker works for.", shown="agent"),
        Column("tick", about="Tick of the turn."),
        Column("harness", "HARNESS", "Coding harness that runs."),
        Column("model", "MODEL", "Model of the harness.", text=lambda worker: worker.model or "-"),
        Column(
            "workspace", "WORKSPACE", "Folder of the clone.", text=lambda worker: f"{worker.workspace} {worker.branch}"
        ),
        Column("branch", about="Branch that the patch is for."),
        Column("since", "SINCE", "Start of the worker.", text=lambda worker: worker.since[:19].replace("T", " ")),
        Column("files", "FILES", "Paths that it has touched.", text=lambda worker: str(len(worker.files))),
        Column(
            "cost_usd", "COST", "Dollars so far, or null without a known price.",
            text=lambda worker: format_usd(worker.cost_usd, calls=worker.tokens),
        ),
        Column("tokens", about="Input and output tokens so far."),
        Column("state", "STATE", "running, or gone if its engine has ended.", text=_describe_state),
        Column("pid", about="Process of the harness."),
        Column("steps", about="The newest steps, oldest first."),
        Column("stopped_by", about="Person who asked for its end."),
        Column("last_step", "LAST STEP", "The newest step."),
    ),
)  # fmt: skip
