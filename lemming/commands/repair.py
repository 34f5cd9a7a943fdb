"""`lemming repair`, `prune` and `upgrade`: maintenance of an organisation's files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from lemming.commands.backup import format_size
from lemming.commands.command_context import Apply, CommandContext, Trust, argument, option, parse_seconds
from lemming.commands.terminal import (
    format_count,
    one_line,
    print_columns,
    print_data,
    print_json,
    print_notice,
    print_warning,
    style_text,
)
from lemming.commands.trust import require_workspace_trust
from lemming.journal_tools.repair.damage_repair import Repair, find_repairs, make_repairs
from lemming.journal_tools.repair.unknown_calls import mark_call, plan_retry, retry_call
from lemming.kernel.base.clock import SystemClock
from lemming.kernel.base.errors import OrgBusy, UsageError
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import NEWEST_FORMAT, Organisation, OrgPath
from lemming.kernel.tick.runtime import Runtime
from lemming.operations.format_upgrade import plan_upgrade
from lemming.operations.format_upgrade import upgrade_files as do_upgrade
from lemming.operations.open_org import open_org
from lemming.operations.pruning import PrunableItem, find_prunable_items, remove_item

_REPAIRS_PENDING_STATUS = 1


def repair(
    context: CommandContext,
    call: Annotated[str | None, argument("CALL", "With --mark or --retry: the call, as TICK/AGENT/INDEX.")] = None,
    mark: Annotated[
        Literal["done", "failed"] | None, option("--mark", "Record whether a call with unknown outcome succeeded.")
    ] = None,
    retry: Annotated[bool, option("--retry", "Retry a call with unknown outcome.")] = False,
    yes: Annotated[bool, option("--yes -y", "Apply the repairs.")] = False,
    trust: Trust = False,
) -> None:
    """Repair damage that needs a person's decision; without --yes, list the repairs.

    Nothing is deleted: obstructing files are moved to aside/TIME/ in the organisation's folder, and cut
    content is copied there first. Lost entries and memories are restored from the journals. Some problems are
    only listed, because the decision needs a person. Exit status 1: there are repairs to make.

    An interrupted tool call may or may not have succeeded. Investigate and use --mark, or, if a second run is
    harmless, use
    --retry with --yes. In both cases the agent is informed in its next prompt. An interrupted retry leaves
    the call unknown,
    and is not repeated without a new command.

    \b
    Examples:
      lemming repair
      lemming repair --yes
      lemming repair --mark done 42/editor/0
      lemming repair --retry 42/editor/0 --yes
    """
    base = context.org
    if (mark is not None) + retry != (call is not None):
        hint = "lemming repair --mark done 42/editor/0, or lemming repair --retry 42/editor/0"
        raise UsageError("a call requires either --mark or --retry", hint=hint)
    with _open_to_repair(base, writes=yes or call is not None) as runtime:
        if runtime and call is not None and retry:
            require_workspace_trust(base, is_trusted=trust, can_ask=not context.as_json)
            _retry_call(runtime, call, confirmed=yes)
            return
        if runtime and call is not None:
            marked, happened = mark_call(runtime.base, call, happened=mark == "done"), mark == "done"
            print_json("call_marked", {**marked.as_json(), "did happen": happened})
            outcome = f"{one_line(marked.summary, 200)} {'did happen' if happened else 'did not happen'}"
            print_notice(f"{marked.agent} will be told in its next prompt that {outcome}")
            return
        repairs = find_repairs(base)
        to_do = [repair for repair in repairs if repair.steps]
        archive_path = make_repairs(runtime, to_do) if runtime and yes and to_do else ""
    for listed in repairs:
        is_made = yes and bool(listed.steps)
        print_json("repair", {**listed.as_json(), "is_done": is_made, "aside": archive_path if is_made else ""})
        label = "for you" if not listed.steps else "done" if yes else "would"
        colour = style_text(label, "yellow" if label != "done" else "green")
        print_data(f"{style_text(one_line(listed.where, 200), 'bold')}: {one_line(listed.found, 600)}")
        print_data(f"  {colour}: {one_line(listed.action, 600)}")
    print_notice(_format_summary(repairs, to_do, is_done=yes, archive_path=archive_path))
    if to_do and not yes:
        raise typer.Exit(_REPAIRS_PENDING_STATUS)


@contextlib.contextmanager
def _open_to_repair(base: OrgPath, *, writes: bool) -> Iterator[Runtime | None]:
    """Hold the organisation's lock. A list of repairs needs none where no engine could write: on a read-only disk."""
    if not writes and not os.access(f"{base}/agents", os.W_OK):
        yield None
        return
    with open_org(base, command="repair") as runtime:
        yield runtime


def _retry_call(runtime: Runtime, call_id: str, *, confirmed: bool) -> None:
    plan = plan_retry(runtime, call_id)
    call, text = plan.call, one_line(plan.call.summary, 200)
    if not confirmed:
        print_json("call_retried", {**call.as_json(), "is_done": False})
        print_notice(f"would run {text} again for {call.agent}; add --yes if repeating it is safe")
        raise typer.Exit(_REPAIRS_PENDING_STATUS)
    result = retry_call(runtime, plan)
    outcome = {"is_done": True, "success": result.success, "output": result.output}
    print_json("call_retried", {**call.as_json(), **outcome})
    verb = "has run" if result.success else "has failed"
    print_notice(f"{text} {verb}; {call.agent} will be told in its next prompt: {one_line(result.output, 400)}")


def _format_summary(repairs: list[Repair], to_do: list[Repair], *, is_done: bool, archive_path: str) -> str:
    if not repairs:
        return "nothing to repair"
    undecided = len(repairs) - len(to_do)
    undecided_text = f"; {format_count(undecided, 'thing')} for you to decide" if undecided else ""
    if not to_do:
        return f"nothing to repair{undecided_text}"
    if not is_done:
        return f"{format_count(len(to_do), 'repair')} possible: `lemming repair --yes` applies them{undecided_text}"
    archive_text = f"; removed content is in {archive_path}" if archive_path else ""
    return f"{format_count(len(to_do), 'repair')} made{archive_text}{undecided_text}"


_DEFAULT_AGE_S = 30 * 86_400.0
_AGE_HELP = "Remove only rotated logs and archived files older than this. Default: 30d."
_TICKS_HELP = "Keep packed journals of the last N ticks. Default: kept_journals in config/org.json."


def prune(
    context: CommandContext,
    yes: Apply = False,
    older_than: Annotated[float | None, option("--older-than DURATION", _AGE_HELP, parser=parse_seconds)] = None,
    journals: Annotated[int | None, option("--keep-ticks N", _TICKS_HELP, min=0)] = None,
) -> None:
    """Remove old journals, logs and archived files; without --yes, list the files with sizes.

    Removes packed journals older than kept_journals (null by default: all journals are kept), rotated logs,
    and files in aside/ left by repairs, rewinds and removed agents. Entries are not affected: retention_ticks
    removes entries at the end of each tick. Files needed by turns, ledgers or an unfinished tick are kept.
    `why`, `tick` and `replay` no longer know ticks of removed journals.

    \b
    Examples:
      lemming prune
      lemming prune --older-than 7d --yes
      lemming prune --keep-ticks 1000 --yes
    """
    base = context.org
    surplus_items = find_prunable_items(
        base,
        load_config(base),
        older_than_s=_DEFAULT_AGE_S if older_than is None else older_than,
        keep_journals=journals,
        current_time=SystemClock().now(),
    )
    skipped = _remove_surplus(base, surplus_items) if yes else []
    for surplus in surplus_items:
        print_json("surplus", {**surplus.as_json(), "is_removed": yes and surplus not in skipped})
    print_columns([[format_size(surplus.bytes), surplus.path, surplus.why] for surplus in surplus_items])
    removed = [surplus for surplus in surplus_items if surplus not in skipped]
    count, size = format_count(len(removed), "thing"), format_size(sum(surplus.bytes for surplus in removed))
    if not surplus_items:
        print_notice("nothing to remove")
    elif yes:
        print_notice(f"{count} removed, {size}")
    else:
        print_notice(f"{count}, {size}: nothing was removed; `lemming prune --yes` removes them")
    if skipped:
        print_warning("an engine is running, so journals are kept; stop it first to remove them")


def _remove_surplus(base: Organisation, items: list[PrunableItem]) -> list[PrunableItem]:
    """Remove all items; return the journals skipped because of a running engine."""
    try:
        with open_org(base, command="prune"):
            for surplus in items:
                remove_item(base, surplus)
        return []
    except OrgBusy:
        for surplus in items:
            if surplus.kind != "journals":
                remove_item(base, surplus)
        return [surplus for surplus in items if surplus.kind == "journals"]


def upgrade(context: CommandContext, yes: Apply = False) -> None:
    """Upgrade files to the current format; without --yes, list the changes.

    An upgrade is optional: organisations of every earlier version run unchanged. After an upgrade, "format"
    in config/org.json makes older versions of LeMMing refuse to run before writing anything. Run `lemming
    backup` first.

    \b
    Example:
      lemming upgrade --yes
    """
    base = context.org
    old_format, steps = load_config(base).org.format, plan_upgrade(base)
    if yes and steps:
        with open_org(base, command="upgrade"):
            do_upgrade(base, steps)
    facts = {"from": old_format, "to": NEWEST_FORMAT, "is_done": yes or not steps}
    print_json("upgrade", {**facts, "files": [*steps]})
    for file, text in steps.items():
        print_data(f"{file}: {text}")
    if not steps:
        print_notice(f"{Path(base)} has format {NEWEST_FORMAT}, the newest: nothing to upgrade")
    elif yes:
        print_notice(f"{format_count(len(steps), 'file')} written: format {NEWEST_FORMAT} (before: {old_format})")
    else:
        print_notice(f"from format {old_format} to {NEWEST_FORMAT}; `lemming upgrade --yes` writes the files")
