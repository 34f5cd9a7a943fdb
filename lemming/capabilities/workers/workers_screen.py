"""The screen of running workers."""

from __future__ import annotations

from lemming.capabilities.workers.running_workers import WorkerStatus, list_workers
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.wording import format_usd
from lemming.queries.screens.screen import Column, Screen


def list_running_workers(org: Organisation) -> list[WorkerStatus]:
    """List the running workers: since when, on which files, and for how much.

    A worker whose engine was killed is listed until the next run has finished its turn.

    \b
    Examples:
      lemming workers
      lemming workers --json | jq -r '.files[]'
    """
    return list_workers(org)


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
    query=list_running_workers,
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
