"""`lemming run-once` and `lemming run-forever`: one tick, or tick after tick."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Annotated

import typer

from lemming import engine
from lemming.commands.command_context import (
    Batch,
    CommandContext,
    Quiet,
    Trust,
    Watch,
    option,
    parse_seconds,
    require_agent_folder,
)
from lemming.commands.error_reporting import BROKEN_PIPE
from lemming.commands.run_output import TURN_FAILED, Narrator, compute_exit_status
from lemming.commands.signals import stop_on_signals
from lemming.commands.terminal import one_line, print_notice
from lemming.commands.trust import require_workspace_trust
from lemming.kernel.journal.engine_events import Observer
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.plugins.capability_loader import require_fact


def run_once(
    context: CommandContext,
    dry_run: Annotated[
        bool, option("--dry-run", "Show the agents that would run and their prompts; change nothing.")
    ] = False,
    until_quiet: Annotated[bool, option("--until-idle", "Keep running ticks until no agent has anything new.")] = False,
    agent: Annotated[
        list[str] | None,
        option("--agent AGENT", "Run only this agent, whatever its schedule. Repeatable."),
    ] = None,
    batch: Batch = False,
    watch: Watch = False,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Run one tick.

    Every due agent takes a turn, in order; then the tick counter advances. An interrupted tick is continued,
    and no model is asked twice.

    With --agent, only the named agents are due, regardless of schedule and inputs. Pauses, credits and gates
    still apply. Clock-driven turns of other agents are not lost: the next tick runs them.

    Exit status: 0 done, 1 a turn failed, 5 no model could be called, 6 every agent is out of credits.

    \b
    Examples:
      lemming run-once
      lemming run-once --dry-run
      lemming run-once --agent keeper
      lemming run-once --batch
      lemming run-once --stream
      lemming run-once --json | jq -c 'select(.type == "turn_ended") | [.agent, .status]'
    """
    base, agents = context.org, list(dict.fromkeys(agent or ()))
    for name in agents:
        require_agent_folder(base, name)
    if dry_run:
        from lemming.commands.prompt import print_next_tick

        print_next_tick(base, agents)
        return
    require_workspace_trust(base, is_trusted=trust, can_ask=not context.as_json)

    with stop_on_signals(quiet=quiet) as switch:
        narrator = Narrator(base, switch.stop)
        exit_statuses = []  # the exit status of each tick
        for report in engine.ticks(
            base,
            max_ticks=None if until_quiet else 1,
            until_quiet=until_quiet,
            agents=agents,
            command="run-once",
            batch=batch,
            watch=watch,
            notify=narrator.on_event,
            stop=switch.stop,
        ):
            if narrator.is_output_closed:
                break
            if not report.is_complete:
                narrator.print_stopped_tick(report)
                raise typer.Exit(switch.exit_status)
            narrator.print_tick_summary(report)
            exit_statuses.append(compute_exit_status(report, narrator.due))
            for turn in report.turns:
                if turn.agent in agents and turn.agent not in narrator.due and turn.status == "skipped":
                    print_notice(f"  {turn.agent} does not run: {one_line(turn.reason, 300)}{_suggest_fix(turn)}")
            if report.not_due and not (narrator.due or agents):
                hint = "`lemming run-once --agent NAME` runs an agent now"
                print_notice(f"  `lemming schedule` shows the next turns; {hint}")
    if narrator.is_output_closed:
        raise typer.Exit(BROKEN_PIPE)
    if report.tick == 1 and report.by_status("done"):
        print_notice("next: `lemming tick` shows this tick in full, `lemming run-once` runs the next")
    raise typer.Exit(next(filter(None, exit_statuses), 0))


def _suggest_fix(turn: TurnReport) -> str:
    if turn.reason.startswith("the organisation is paused"):
        return " (`lemming unpause`)"
    return f" (`lemming unpause {turn.agent}`)" if turn.reason.startswith("paused") else ""


def run_forever(
    context: CommandContext,
    interval: Annotated[
        float | None,
        option(
            "--interval DURATION",
            "Time between the starts of two ticks: 10 (seconds), 5m, 2h. Default: from config/org.json.",
            parser=parse_seconds,
        ),
    ] = None,
    max_ticks: Annotated[int | None, option("--max-ticks N", "Stop after N ticks.", min=1)] = None,
    until_tick: Annotated[int | None, option("--until-tick N", "Stop after tick N.", min=0)] = None,
    wake_on_change: Annotated[
        bool, option("--wake-on-change", "Sleep until an agent is due or a file changes.")
    ] = False,
    health: Annotated[
        int | None,
        option(
            "--health PORT",
            "Serve GET /healthz on 127.0.0.1:PORT: 200 or 503 with the result of `status --check`.",
            min=0,
            max=65535,
        ),
    ] = None,
    serve: Annotated[
        int | None,
        option(
            "--serve PORT",
            "Also serve http and mail channels on PORT, as `lemming channels serve` does.",
            min=0,
            max=65535,
        ),
    ] = None,
    eager: Annotated[
        bool, option("--burst", "Start the next tick immediately while an agent has something new.")
    ] = False,
    batch: Batch = False,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Run ticks continuously.

    Ctrl-C, SIGTERM, SIGQUIT or SIGHUP stops the engine after the running turns (immediately between ticks)
    with exit status 0; a second signal other than SIGHUP stops the process immediately. Killing the process
    is safe: the next run continues from the journal. With --max-ticks, exit status 1 means that a turn
    failed.

    With --wake-on-change, the engine sleeps until an agent is due, or until a resume, a memory, an outbox, a
    context file or a setting changes. Skipped ticks are counted at wake-up.

    With --burst, the next tick starts immediately while an agent has new input: an entry that names the
    agent, an awaited answer, or a result of a tool. After `ticks_in_a_row` ticks (config/org.json) the engine
    pauses anyway.

    \b
    Examples:
      lemming run-forever --interval 10
      lemming run-forever --max-ticks 5 --interval 0
      lemming run-forever --interval 10m --wake-on-change --burst
      lemming run-forever --health 8642
    """
    base = context.org
    require_workspace_trust(base, is_trusted=trust, can_ask=not context.as_json)
    has_failures = False
    with stop_on_signals(quiet=quiet) as switch:
        narrator = Narrator(base, switch.stop)
        with ExitStack() as stack:
            if serve is not None:
                stack.enter_context(require_fact("channels.serve")(base.base, serve, stop=switch.stop))
            observer: Observer = narrator.on_event
            if health is not None or "NOTIFY_SOCKET" in os.environ:
                from lemming.commands.supervision import supervise  # only for --health or systemd

                supervision = supervise(base, observer, health=health, interval_s=interval, batch=batch)
                observer = stack.enter_context(supervision)
            ticks = engine.ticks(
                base,
                interval_s=interval,
                max_ticks=max_ticks,
                until_tick=until_tick,
                wake_on_change=wake_on_change,
                eager=eager,
                batch=batch,
                notify=observer,
                stop=switch.stop,
            )
            for report in ticks:
                has_failures = has_failures or bool(report.by_status("failed"))
                if narrator.is_output_closed:
                    break
                if report.is_complete:
                    narrator.print_tick_summary(report)
                else:
                    narrator.print_stopped_tick(report)
    if narrator.is_output_closed:
        raise typer.Exit(BROKEN_PIPE)
    if switch.signal:
        print_notice("stopped")
        return
    raise typer.Exit(TURN_FAILED if has_failures else 0)
