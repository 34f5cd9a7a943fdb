"""Entries and memories among the files that a tool writes."""

from __future__ import annotations

from lemming.kernel.base import paths
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.messages import OutboxEntry, decode_entry, parse_file_names


def parse_entry_file(file: FileEffect, agent_name: str) -> OutboxEntry | None:
    """Return the entry in a tool's write to the agent's outbox, or None for any other file."""
    folder, _, file_name = file.path.rpartition("/")
    if file.root or file.removes or folder != paths.outbox_folder(agent_name):
        return None
    name = next(iter(parse_file_names(agent_name, [file_name])), None)
    return decode_entry(name, file.content) if name else None


def memory_key(file: FileEffect, agent_name: str) -> str:
    """Return the key of a memory that a tool writes, or an empty string for any other file."""
    folder = f"{paths.memory_folder(agent_name)}/"
    if file.root or file.removes or not file.path.startswith(folder):
        return ""
    return file.path.removeprefix(folder).removesuffix(".json")
