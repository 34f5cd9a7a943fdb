"""Locations of all files of an organisation. Pure: names only, nothing is opened."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

Components = tuple[str, ...]
AGENT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
AGENT_NAME_RULE = "a name has 1 to 63 characters a-z, 0-9, _ and -, and starts with a letter or digit"
MEMORY_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}\Z")
MEMORY_KEY_RULE = "a memory key has 1 to 120 characters A-Z, a-z, 0-9, _, - and ., and does not start with . or -"
ENTRY_FILE = re.compile(r"([0-9]{8,12})_([A-Za-z0-9]{1,64})\.json\Z")
JOURNAL_FILE = re.compile(r"([0-9]{8,12})\.jsonl\Z")

STORE = "shared/store"
TRUST = "trust"
EVALS = "evals"
TICK_FILE = "tick.json"
RENAMING_FILE = "renaming.json"
REWINDING_FILE = ".lemming/rewinding"
ORG_FILE = "config/org.json"
MODELS_FILE = "config/models.json"
CREDITS_FILE = "config/credits.json"
GUIDE = "AGENTS.md"
SKILL_FILE = "SKILL.md"
JOURNALS = "logs/ticks"
PATCHES = "logs/patches"
ENGINE_LOG = "logs/engine.log"
LOCK_FILE = ".lemming/lock"
CIRCUITS_FILE = ".lemming/circuits.json"
SCHEDULES_FILE = ".lemming/schedules.json"
SERVERS_FILE = ".lemming/servers.json"
REHEARSAL_FILE = ".lemming/rehearsal.json"
THREADS = ".lemming/threads"
ARCHIVE_FOLDER = "aside"
REPORTED_FILE = "logs/told.json"
TURNS_NOT_DONE = "logs/turns_not_done.jsonl"

RESERVED_NAMES = frozenset({"all"})
"""Names no agent can have: in the `target` of an entry they mean all readers."""


def new_agent_name_error(name: str) -> str:
    """Return the reason a name is not allowed for a new agent, or an empty string.

    >>> bool(new_agent_name_error("all")), new_agent_name_error("allan")
    (True, '')
    """
    if not AGENT_NAME.match(name):
        return f'"{name[:80]}" must be a name: {AGENT_NAME_RULE}'
    if name in RESERVED_NAMES:
        return f'"{name}" must not be an agent\'s name: as the target of an entry it means all agents'
    return ""


def as_base(base_path: str | os.PathLike[str]) -> Path:
    """Return the organisation's folder as an absolute path."""
    if isinstance(base_path, Path) and base_path.is_absolute():
        return base_path
    return Path(base_path).absolute()


@lru_cache(maxsize=1 << 12)
def agent_folder(name: str) -> str:
    """Return `agents/<name>`. Raise `ValueError` for an unsafe name."""
    if not AGENT_NAME.match(name):
        raise ValueError(f"{name[:80]!r}: {AGENT_NAME_RULE}")
    return f"agents/{name}"


ALL_RESUMES = "agents/*/resume.json"
"""The resumes of all agents, as tools name them. In any other path a star is a letter."""


def resume_file(name: str) -> str:
    """Return the path of an agent's resume."""
    return f"{agent_folder(name)}/resume.json"


def outbox_folder(name: str) -> str:
    """Return the path of an agent's outbox."""
    return f"{agent_folder(name)}/outbox"


@lru_cache(maxsize=1 << 12)
def entry_file(name: str, tick: int, entry_id: str) -> str:
    """Return the path of an outbox entry. Raise `ValueError` for an invalid id.

    >>> entry_file("planner", 42, "3fa9c1d2e0b7")
    'agents/planner/outbox/00000042_3fa9c1d2e0b7.json'
    """
    file_name = f"{tick:08d}_{entry_id}.json"
    if not ENTRY_FILE.match(file_name):
        raise ValueError(f"{file_name[:120]!r} is not an entry's file name")
    return f"{outbox_folder(name)}/{file_name}"


def memory_folder(name: str) -> str:
    """Return the path of an agent's memory."""
    return f"{agent_folder(name)}/memory"


@lru_cache(maxsize=1 << 12)
def memory_file(name: str, key: str) -> str:
    """Return the path of one memory. Raise `ValueError` for an unsafe key."""
    if not MEMORY_KEY.match(key) or key.endswith("."):
        raise ValueError(f"{key[:80]!r}: {MEMORY_KEY_RULE}")
    return f"{memory_folder(name)}/{key}.json"


def workspace_folder(name: str) -> str:
    """Return the path of an agent's own files."""
    return f"{agent_folder(name)}/workspace"


def ledger_file(name: str) -> str:
    """Return the path of an agent's ledger of turns."""
    return f"{agent_folder(name)}/turns.jsonl"


def channel_log(name: str) -> str:
    """Return the path of the message log of an agent's channel."""
    return f"{agent_folder(name)}/channel.jsonl"


def activity_log(name: str) -> str:
    """Return the path of an agent's activity log."""
    return f"{agent_folder(name)}/logs/activity.log"


def journal_file(tick: int) -> str:
    """Return the path of a tick's journal.

    >>> journal_file(42)
    'logs/ticks/00000042.jsonl'
    """
    return f"{JOURNALS}/{tick:08d}.jsonl"


def components(path: str) -> Components:
    """Return the names in a path, without empty names and dots."""
    return tuple(part for part in path.split("/") if part not in ("", "."))


def resolve_agent_path(agent_name: str, path: str) -> str:
    """Return an agent's path in resolved form: relative to the organisation, or absolute.

    >>> resolve_agent_path("ada", "notes.txt"), resolve_agent_path("ada", "./shared/facts.txt")
    ('agents/ada/workspace/notes.txt', 'shared/facts.txt')
    """
    if path.startswith("/"):
        return path
    workspace, parts = tuple(workspace_folder(agent_name).split("/")), components(path)
    return "/".join(expand_named_root(parts, (), workspace) or (*workspace, *parts))


def expand_named_root(parts: Components, org: Components, workspace: Components) -> Components | None:
    """Return the resolved path for `workspace/...` and `shared/...`, or None for any other path."""
    if parts[:1] == ("workspace",):
        return (*workspace, *parts[1:])
    return (*org, *parts) if parts[:1] == ("shared",) else None
