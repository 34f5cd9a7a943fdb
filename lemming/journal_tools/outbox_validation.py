"""Validation of outbox files by name and content."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from itertools import islice

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.files import fs
from lemming.kernel.files.disk_errors import suggest_repair
from lemming.kernel.messages import parse_file_names
from lemming.kernel.org.organisation import OrgPath
from lemming.libraries.outbox_files import read_entry


def validate_outbox(base_path: str | os.PathLike[str], agent_name: str) -> list[Problem]:
    """Return the problems of the files in an outbox, by name and content."""
    base = paths.as_base(base_path)
    folder = paths.outbox_folder(agent_name)
    try:
        file_names = fs.list_names(base / folder)
    except OSError as error:
        hint = suggest_repair(error, "move it away, and make a folder of this name")
        return [Problem(f"the outbox must be a real folder: {error.strerror}", file=folder, hint=hint)]
    return validate_outbox_files(base, agent_name, file_names)


def validate_outbox_files(
    base: OrgPath, agent_name: str, file_names: Sequence[str], *, newest: int | None = None
) -> list[Problem]:
    """Return the problems of these files in an outbox; only the `newest` entries are opened."""
    folder = paths.outbox_folder(agent_name)
    hint = "name entries like 00000042_3fa9c1d2e0b7.json"
    problems = [
        Problem("the file name must be TICK_ID.json; the file is ignored", f"{folder}/{file_name[:80]}", hint=hint)
        for file_name in file_names
        if not paths.ENTRY_FILE.match(file_name)
    ]
    for name in parse_file_names(agent_name, file_names if newest is None else select_newest(file_names, newest)):
        try:
            with contextlib.suppress(FileNotFoundError):  # retention removed it beside us
                read_entry(base, name)
        except ConfigError as error:
            problems.extend(error.problems)
    return problems


def select_newest(file_names: Sequence[str], count: int) -> list[str]:
    """Return the names of the newest entry files among sorted file names."""
    return list(islice(filter(paths.ENTRY_FILE.match, reversed(file_names)), count))
