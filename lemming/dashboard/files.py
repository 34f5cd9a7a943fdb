"""What the page writes beside entries: resumes and settings as a person typed them, and forks."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.facts.typed_text import editable, problems_of_text, raw_text
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.org.changing import lock_folders
from lemming.kernel.org.organisation import Organisation
from lemming.timeline.fork import fork
from lemming.timeline.unkept import past_states

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


def save(org: Organisation, file: str, text: str, *, was: str) -> dict[str, Any]:
    """Write a file that people edit, byte for byte as typed, and return what `validate` says of it.

    `was`: the SHA-256 of what was there when typing began. Nothing is written where that is not there any
    more (`is_saved` is false, `is_stale` true), or where something is wrong with the text.
    """
    file, raw = editable(org, file), encoded(text)
    problems = problems_of_text(org, file, raw)
    told = [problem.as_json() for problem in problems]
    if any(problem.severity == "error" for problem in problems):
        return {"is_saved": False, "is_stale": False, "problems": told, "sha256": was}
    with lock_folders(org, [file]):
        now = sha256(raw_text(org, file)).hexdigest()
        if now != was:
            return {"is_saved": False, "is_stale": True, "problems": told, "sha256": now}
        fs.publish(org.base, file, raw)
    return {"is_saved": True, "is_stale": False, "problems": told, "sha256": sha256(raw).hexdigest()}


def encoded(text: str) -> bytes:
    """Return a text as the bytes that stand in a file; raise `UsageError` for what is none."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"this is no text (at character {error.start})") from error


def fork_beside(org: Organisation, at: str, folder: str) -> dict[str, Any]:
    """Make a fork in a new folder beside the organisation's own, and return where it is."""
    if not _FOLDER.match(folder):
        hint = "one word of letters, digits, - _ and .: what-if"
        raise UsageError(f'"{folder[:80]}" is no name for a folder beside this one', hint=hint)
    place = Path(org.base).resolve().parent / folder
    if place.exists():
        raise UsageError(f"there is something called {folder} already", hint="choose another name")
    past = past_states(org.base)
    state = past.state(at)
    fork(past, state, place, [])
    return {"folder": str(place), "at": state.tick, "next_tick": state.tick + 1, "remark": past.remark}
