"""`lemming run-once` and `lemming run-forever`: one tick, or tick after tick."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from threading import Event
from typing import Annotated

import typer

from lemming import engine
from lemming.commands.failures import BROKEN_PIPE
from lemming.commands.narration import TURN_FAILED, Narrator, exit_status
from lemming.commands.options import Batch, Here, Quiet, Trust, Watch, duration, option, require_folder
from lemming.commands.screen import one_line, tell
from lemming.commands.stopping import stop_on_signals
from lemming.commands.trust import require_agreement
from lemming.kernel.journal.events import Observer
from lemming.kernel.journal.report import TickReport, TurnReport
from lemming.kernel.org.organisation import Organisation, OrgPath


def run_once(
    here: Here,
    dry_run: Annotated[
        bool, option("--dry-run", "Show who would fire and each prompt; call and write nothing.")
    ] = False,
    until_quiet: Annotated[
        bool,
        option("--until-quiet", "Run further ticks at once while something new is addressed to an agent."),
    ] = False,
    agent: Annotated[
        list[str] | None,
        option(
            "--agent NAME",
            "Give only this agent a turn, whatever its schedule says. Repeat it for several agents.",
            of_agents=True,
        ),
    ] = None,
    batch: Batch = False,
    watch: Watch = False,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Run one tick.

    Every agent that is due takes its turn, in order; then the tick counter moves on. A tick that was
    interrupted is continued, without asking any model twice.

    With --agent only the agents you name are due, also one that goes by the clock or to which nothing is new.
    Pause, credits and gates hold as ever. Nobody else's turn by the clock is lost: the next tick has it.

    Exit status: 0 done, 1 a turn failed, 5 no model could be asked, 6 everybody is out of credits.

    \b
    Examples:
      lemming run-once
      lemming run-once --dry-run
      lemming run-once --agent keeper
      lemming run-once --batch
      lemming run-once --watch
      lemming run-once --json | jq -c 'select(.type == "turn_ended") | [.agent, .status]'
    """
    base, agents = here.org, list(dict.fromkeys(agent or ()))
    for name in agents:
        require_folder(base, name)
    if dry_run:
        from lemming.commands.prompt import show_next_tick

        show_next_tick(base, agents, as_json=here.as_json)
        return
    require_agreement(base, trusts=trust, can_ask=not here.as_json)
    from lemming import engine
    from lemming.commands.stopping import stop_on_signals

    with stop_on_signals(quiet=quiet) as switch:
        narrator = Narrator(base, switch.stop, as_json=here.as_json, quiet=quiet)
        ended = []  # the exit status of each tick
        for report in engine.ticks(
            base,
            max_ticks=None if until_quiet else 1,
            until_quiet=until_quiet,
            agents=agents,
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
            if not (quiet or here.as_json):
                _tell_who_had_no_turn(report, narrator.due, agents)
    if narrator.is_cut_off:
        raise typer.Exit(BROKEN_PIPE)
    if report.tick == 1 and report.by_status("done") and not quiet and not here.as_json:
        tell("next: `lemming tick` shows it whole, `lemming run-once` goes on")
    raise typer.Exit(next(filter(None, ended), 0))


def _tell_who_had_no_turn(report: TickReport, due: list[str], chosen: list[str]) -> None:
    """Say why agents that were named had no turn; where nobody was due, how one can have a turn."""
    for turn in report.turns:
        if turn.agent in chosen and turn.agent not in due and turn.status == "skipped":
            tell(f"  {turn.agent} takes no turn: {one_line(turn.reason, 300)}{_suggest_fix(turn)}")
    if report.not_due and not (due or chosen):
        tell("  `lemming plan` says when; `lemming run-once --agent NAME` gives an agent a turn now")


def _suggest_fix(turn: TurnReport) -> str:
    if turn.reason.startswith("the organisation is paused"):
        return " (`lemming resume`)"
    return f" (`lemming resume {turn.agent}`)" if turn.reason.startswith("paused") else ""


def run_forever(
    here: Here,
    interval: Annotated[
        float | None,
        option(
            "--interval DURATION",
            "From one tick's start to the next: 10 (seconds), 5m, 2h. Default: config/org.json.",
            parser=duration,
        ),
    ] = None,
    max_ticks: Annotated[int | None, option("--max-ticks N", "End after this many ticks.", min=1)] = None,
    until_tick: Annotated[int | None, option("--until-tick N", "End when tick N has run.", min=0)] = None,
    wake_on_change: Annotated[
        bool,
        option(
            "--wake-on-change", "Sleep while nobody is due; a change of a file begins the next tick at once."
        ),
    ] = False,
    health: Annotated[
        int | None,
        option(
            "--health PORT",
            "Answer GET /healthz on 127.0.0.1:PORT: 200 or 503, and what `status --check` says.",
            min=0,
            max=65535,
        ),
    ] = None,
    serve: Annotated[
        int | None,
        option(
            "--serve PORT",
            "See to http and mail channels too, as `lemming serve --port PORT` does.",
            min=0,
            max=65535,
        ),
    ] = None,
    eager: Annotated[
        bool, option("--eager", "Begin the next tick at once while something new is addressed to an agent.")
    ] = False,
    batch: Batch = False,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Run tick after tick.

    Ctrl-C, SIGTERM, SIGQUIT or SIGHUP ends it after the turns under way (in a pause: at once) with exit
    status 0; a second one but SIGHUP ends it on the spot. It can be killed at any time: the next run
    continues where the journal ends. With --max-ticks, exit status 1 says that some turn failed.

    With --wake-on-change the engine sleeps until somebody is due who may take a turn, or until a resume, a
    memory, an outbox, a context file or a setting changes. Ticks it slept through are counted when it wakes.

    With --eager there is no pause while an entry that names an agent, an answer it waits for or a tool's
    result is new to it; after `ticks_in_a_row` ticks (config/org.json) there is one all the same.

    \b
    Examples:
      lemming run-forever --interval 10
      lemming run-forever --max-ticks 5 --interval 0
      lemming run-forever --interval 10m --wake-on-change --eager
      lemming run-forever --health 8642
    """
    base = here.org
    require_agreement(base, trusts=trust, can_ask=not here.as_json)
    has_failures = False
    with stop_on_signals(quiet=quiet) as switch:
        narrator = Narrator(base, switch.stop, as_json=here.as_json, quiet=quiet)
        with (
            _served(base, serve, switch.stop, quiet=quiet),
            _watched_over(base, narrator, health=health, interval_s=interval, batch=batch) as hear,
        ):
            ticks = engine.ticks(
                base,
                interval_s=interval,
                max_ticks=max_ticks,
                until_tick=until_tick,
                wake_on_change=wake_on_change,
                eager=eager,
                batch=batch,
                notify=hear,
                stop=switch.stop,
            )
            for report in ticks:
                has_failures = has_failures or bool(report.by_status("failed"))
                if narrator.is_cut_off:
                    break
                if report.is_complete:
                    narrator.ended(report)
                else:
                    narrator.stopped(report)
    if narrator.is_cut_off:
        raise typer.Exit(BROKEN_PIPE)
    if switch.signal:
        if not quiet:
            tell("stopped")
        return
    raise typer.Exit(TURN_FAILED if has_failures else 0)


def _served(
    base: Organisation, port: int | None, stop: Event, *, quiet: bool
) -> AbstractContextManager[object]:
    if port is None:
        return nullcontext()
    from lemming.commands.serve import served

    return served(base.base, port, stop=stop, quiet=quiet)


def _watched_over(
    base: OrgPath, narrator: Narrator, *, health: int | None, interval_s: float | None, batch: bool
) -> AbstractContextManager[Observer]:
    """Give what is to hear the engine's events; nothing is imported where nobody watches from outside."""
    if health is None and "NOTIFY_SOCKET" not in os.environ:
        return nullcontext(narrator.hear)
    from lemming.commands.supervision import supervised

    return supervised(
        base, narrator.hear, health=health, interval_s=interval_s, batch=batch, quiet=narrator.quiet
    )
