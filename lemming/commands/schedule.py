"""`lemming schedule`: the agents that run in the next ticks."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from lemming.commands.command_context import CommandContext, option
from lemming.commands.terminal import join_names, one_line, print_data, print_json, style_text
from lemming.commands.trust import load_settings
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.everyday_times import format_moment, parse_moment
from lemming.obligations.waiting_items import list_person_inbox, summarize_inbox
from lemming.queries.forecast import COMING, TickForecast, explain_wait, forecast_tick, list_upcoming
from lemming.queries.screens.screen import ScreenResult

NAMES_SHOWN = 6


def schedule(
    context: CommandContext,
    ticks: Annotated[int, option("--ticks N", "Number of ticks to show.", min=1, max=10_000)] = 1,
    start: Annotated[int | None, option("--from TICK", "First tick to show. Default: the next tick.", min=0)] = None,
    why: Annotated[
        tuple[str, str] | None, option("--why A B", "Explain why agent A waits for agent B, or B for A.")
    ] = None,
    until: Annotated[
        str | None, option("--until WHEN", 'List clock-driven events until this time: "fri", 3d, ISO.')
    ] = None,
) -> None:
    """Show which agents run in the next ticks, and in what order.

    The number before a name is the agent's fire point, a position within the tick. An agent waits for earlier
    agents whose entries or files are visible to it; other agents run concurrently, within the limits of their
    models. For the next tick, the output also lists new inputs of waking agents, and agents with a skipped
    turn because of unchanged inputs or spent credits.

    \b
    Examples:
      lemming schedule
      lemming schedule --ticks 10
      lemming schedule --why editor agency
      lemming schedule --until "fri 18:00"
    """
    org = Organisation.from_path(context.org)
    config = load_settings(org)
    if why:
        later, earlier, reasons = explain_wait(org, config, *why)
        print_json("plan_why", {"agent": later, "before_it": earlier, "reasons": reasons})
        if reasons:
            print_data(f"{later} waits for {earlier}, which comes first in the order of a tick:")
        else:
            print_data(f"{later} does not wait for {earlier}: neither can see the other's output of the same tick")
        for reason in reasons:
            print_data(f"  {reason}")
        return
    if until is not None:
        is_duration = until[:1].isdigit() and until[-1:] in "smhdw"
        zone = config.org.timezone or "UTC"
        end_time = parse_moment(f"in {until}" if is_duration else until, SystemClock().now(), zone)
        empty = f"nothing is scheduled by the clock until {format_moment(end_time)}"
        context.print_screen(replace(COMING, empty=empty), ScreenResult(list_upcoming(org, config, end_time)))
        return
    first = load_tick(org) if start is None else start
    for tick in range(first, first + ticks):
        upcoming_tick = forecast_tick(org, config, tick)
        print_json("plan", upcoming_tick.as_json())
        _print_tick_plan(upcoming_tick)
        if upcoming_tick.is_next and (waits := summarize_inbox(list_person_inbox(org))):
            print_data(style_text(f"  {one_line(waits, 400)}", "yellow"))


def _print_tick_plan(upcoming_tick: TickForecast) -> None:
    planned, points = upcoming_tick.plan, upcoming_tick.points
    print_data(style_text(f"tick {planned.tick}{' (next)' if upcoming_tick.is_next else ''}", "bold"))
    width = max(map(len, planned.all_agents), default=0)
    for rank, name in enumerate(planned.order):
        point = f"{points[name]:.2f}" if name in points else "    "
        reason = one_line(upcoming_tick.notes.get(name) or upcoming_tick.reasons[name].text, 400)
        waits, wait_text = upcoming_tick.waits[name], ""
        if waits.everyone and rank:
            wait_text = "waits for all agents before it"
        elif waits.names and not waits.everyone:
            wait_text = f"waits for {join_names(sorted(waits.names), NAMES_SHOWN)}"
        print_data(f"  {point}  {name.ljust(width)}  {'; '.join(filter(None, (wait_text, reason)))}".rstrip())
    skipped_agents = {name: f"not due until {next_time}" for name, next_time in upcoming_tick.not_due_notes.items()}
    for name, reason in {**skipped_agents, **planned.skipped}.items():
        print_data(style_text(f"     -  {name.ljust(width)}  {reason}", "dim"))
    if skipped_agents and upcoming_tick.is_next:
        print_data(style_text("  `lemming run-once --agent NAME` runs an agent now", "dim"))
    for name, reason in planned.broken.items():
        print_data(f"     -  {name.ljust(width)}  {style_text('broken', 'red')}: {one_line(reason, 400)}")
    chain = upcoming_tick.longest_chain
    if len(chain) > 1:
        shortened_chain = [*chain[: NAMES_SHOWN - 1], "...", chain[-1]]
        chain_text = " > ".join(chain if len(chain) <= NAMES_SHOWN else shortened_chain)
        print_data(style_text(f"  longest chain: {len(chain)} of {len(planned.order)} turns: {chain_text}", "dim"))
