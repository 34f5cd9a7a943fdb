"""`lemming repair`, `prune` and `upgrade`: mend, take away, bring up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from lemming.commands.backup import size_in_words
from lemming.commands.options import Here, Trust, argument, duration, option
from lemming.commands.screen import counted, one_line, painted, show, show_columns, show_json, tell
from lemming.commands.trust import require_agreement
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import OrgBusy, UsageError
from lemming.kernel.org.config import load_config
from lemming.kernel.org.format import NEWEST_FORMAT
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.runtime import Runtime, open_org
from lemming.service.prune import Surplus, find_surplus, remove
from lemming.service.upgrade import steps_of
from lemming.service.upgrade import upgrade as do_upgrade
from lemming.timeline.repair.repair import Repair, find_repairs, make_repairs
from lemming.timeline.repair.retry import plan_retry, run_again
from lemming.timeline.repair.unknown import mark_call

WOULD_REPAIR = 1


def repair(
    here: Here,
    call: Annotated[
        str | None, argument("CALL", "With --mark or --retry: a call, as TICK/AGENT/INDEX.")
    ] = None,
    mark: Annotated[
        Literal["done", "failed"] | None,
        option("--mark", "Say whether a call whose outcome is unknown did happen."),
    ] = None,
    retry: Annotated[bool, option("--retry", "Run a call whose outcome is unknown once more.")] = False,
    yes: Annotated[bool, option("--yes -y", "Do what would be done.")] = False,
    trust: Trust = False,
) -> None:
    """Show what is damaged or in the way and how it would be put right; with --yes, do it.

    Nothing is deleted: what is in the way is moved to aside/TIME/ in the organisation's folder, and what is
    cut is copied there first. Entries and memories that are lost are written again from the journals. Some
    things are only listed, because only a person can tell what is right.
    Exit status 1 says that something would be done.

    A tool call that was cut off may or may not have happened. Find out, and --mark it; or, if twice does no
    harm, --retry it with --yes. Either way its agent reads of it in its next prompt. A retry that is cut off
    leaves the call unknown as before; it is never run again without being asked for again.

    \b
    Examples:
      lemming repair
      lemming repair --yes
      lemming repair --mark done 42/editor/0
      lemming repair --retry 42/editor/0 --yes
    """
    base = here.org
    if (mark is not None) + retry != (call is not None):
        raise UsageError(
            "a call goes with either --mark or --retry",
            hint="lemming repair --mark done 42/editor/0, or lemming repair --retry 42/editor/0",
        )
    with open_org(base, command="repair") as runtime:
        if call is not None:
            if retry:
                require_agreement(base, trusts=trust, can_ask=not here.as_json)
                _retry(runtime, call, yes=yes, as_json=here.as_json)
            else:
                _mark(runtime, call, happened=mark == "done", as_json=here.as_json)
            return
        repairs = find_repairs(base)
        to_do = [repair for repair in repairs if repair.steps]
        aside = make_repairs(runtime, to_do) if yes and to_do else ""
    for one in repairs:
        _show(one, is_done=yes, aside=aside, as_json=here.as_json)
    if not here.as_json:
        tell(_summary(repairs, to_do, is_done=yes, aside=aside))
    if to_do and not yes:
        raise typer.Exit(WOULD_REPAIR)


def _mark(runtime: Runtime, call_id: str, *, happened: bool, as_json: bool) -> None:
    call = mark_call(runtime.base, call_id, happened=happened)
    if as_json:
        show_json("call_marked", {**call.as_json(), "happened": happened})
    else:
        word = "did happen" if happened else "did not happen"
        tell(f"{call.agent} will read in its next prompt that {one_line(call.text, 200)} {word}")


def _retry(runtime: Runtime, call_id: str, *, yes: bool, as_json: bool) -> None:
    planned = plan_retry(runtime, call_id)
    call, text = planned.call, one_line(planned.call.text, 200)
    if not yes:
        if as_json:
            show_json("call_retried", {**call.as_json(), "is_done": False})
        else:
            tell(f"would run {text} once more for {call.agent}: add --yes if that does no harm")
        raise typer.Exit(WOULD_REPAIR)
    result = run_again(runtime, planned)
    if as_json:
        outcome = {"is_done": True, "success": result.success, "output": result.output}
        show_json("call_retried", {**call.as_json(), **outcome})
    else:
        word = "has run" if result.success else "has failed"
        tell(f"{text} {word}; {call.agent} will read so in its next prompt: {one_line(result.output, 400)}")


def _show(repair: Repair, *, is_done: bool, aside: str, as_json: bool) -> None:
    if as_json:
        made = is_done and bool(repair.steps)
        show_json("repair", {**repair.as_json(), "is_done": made, "aside": aside if made else ""})
        return
    label = "for you" if not repair.steps else "done" if is_done else "would"
    colour = painted(label, "yellow" if label != "done" else "green")
    show(f"{painted(one_line(repair.where, 200), 'bold')}: {one_line(repair.found, 600)}")
    show(f"  {colour}: {one_line(repair.action, 600)}")


def _summary(repairs: list[Repair], to_do: list[Repair], *, is_done: bool, aside: str) -> str:
    if not repairs:
        return "nothing to repair"
    left = len(repairs) - len(to_do)
    listed = f"; {counted(left, 'thing')} for you to decide" if left else ""
    if not to_do:
        return f"nothing to repair{listed}"
    if not is_done:
        return f"{counted(len(to_do), 'repair')} to make: `lemming repair --yes` makes them{listed}"
    kept = f"; what was moved or cut is in {aside}" if aside else ""
    return f"{counted(len(to_do), 'repair')} made{kept}{listed}"


DAYS_30 = 30 * 86_400.0


def prune(
    here: Here,
    yes: Annotated[bool, option("--yes -y", "Do it; without this, only show it.")] = False,
    older_than: Annotated[
        float | None,
        option(
            "--older-than DURATION",
            "Full logs and what was set aside: only what is older than this. Default: 30d.",
            parser=duration,
        ),
    ] = None,
    journals: Annotated[
        int | None,
        option(
            "--journals TICKS",
            "Keep packed journals of so many ticks. Default: kept_journals in config/org.json.",
            min=0,
        ),
    ] = None,
) -> None:
    """Show what an organisation keeps beyond its settings, and how large it is; with --yes, take it away.

    Packed journals older than kept_journals (which is null by default: all are kept), logs that were full,
    and what repairs, rewinds and removed agents left in aside/. Entries go by retention_ticks, at the end of
    each tick. Nothing that a turn, a ledger or a tick under way needs is touched. What journals told is gone
    with them: `why`, `tick` and `replay` know nothing of those ticks any more.

    \b
    Examples:
      lemming prune
      lemming prune --older-than 7d --yes
      lemming prune --journals 1000 --yes
    """
    base = here.org
    found = find_surplus(
        base,
        load_config(base),
        older_than_s=DAYS_30 if older_than is None else older_than,
        keep_journals=journals,
        now=SystemClock().now(),
    )
    left = _take_away(base, found) if yes else []
    _show_surplus(found, left, is_done=yes, as_json=here.as_json)


def _take_away(base: Organisation, found: list[Surplus]) -> list[Surplus]:
    """Remove all of it; return the journals that are left to an engine under way."""
    beside = [surplus for surplus in found if surplus.kind != "journals"]
    try:
        with open_org(base, command="prune"):
            for surplus in found:
                remove(base, surplus)
        return []
    except OrgBusy:
        for surplus in beside:
            remove(base, surplus)
        return [surplus for surplus in found if surplus.kind == "journals"]


def _show_surplus(found: list[Surplus], left: list[Surplus], *, is_done: bool, as_json: bool) -> None:
    if as_json:
        for surplus in found:
            show_json("surplus", {**surplus.as_json(), "is_removed": is_done and surplus not in left})
        return
    if not found:
        tell("nothing is kept beyond the settings")
        return
    show_columns([[size_in_words(surplus.bytes), surplus.path, surplus.why] for surplus in found])
    gone = [surplus for surplus in found if surplus not in left]
    size = size_in_words(sum(surplus.bytes for surplus in (gone if is_done else found)))
    if not is_done:
        tell(
            f"{counted(len(found), 'thing')}, {size}: nothing has been removed; `lemming prune --yes` does it"
        )
        return
    tell(f"{counted(len(gone), 'thing')} removed, {size}")
    if left:
        tell("an engine is running: journals are left to it, or end it first", style="yellow")


def upgrade(
    here: Here, yes: Annotated[bool, option("--yes -y", "Do it; without this, only show it.")] = False
) -> None:
    """Show what earlier versions wrote otherwise, and with --yes write it as this one does.

    It need not be done: organisations of every earlier version are run as they are. Afterwards
    config/org.json says "format", by which a version that is too old for it can tell: it refuses before it
    writes anything. `lemming backup` first is a good habit.

    \b
    Example:
      lemming upgrade --yes
    """
    base = here.org
    before, steps = load_config(base).org.format, steps_of(base)
    if yes and steps:
        with open_org(base, command="upgrade"):
            do_upgrade(base, steps)
    is_done = yes or not steps
    if here.as_json:
        facts = {"from": before, "to": NEWEST_FORMAT, "is_done": is_done}
        show_json("upgrade", {**facts, "files": [*steps]})
        return
    for file, text in steps.items():
        show(f"{file}: {text}")
    if not steps:
        tell(f"{Path(base)} has format {NEWEST_FORMAT}, the newest: nothing to upgrade")
    elif yes:
        tell(f"{counted(len(steps), 'file')} written: format {NEWEST_FORMAT} (before: {before})")
    else:
        tell(f"from format {before} to {NEWEST_FORMAT}; `lemming upgrade --yes` does it")
