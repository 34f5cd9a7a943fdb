"""Files the page writes besides entries: edited resumes and settings, and forks."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from lemming.journal_tools.fork import fork
from lemming.journal_tools.journal_history import open_past
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.settings_edits import lock_folders
from lemming.queries.editable_files import load_raw_text, resolve_editable_file, validate_text

_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


def save_file(org: Organisation, file: str, text: str, *, was: str) -> dict[str, Any]:
    """Write an edited file byte for byte and return the problems found by `validate`.

    `was` is the SHA-256 of the file when typing began. Nothing is written if the file has changed since
    (`is_saved` is false, `is_stale` is true), or if the text has an error.
    """
    file, raw = resolve_editable_file(org, file), encode_text(text)
    problems = validate_text(org, file, raw)
    problem_objects = [problem.as_json() for problem in problems]
    if any(problem.severity == "error" for problem in problems):
        return {"is_saved": False, "is_stale": False, "problems": problem_objects, "sha256": was}
    with lock_folders(org, [file]):
        current_digest = sha256(load_raw_text(org, file)).hexdigest()
        if current_digest != was:
            return {"is_saved": False, "is_stale": True, "problems": problem_objects, "sha256": current_digest}
        fs.write_atomic(org.base, file, raw)
    return {"is_saved": True, "is_stale": False, "problems": problem_objects, "sha256": sha256(raw).hexdigest()}


def encode_text(text: str) -> bytes:
    """Encode a text as UTF-8. Raises: UsageError for text with lone surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"not valid text (at character {error.start})") from error


def fork_to_sibling(org: Organisation, at: str, folder: str) -> dict[str, Any]:
    """Create a fork in a new sibling folder of the organisation and return the fork's location."""
    if not _FOLDER.match(folder):
        hint = "use letters, digits, - _ and ., for example what-if"
        raise UsageError(f'"{folder[:80]}" is not a valid name for a folder', hint=hint)
    target = Path(org.base).resolve().parent / folder
    if target.exists():
        raise UsageError(f"{folder} already exists", hint="choose another name")
    past = open_past(org.base)
    state = past.resolve_state(at)
    fork(past, state, target, [])
    return {"folder": str(target), "at": state.tick, "next_tick": state.tick + 1, "remark": past.reliability_note}
