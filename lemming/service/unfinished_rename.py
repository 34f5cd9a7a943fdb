"""A rename of an agent that is under way: what it is to do stands in `renaming.json` until all is done."""

from __future__ import annotations

from pathlib import Path

from lemming.kernel.base import paths
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.jsontext import JsonProblem, parse, pretty
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import OrgPath

LIMIT_BYTES = 4096


def rename_begun(base: OrgPath) -> tuple[str, str] | None:
    """Return the names, old and new, of a rename that was not finished; None: there is none.

    Raises `CorruptState` for a file that says no names.
    """
    plain = _intent(base)
    return (str(plain["agent"]), str(plain["becomes"])) if plain else None


def is_copied(base: OrgPath) -> bool:
    """Return True if the rename under way has copied the folder, which could not be moved."""
    plain = _intent(base)
    return bool(plain and plain.get("copied") is True)


def _intent(base: OrgPath) -> dict[str, object] | None:
    try:
        plain = parse(fs.read_bytes(f"{base}/{paths.RENAMING_FILE}", LIMIT_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, JsonProblem) as error:
        raise _unreadable(str(error)) from error
    plain = plain if isinstance(plain, dict) else {}
    old, new = (str(plain.get(key, "")) for key in ("agent", "becomes"))
    if not (paths.AGENT_NAME.match(old) and paths.AGENT_NAME.match(new)):
        raise _unreadable('expected {"agent": NAME, "becomes": NAME}')
    return plain


def begin_rename(base: OrgPath, old: str, new: str, *, copied: bool = False) -> None:
    """Write down what is to be done, before any of it is; `copied`: a copy of the folder is whole."""
    content = pretty({"agent": old, "becomes": new, **({"copied": True} if copied else {})})
    fs.publish(Path(base), paths.RENAMING_FILE, content, sync=True)


def end_rename(base: OrgPath) -> None:
    """Take it away again: all is done, and survives power loss."""
    # All that was renamed is on the disk before the note of what was to be done goes.
    fs.sync_file_system(Path(base))
    fs.remove(Path(base), paths.RENAMING_FILE, sync=True)


def rename_text(old: str, new: str) -> str:
    """Return what a person is told of one that was not finished."""
    return f"the rename of {old} to {new} was cut off: some files have the old name, and some the new one"


def require_no_rename(base: OrgPath) -> None:
    """Raise `CorruptState` where a rename was not finished: a tick would take the agent for two, or none."""
    if names := rename_begun(base):
        hint = f"`lemming agents rename {' '.join(names)}` finishes it, and so does `lemming repair --yes`"
        raise CorruptState(rename_text(*names), where=paths.RENAMING_FILE, hint=hint)


def _unreadable(why: str) -> CorruptState:
    message = f"cannot tell which agent was being renamed: {why}"
    hint = "remove it if no agent was being renamed; else write it as it was"
    return CorruptState(message, where=paths.RENAMING_FILE, hint=hint)
