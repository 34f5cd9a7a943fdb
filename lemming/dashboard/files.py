"""What the page writes beside entries: a resume as a person typed it, and forks."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.agents import agent_folders, nearest_agent
from lemming.base import paths
from lemming.base.errors import UsageError
from lemming.facts.resume_text import problems_of_text
from lemming.facts.views.agent import resume_raw
from lemming.files import fs
from lemming.files.lock import changing
from lemming.org.organisation import Organisation
from lemming.timeline.fork import fork
from lemming.timeline.unkept import past_states

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


def save_resume(org: Organisation, name: str, text: str, *, was: str) -> dict[str, Any]:
    """Write an agent's resume, byte for byte as typed, and return what `validate` says of it.

    `was`: the SHA-256 of what was there when typing began. Nothing is written where that is not there any
    more (`is_saved` is false, `is_stale` true), or where something is wrong with the text.
    """
    folders = agent_folders(org)
    if name not in folders or not paths.AGENT_NAME.match(name):
        raise UsageError(f'there is no agent "{name[:80]}"', hint=nearest_agent(name[:80], folders))
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"this is no text (at character {error.start})") from error
    problems = problems_of_text(org, name, raw)
    told = [problem.as_json() for problem in problems]
    if any(problem.severity == "error" for problem in problems):
        return {"is_saved": False, "is_stale": False, "problems": told, "sha256": was}
    with changing(org.base, paths.agent_folder(name)):
        now = sha256(resume_raw(org, name)).hexdigest()
        if now != was:
            return {"is_saved": False, "is_stale": True, "problems": told, "sha256": now}
        fs.publish(org.base, paths.resume_file(name), raw)
    return {"is_saved": True, "is_stale": False, "problems": told, "sha256": sha256(raw).hexdigest()}


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
