"""Messages: entries in outboxes, names and readers. Everything in `lemming.kernel.messages`, and functions for programs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lemming.kernel.agents import list_agent_folders
from lemming.kernel.base import paths
from lemming.kernel.base.aliases import old_names_of
from lemming.kernel.files import fs
from lemming.kernel.messages import *  # noqa: F403 - a door: each name is that module's own
from lemming.kernel.messages import OutboxEntry, list_outbox, to_file_effect
from lemming.kernel.org.config import load_config
from lemming.kernel.org.resume import AgentPermissions
from lemming.libraries.outbox_files import create_entry as create_entry
from lemming.libraries.outbox_files import iter_readable as iter_readable
from lemming.libraries.outbox_files import read_entry as read_entry
from lemming.libraries.outbox_files import read_outbox_entries as read_outbox_entries
from lemming.libraries.outbox_files import redact_entry as redact_entry
from lemming.libraries.outbox_files import write_person_entry as write_person_entry

if not TYPE_CHECKING:
    __getattr__ = old_names_of(__name__)


def write_outbox_entry(base_path: str | os.PathLike[str], agent_name: str, entry: OutboxEntry) -> Path:
    """Write an entry into its author's outbox and return its path; writing twice yields one file.

    Raises `ValueError` if the entry names an author other than `to_agent_name`.
    """
    if entry.agent != agent_name:
        raise ValueError(f"entry {entry.id} is by {entry.agent!r}; agents write only to their own outbox")
    base = paths.as_base(base_path)
    effect = to_file_effect(redact_entry(entry))
    fs.write_atomic(base, effect.path, effect.content)
    return base / effect.path


def collect_readable_outboxes(
    base_path: str | os.PathLike[str], agent_name: str, permissions: AgentPermissions, limit: int | None = None
) -> list[OutboxEntry]:
    """Return every entry readable with the permissions, oldest first.

    The result is the whole readable past; `lemming.kernel.inboxes.inbox` selects the entries shown in a turn.
    """
    base = paths.as_base(base_path)
    readable = permissions.read_outboxes
    authors = filter(paths.AGENT_NAME.match, list_agent_folders(base) if "*" in readable else readable)
    names = sorted(name for author in authors if author != agent_name for name in list_outbox(base, author))
    return list(iter_readable(base, names[-limit:] if limit else names))


def cleanup_old_outbox_entries(
    base_path: str | os.PathLike[str], current_tick: int, retention_ticks: int | None = None
) -> list[str]:
    """Remove entries older than the retention (default: `config/org.json`) and return their paths."""
    base = paths.as_base(base_path)
    retention = load_config(base).org.retention_ticks if retention_ticks is None else retention_ticks
    authors = filter(paths.AGENT_NAME.match, list_agent_folders(base)) if retention else ()
    oldest = current_tick - retention
    expired = [name.file for author in authors for name in list_outbox(base, author) if name.tick < oldest]
    for path in expired:
        fs.remove(base, path)
    return expired
