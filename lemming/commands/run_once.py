"""`lemming run-once`: run one tick."""

from __future__ import annotations

from typing import Annotated

import typer

from lemming.commands.failures import BROKEN_PIPE
from lemming.commands.narration import Narrator, exit_status
from lemming.commands.options import AsJson, Batch, Quiet, Trust, option
from lemming.commands.org import find_org
from lemming.commands.screen import tell
from lemming.commands.trust import require_agreement


def run_once(
    ctx: typer.Context,
    dry_run: Annotated[
        bool, option("--dry-run", "Show who would fire and each prompt; call and write nothing.")
    ] = False,
    until_quiet: Annotated[
        bool,
        option("--until-quiet", "Run further ticks at once while something new is addressed to an agent."),
    ] = False,
    batch: Batch = False,
    watch: Annotated[bool, option("--watch", "Show what models answer as they write it.")] = False,
    trust: Trust = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run one tick.

    Every agent that is due takes its turn, in order; then the tick counter moves on. A tick that was
    interrupted is continued, without asking any model twice.

    Exit status: 0 done, 1 a turn failed, 5 no model could be asked, 6 everybody is out of credits.

    \b
    Examples:
      lemming run-once
      lemming run-once --dry-run
      lemming run-once --batch
      lemming run-once --watch
      lemming run-once --json | jq -c 'select(.type == "turn_ended") | [.agent, .status]'
    """
    base = find_org(ctx)
    if dry_run:
        from lemming.commands.dry_run import show_next_tick

        show_next_tick(base, as_json=as_json)
        return
    if not trust:
        require_agreement(base, can_ask=not as_json)
    from lemming import engine
    from lemming.commands.stopping import stop_on_signals

    with stop_on_signals(quiet=quiet) as switch:
        narrator = Narrator(base, switch.stop, as_json=as_json, quiet=quiet)
        ended = []  # the exit status of each tick
        for report in engine.ticks(
            base,
            max_ticks=None if until_quiet else 1,
            until_quiet=until_quiet,
            command="run-once",
            batch=batch,
            watch=watch,
            notify=narrator.hear,
            stop=switch.stop,
        ):
            if narrator.is_cut_off:
                break
            if not report.is_complete:
                narrator.stopped(report)
                raise typer.Exit(switch.exit_status)
            narrator.ended(report)
            ended.append(exit_status(report, narrator.due))
    if narrator.is_cut_off:
        raise typer.Exit(BROKEN_PIPE)
    if report.tick == 1 and report.by_status("done") and not quiet and not as_json:
        tell("next: `lemming tick` shows it whole, `lemming run-once` goes on")
    raise typer.Exit(next(filter(None, ended), 0))
