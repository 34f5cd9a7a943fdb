"""`lemming plan`: who fires in the coming ticks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lemming.agents import survey_agents
from lemming.commands.options import AsJson
from lemming.commands.org import find_org
from lemming.commands.preview import Preview, load_settings, preview_tick
from lemming.commands.screen import one_line, painted, show, show_json
from lemming.engine import load_tick
from lemming.errors import LemmingError
from lemming.plan import Plan, make_plan
from lemming.schedule import fire_point
from lemming.seating import Skip


def plan(
    ctx: typer.Context,
    ticks: Annotated[
        int, typer.Option("--ticks", min=1, max=10_000, metavar="N", help="How many ticks to show.")
    ] = 1,
    start: Annotated[
        int | None, typer.Option("--from", min=0, metavar="T", help="The first tick; default: the next one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show who fires in the coming ticks, in what order, and why the others do not.

    The number before a name is its fire point, the agent's moment inside the tick. For the very next tick
    also: who is due and would sit it out, because nothing it reads has changed or its credits are spent.

    \b
    Examples:
      lemming plan
      lemming plan --ticks 10
    """
    base = find_org(ctx)
    next_tick = load_tick(base)
    first = next_tick if start is None else start
    config, survey = load_settings(base), survey_agents(base)
    for tick in range(first, first + ticks):
        if tick == next_tick:
            preview = preview_tick(base)
            planned, sits_out = preview.plan, _sitting_out(preview)
        else:
            planned, sits_out = make_plan(tick, survey, config), {}
        points = {
            name: fire_point(survey.agents[name].schedule) for name in planned.order if name in survey.agents
        }
        if as_json:
            show_json("plan", _as_json(planned, points, sits_out))
        else:
            _show(planned, points, sits_out, is_next=tick == next_tick)


def _sitting_out(preview: Preview) -> dict[str, str]:
    """Return why agents that are due would take no turn, as things stand before the tick."""
    reasons = {}
    for name in preview.plan.order:
        if name in preview.ended or name not in preview.survey.agents:
            continue
        try:
            found = preview.seat(name)
        except LemmingError as error:
            reasons[name] = f"would fail: {error}"
            continue
        if isinstance(found, Skip):
            others = preview.waits_for(name) if not found.error else []
            unless = f", unless {' or '.join(others)} writes first" if others else ""
            reasons[name] = f"would be skipped: {found.reason}{unless}"
    return reasons


def _as_json(planned: Plan, points: dict[str, float], sits_out: dict[str, str]) -> dict[str, Any]:
    order = [
        {"agent": name, "fire_point": points.get(name), "note": sits_out.get(name, "")}
        for name in planned.order
    ]
    return {"tick": planned.tick, "order": order, "skipped": planned.skipped, "broken": planned.broken}


def _show(planned: Plan, points: dict[str, float], sits_out: dict[str, str], *, is_next: bool) -> None:
    show(painted(f"tick {planned.tick}{' (next)' if is_next else ''}", "bold"))
    width = max(map(len, [*planned.order, *planned.skipped, *planned.broken]), default=0)
    for name in planned.order:
        point = f"{points[name]:.2f}" if name in points else "    "
        show(f"  {point}  {name.ljust(width)}  {one_line(sits_out.get(name, ''), 400)}".rstrip())
    for name, why in planned.skipped.items():
        show(painted(f"     -  {name.ljust(width)}  {why}", "dim"))
    for name, why in planned.broken.items():
        show(f"     -  {name.ljust(width)}  {painted('broken', 'red')}: {one_line(why, 400)}")
