"""Validation of files in a tool's journal record against the current write access of the agent."""

from __future__ import annotations

from pathlib import Path

from lemming.kernel.access.agent_files import write_effect
from lemming.kernel.access.allowed_paths import resolve_path
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import PermissionDenied
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.quota import FolderSize
from lemming.kernel.memory import decode_memory
from lemming.kernel.org.config import OrgSettings


def require_writable(agent: Agent, base: Path, settings: OrgSettings, effect: FileEffect, *, caller: str) -> None:
    """Raise a `LemmingError` unless the file is a memory of the agent, or is covered by the agent's grants."""
    if not effect.root and effect.path.startswith(f"{paths.memory_folder(agent.name)}/"):
        _require_memory(agent, effect)
        return
    # By the current grants: a person may have edited the journal, or taken a right away.
    target = resolve_path(agent, base, f"{effect.root or base}/{effect.path}", "write", caller=caller)
    if (target.effect_root, target.relative) != (effect.root, effect.path):
        raise target.attempt.to_denial("it is written otherwise than the engine writes a place")
    limits = FolderSize(settings.quota.max_bytes, settings.quota.max_files)
    write_effect(target, effect.content, {}, limits=limits)


def _require_memory(agent: Agent, effect: FileEffect) -> None:
    key = effect.path.rpartition("/")[2].removesuffix(".json")
    try:
        is_memory = paths.memory_file(agent.name, key) == effect.path
    except ValueError:
        is_memory = False
    if not is_memory:
        raise PermissionDenied(f"{effect.path} is not a memory of {agent.name}")
    decode_memory(effect.content, effect.path)
