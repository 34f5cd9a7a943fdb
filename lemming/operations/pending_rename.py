"""Pending rename of an agent: `renaming.json` holds the plan until all steps are done. Likewise of a rewind."""

from __future__ import annotations

from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.jsontext import JsonProblem, dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import OrgPath

LIMIT_BYTES = 4096


def find_pending_rename(base: OrgPath) -> tuple[str, str] | None:
    """Return the old and the new name of an unfinished rename, or None. Raises: CorruptState for an invalid file."""
    plan = _load_plan(base)
    return (str(plan["agent"]), str(plan["becomes"])) if plan else None


def has_copied_folder(base: OrgPath) -> bool:
    """Return True if the pending rename has copied the folder because a move was not possible."""
    plan = _load_plan(base)
    return bool(plan and plan.get("copied") is True)


def _load_plan(base: OrgPath) -> dict[str, object] | None:
    try:
        plan = parse(fs.read_bytes(f"{base}/{paths.RENAMING_FILE}", LIMIT_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, JsonProblem) as error:
        raise _unreadable_error(str(error)) from error
    plan = plan if isinstance(plan, dict) else {}
    old, new = (str(plan.get(key, "")) for key in ("agent", "becomes"))
    if not (paths.AGENT_NAME.match(old) and paths.AGENT_NAME.match(new)):
        raise _unreadable_error('expected {"agent": NAME, "becomes": NAME}')
    return plan


def begin_rename(base: OrgPath, old: str, new: str, *, copied: bool = False) -> None:
    """Write the plan of a rename before the first step. `copied`: the copy of the folder is complete."""
    content = dump_pretty({"agent": old, "becomes": new, **({"copied": True} if copied else {})})
    fs.write_atomic(Path(base), paths.RENAMING_FILE, content, sync=True)


def end_rename(base: OrgPath) -> None:
    """Remove the plan after all steps, durably."""
    # All renamed files must be durable before the plan is removed.
    fs.sync_file_system(Path(base))
    fs.remove(Path(base), paths.RENAMING_FILE, sync=True)


def describe_pending_rename(old: str, new: str) -> str:
    """Describe an unfinished rename for the user."""
    return f"the rename of {old} to {new} was interrupted: some files have the old name, others the new one"


def require_no_rename(base: OrgPath) -> None:
    """Raise `CorruptState` for an unfinished rename: a tick would see the agent twice or not at all."""
    if pending := find_pending_rename(base):
        hint = f"finish it with `lemming agents rename {' '.join(pending)}` or `lemming repair --yes`"
        raise CorruptState(describe_pending_rename(*pending), where=paths.RENAMING_FILE, hint=hint)


def require_no_rewind(base: OrgPath) -> None:
    """Raise `CorruptState` for an unfinished rewind: a tick would run on files of two ticks."""
    try:
        target = fs.read_bytes(f"{base}/{paths.REWINDING_FILE}", LIMIT_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return
    except OSError:  # a folder or a link in its place
        target = "TICK"
    message = "a rewind was interrupted: some files are of the tick to go back to, others are newer"
    hint = f"finish it with `lemming rewind --to {target} --yes`"
    raise CorruptState(message, where=paths.REWINDING_FILE, hint=hint)


def _unreadable_error(reason: str) -> CorruptState:
    message = f"cannot tell which agent was being renamed: {reason}"
    hint = "remove the file if no agent was being renamed; otherwise restore it"
    return CorruptState(message, where=paths.RENAMING_FILE, hint=hint)
