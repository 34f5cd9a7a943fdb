"""`lemming repair`: mend what needs a person's decision."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from lemming.base.errors import UsageError
from lemming.commands.options import AsJson, Trust, argument, option
from lemming.commands.org import find_org
from lemming.commands.screen import counted, one_line, painted, show, show_json, tell
from lemming.commands.trust import require_agreement
from lemming.tick.runtime import Runtime, open_org
from lemming.timeline.repair.repair import Repair, find_repairs, make_repairs
from lemming.timeline.repair.retry import plan_retry, run_again
from lemming.timeline.repair.unknown import mark_call

WOULD_REPAIR = 1


def repair(
    ctx: typer.Context,
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
    as_json: AsJson = False,
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
    base = find_org(ctx)
    if (mark is not None) + retry != (call is not None):
        raise UsageError(
            "a call goes with either --mark or --retry",
            hint="lemming repair --mark done 42/editor/0, or lemming repair --retry 42/editor/0",
        )
    with open_org(base, command="repair") as runtime:
        if call is not None:
            if retry:
                if not trust:
                    require_agreement(base, can_ask=not as_json)
                _retry(runtime, call, yes=yes, as_json=as_json)
            else:
                _mark(runtime, call, happened=mark == "done", as_json=as_json)
            return
        repairs = find_repairs(base)
        to_do = [repair for repair in repairs if repair.steps]
        aside = make_repairs(runtime, to_do) if yes and to_do else ""
    for one in repairs:
        _show(one, is_done=yes, aside=aside, as_json=as_json)
    if not as_json:
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
