"""`lemming workers`: running workers, and their end on request."""

from __future__ import annotations

from typing import Annotated

from lemming.capabilities.workers.running_workers import WorkerStatus, list_workers, stop_worker
from lemming.commands.command_context import AsPerson, CommandContext, Limit, argument, make_command_group
from lemming.commands.pause import get_user_name
from lemming.commands.terminal import format_usd, print_notice

_STATES = {"running": "running", "gone": "engine is gone: finished by the next run"}
COLUMNS = {
    "AGENT": "agent",
    "HARNESS": "harness",
    "MODEL": lambda worker: worker.model or "-",
    "WORKSPACE": lambda worker: f"{worker.workspace} {worker.branch}",
    "SINCE": lambda worker: worker.since[:19].replace("T", " "),
    "FILES": lambda worker: len(worker.files),
    "COST": lambda worker: format_usd(worker.cost_usd, calls=worker.tokens),
    "STATE": lambda worker: _describe_state(worker),
    "LAST STEP": "last_step",
}


def _describe_state(worker: WorkerStatus) -> str:
    pid = f", pid {worker.pid}" if worker.pid and worker.state == "running" else ""
    stop = f", to be stopped for {worker.stopped_by}" if worker.stopped_by else ""
    return f"{_STATES[worker.state]}{pid}{stop}"


def show_workers(context: CommandContext, limit: Limit = None) -> None:
    """List the running workers: since when, on which files, and for how much.

    A worker whose engine was killed is listed until the next run has finished its turn.

    \b
    Examples:
      lemming workers
      lemming workers --json | jq -r '.files[]'
    """
    context.print_list("worker", list_workers(context.org), COLUMNS, limit, empty_text="no worker is running")


app = make_command_group("List running workers, and stop one.", default=show_workers)
app.subcommand("list")(show_workers)


@app.subcommand("stop")
def stop(
    context: CommandContext,
    agent: Annotated[str, argument("AGENT", "Agent whose worker is to end.", completes_agents=True)],
    person: AsPerson = None,
) -> None:
    """Stop the running worker of an agent.

    The harness ends within seconds. Its changes are discarded, its cost counts, and the request is answered as failed.

    \b
    Examples:
      lemming workers stop coder
    """
    stop_worker(context.org, agent, by=person or get_user_name())
    if not context.print_as_json("stop", {"agent": agent}):
        print_notice(f"the worker of {agent} is told to end")
