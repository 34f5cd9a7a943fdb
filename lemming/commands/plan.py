"""`lemming plan`: who fires in the coming ticks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lemming.agents import nearest_agent, survey_agents
from lemming.base.clock import SystemClock
from lemming.base.errors import UsageError
from lemming.base.times.spoken import parse_moment
from lemming.base.times.words import said, said_until
from lemming.capabilities.requests.waiting import said_of_waiting, waiting
from lemming.commands.options import AsJson, option
from lemming.commands.org import find_org
from lemming.commands.screen import one_line, painted, show, show_columns, show_json, tell
from lemming.commands.trust import load_settings
from lemming.facts.coming import coming_until
from lemming.facts.next_turn import next_turn
from lemming.facts.preview import Preview, preview_tick
from lemming.journal.report import Reason
from lemming.org.organisation import Organisation, OrgPath
from lemming.org.schedule import fire_point, in_order
from lemming.tick.counter import load_tick
from lemming.tick.dependencies import Waits, find_waits, longest_chain, why_waits
from lemming.tick.looked_at import looked_at_by
from lemming.tick.plan import Plan, make_plan, takes_turns
from lemming.tools import toolset_of
from lemming.turn.prepared import shared_by

NAMES_SHOWN = 6


def plan(
    ctx: typer.Context,
    ticks: Annotated[int, option("--ticks N", "How many ticks to show.", min=1, max=10_000)] = 1,
    start: Annotated[int | None, option("--from T", "The first tick; default: the next one.", min=0)] = None,
    why: Annotated[
        tuple[str, str] | None, option("--why A B", "Say which permission makes A wait for B, or B for A.")
    ] = None,
    until: Annotated[
        str | None, option("--until WHEN", 'List what comes up by the clock until then: "fri", 3d, ISO.')
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show who fires in the coming ticks, in what order, who waits for whom, and why the others do not.

    The number before a name is its fire point, the agent's moment inside the tick. An agent waits for those
    before it whose entries or files it may see; the others run at the same time, up to max_parallel. For the
    very next tick also: what is new to those that wake for something new, and who is due and would sit it
    out, because nothing it reads has changed or its credits are spent.

    \b
    Examples:
      lemming plan
      lemming plan --ticks 10
      lemming plan --why editor agency
      lemming plan --until "fri 18:00"
    """
    base = find_org(ctx)
    if why:
        explain(base, *why, as_json=as_json)
        return
    if until is not None:
        _show_coming(base, until, as_json=as_json)
        return
    next_tick = load_tick(base)
    first = next_tick if start is None else start
    config, survey = load_settings(base), survey_agents(base)
    for tick in range(first, first + ticks):
        if tick == next_tick:
            preview = preview_tick(base, load_settings(base))
            planned = preview.plan
            reasons = {name: preview.reason_of(name) for name in planned.order}
            notes = {name: _note(preview, name, reason) for name, reason in reasons.items()}
        else:
            planned, notes = make_plan(tick, survey, config), {}
            reasons = planned.reasons
        points = {
            name: fire_point(survey.agents[name].schedule) for name in planned.order if name in survey.agents
        }
        looked_at = looked_at_by(Organisation.at(base), survey, config)
        waits = find_waits(
            planned.order,
            survey.agents,
            config.org,
            toolset_of(config.org, base),
            base,
            looked_at,
            shared_by(config, survey),
        )
        if as_json:
            show_json("plan", _as_json(planned, points, reasons, notes, waits))
        else:
            resting = {
                name: next_turn(survey.agents[name], config, tick + 1, since=planned.since, base=base).words
                for name in planned.not_due
                if name in survey.agents
            }
            _show(planned, points, reasons, notes, waits, resting, is_next=tick == next_tick)
            if tick == next_tick and (said := said_of_waiting(waiting(base))):
                show(painted(f"  {one_line(said, 400)}", "yellow"))


def _show_coming(base: OrgPath, until: str, *, as_json: bool) -> None:
    """List turns, jobs and entries that come up by the clock until a moment."""
    org, config, now = Organisation.at(base), load_settings(base), SystemClock().now()
    is_duration = until[:1].isdigit() and until[-1:] in "smhdw"
    last = parse_moment(f"in {until}" if is_duration else until, now, config.org.timezone or "UTC")
    found = coming_until(org, config, last)
    if as_json:
        for each in found:
            show_json("coming", each.as_json())
    elif found:
        show_columns(
            [[said(it.at), said_until(it.at, now), it.agent, one_line(it.what, 200)] for it in found]
        )
    else:
        tell(f"nothing comes up by the clock until {said(last)}")


def _note(preview: Preview, name: str, reason: Reason) -> str:
    """Return why an agent that is due would take no turn, as things stand before the tick; else nothing."""
    if reason.why in ("failing", "broken"):
        return f"would fail: {reason.text}"
    if reason.why not in ("nothing_new", "out_of_credits"):
        return ""
    others = preview.waits_for(name) if reason.why == "nothing_new" else []
    unless = f", unless {' or '.join(others)} writes first" if others else ""
    return f"would be skipped: {reason.text}{unless}"


def _as_json(
    planned: Plan,
    points: dict[str, float],
    reasons: dict[str, Reason],
    notes: dict[str, str],
    waits: dict[str, Waits],
) -> dict[str, Any]:
    order = [
        {
            "agent": name,
            "fire_point": points.get(name),
            "waits_for": planned.order[:rank] if waits[name].everyone else sorted(waits[name].names),
            "why": reasons[name].why,
            "reason": reasons[name].text,
            "note": notes.get(name, ""),
        }
        for rank, name in enumerate(planned.order)
    ]
    return {
        "tick": planned.tick,
        "order": order,
        "longest_chain": longest_chain(planned.order, waits),
        "not_due": planned.not_due,
        "skipped": planned.skipped,
        "broken": planned.broken,
    }


def _show(
    planned: Plan,
    points: dict[str, float],
    reasons: dict[str, Reason],
    notes: dict[str, str],
    waits: dict[str, Waits],
    resting: dict[str, str],
    *,
    is_next: bool,
) -> None:
    show(painted(f"tick {planned.tick}{' (next)' if is_next else ''}", "bold"))
    width = max(map(len, planned.everyone), default=0)
    for rank, name in enumerate(planned.order):
        point = f"{points[name]:.2f}" if name in points else "    "
        parts = [_waiting(waits[name], rank), one_line(notes.get(name) or reasons[name].text, 400)]
        show(f"  {point}  {name.ljust(width)}  {'; '.join(filter(None, parts))}".rstrip())
    for name, why in {
        **{n: f"not due until {when}" for n, when in resting.items()},
        **planned.skipped,
    }.items():
        show(painted(f"     -  {name.ljust(width)}  {why}", "dim"))
    for name, why in planned.broken.items():
        show(f"     -  {name.ljust(width)}  {painted('broken', 'red')}: {one_line(why, 400)}")
    chain = longest_chain(planned.order, waits)
    if len(chain) > 1:
        shown = " > ".join(
            chain if len(chain) <= NAMES_SHOWN else [*chain[: NAMES_SHOWN - 1], "...", chain[-1]]
        )
        show(painted(f"  longest chain: {len(chain)} of {len(planned.order)} turns: {shown}", "dim"))


def _waiting(waits: Waits, rank: int) -> str:
    if waits.everyone:
        return "waits for everyone before it" if rank else ""
    names = sorted(waits.names)
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"waits for {', '.join(names[:NAMES_SHOWN])}{more}" if names else ""


def explain(base: OrgPath, one: str, other: str, *, as_json: bool) -> None:
    """Say which permissions make one of two agents wait for the other when both are due."""
    config, survey = load_settings(base), survey_agents(base)
    agents = survey.agents
    for name in (one, other):
        if name not in agents:
            raise UsageError(f'there is no agent "{name}"', hint=nearest_agent(name, list(agents)))
        if not takes_turns(agents[name], config):
            raise UsageError(f"{name} takes no turn: others speak for it", hint="name two who do")
    if one == other:
        raise UsageError("an agent does not wait for itself", hint="name two agents")
    earlier, later = in_order([agents[one], agents[other]])
    looked_at, shared = looked_at_by(Organisation.at(base), survey, config), shared_by(config, survey)
    reasons = why_waits(later, earlier, config.org, toolset_of(config.org, base), base, looked_at, shared)
    if as_json:
        plain = {"agent": later.name, "before_it": earlier.name, "reasons": reasons}
        show_json("plan_why", plain)
        return
    if not reasons:
        show(
            f"{later.name} does not wait for {earlier.name}: neither may see what the other writes in a tick"
        )
        return
    show(f"{later.name} waits for {earlier.name}, which comes first in the order of a tick:")
    for reason in reasons:
        show(f"  {reason}")
