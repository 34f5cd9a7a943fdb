"""What is wrong with the files of an outbox, by their names and by what stands in them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem
from lemming.kernel.files import fs
from lemming.kernel.messages import names_in, read_entry
from lemming.kernel.org.organisation import OrgPath


def outbox_problems(base_path: str | os.PathLike[str], agent_name: str) -> list[Problem]:
    """Return what is wrong with the files of one outbox, by their names and by what stands in them."""
    base = paths.as_base(base_path)
    folder = paths.outbox_folder(agent_name)
    try:
        file_names = fs.list_names(base / folder)
    except OSError:
        return [Problem("the outbox must be a real folder; a link is refused", file=folder)]
    return problems_in(base, agent_name, file_names)


def problems_in(
    base: OrgPath, agent_name: str, file_names: Sequence[str], *, newest: int | None = None
) -> list[Problem]:
    """Return the same of an outbox with these files; only the `newest` entries are opened."""
    folder = paths.outbox_folder(agent_name)
    hint = "entries are named like 00000042_3fa9c1d2e0b7.json"
    problems = [
        Problem("ignored: not an entry's file name", f"{folder}/{file_name[:80]}", hint=hint)
        for file_name in file_names
        if not paths.ENTRY_FILE.match(file_name)
    ]
    for name in names_in(agent_name, file_names if newest is None else newest_of(file_names, newest)):
        try:
            read_entry(base, name)
        except ConfigError as error:
            problems.extend(error.problems)
        except FileNotFoundError:  # retention removed it beside us
            continue
    return problems


def newest_of(file_names: Sequence[str], count: int) -> list[str]:
    """Return the file names of the newest entries of an outbox, of its files, sorted."""
    return list(islice(filter(paths.ENTRY_FILE.match, reversed(file_names)), count))
