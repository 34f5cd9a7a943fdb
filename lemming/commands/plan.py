"""`lemming plan`: who fires in the coming ticks."""

from __future__ import annotations

from typing import Annotated

from lemming.capabilities.requests.waiting import waiting, waiting_text
from lemming.commands.options import Here, option
from lemming.commands.screen import one_line, painted, show, show_columns, show_json, show_list
from lemming.commands.trust import load_settings
from lemming.facts.coming import ComingTick, coming_tick, coming_until, why_one_waits
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.times.spoken import parse_moment
from lemming.kernel.base.times.words import moment_in_words, until_text
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.dependencies import Waits

NAMES_SHOWN = 6


def plan(
    here: Here,
    ticks: Annotated[int, option("--ticks N", "How many ticks to show.", min=1, max=10_000)] = 1,
    start: Annotated[int | None, option("--from T", "The first tick; default: the next one.", min=0)] = None,
    why: Annotated[
        tuple[str, str] | None, option("--why A B", "Say which permission makes A wait for B, or B for A.")
    ] = None,
    until: Annotated[
        str | None, option("--until WHEN", 'List what comes up by the clock until then: "fri", 3d, ISO.')
    ] = None,
) -> None:
    """Show who fires in the coming ticks, in what order, who waits for whom, and why the others do not.

    The number before a name is its fire point, the agent's moment inside the tick. An agent waits for those
    before it whose entries or files it may see; the others run at the same time, as many as their models
    take. For the very next tick also: what is new to those that wake for something new, and who is due and
    would sit it out, because nothing it reads has changed or its credits are spent.

    \b
    Examples:
      lemming plan
      lemming plan --ticks 10
      lemming plan --why editor agency
      lemming plan --until "fri 18:00"
    """
    org = Organisation.at(here.org)
    config = load_settings(org)
    if why:
        _explain(org, config, *why, as_json=here.as_json)
        return
    if until is not None:
        _show_coming(org, config, until, as_json=here.as_json)
        return
    first = load_tick(org) if start is None else start
    for tick in range(first, first + ticks):
        found = coming_tick(org, config, tick)
        if here.as_json:
            show_json("plan", found.as_json())
            continue
        _show(found)
        if found.is_next and (waits := waiting_text(waiting(org))):
            show(painted(f"  {one_line(waits, 400)}", "yellow"))


def _show_coming(org: Organisation, config: Config, until: str, *, as_json: bool) -> None:
    """List turns, jobs and entries that come up by the clock until a moment."""
    now = SystemClock().now()
    is_duration = until[:1].isdigit() and until[-1:] in "smhdw"
    last = parse_moment(f"in {until}" if is_duration else until, now, config.org.timezone or "UTC")
    found = coming_until(org, config, last)
    if as_json or not found:
        nothing = f"nothing comes up by the clock until {moment_in_words(last)}"
        show_list("coming", found, {}, as_json=as_json, nothing=nothing)
    else:
        show_columns(
            [
                [moment_in_words(it.at), until_text(it.at, now), it.agent, one_line(it.what, 200)]
                for it in found
            ]
        )


def _show(found: ComingTick) -> None:
    planned, points = found.plan, found.points
    show(painted(f"tick {planned.tick}{' (next)' if found.is_next else ''}", "bold"))
    width = max(map(len, planned.everyone), default=0)
    for rank, name in enumerate(planned.order):
        point = f"{points[name]:.2f}" if name in points else "    "
        why = one_line(found.notes.get(name) or found.reasons[name].text, 400)
        parts = [_waiting(found.waits[name], rank), why]
        show(f"  {point}  {name.ljust(width)}  {'; '.join(filter(None, parts))}".rstrip())
    resting = {name: f"not due until {when}" for name, when in found.resting.items()}
    for name, why in {**resting, **planned.skipped}.items():
        show(painted(f"     -  {name.ljust(width)}  {why}", "dim"))
    if resting and found.is_next:
        show(painted("  `lemming run-once --agent NAME` gives an agent a turn now", "dim"))
    for name, why in planned.broken.items():
        show(f"     -  {name.ljust(width)}  {painted('broken', 'red')}: {one_line(why, 400)}")
    chain = found.chain
    if len(chain) > 1:
        many = [*chain[: NAMES_SHOWN - 1], "...", chain[-1]]
        shown = " > ".join(chain if len(chain) <= NAMES_SHOWN else many)
        show(painted(f"  longest chain: {len(chain)} of {len(planned.order)} turns: {shown}", "dim"))


def _waiting(waits: Waits, rank: int) -> str:
    if waits.everyone:
        return "waits for everyone before it" if rank else ""
    names = sorted(waits.names)
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"waits for {', '.join(names[:NAMES_SHOWN])}{more}" if names else ""


def _explain(org: Organisation, config: Config, one: str, other: str, *, as_json: bool) -> None:
    """Say which permissions make one of two agents wait for the other when both are due."""
    later, earlier, reasons = why_one_waits(org, config, one, other)
    if as_json:
        show_json("plan_why", {"agent": later, "before_it": earlier, "reasons": reasons})
    elif reasons:
        show(f"{later} waits for {earlier}, which comes first in the order of a tick:")
        for reason in reasons:
            show(f"  {reason}")
    else:
        show(f"{later} does not wait for {earlier}: neither may see what the other writes in a tick")
