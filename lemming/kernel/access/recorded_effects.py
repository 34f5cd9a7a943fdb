"""Files that a journal says a tool is to write, held against what its agent may write now."""

from __future__ import annotations

from pathlib import Path

from lemming.kernel.access.allowed_paths import resolve
from lemming.kernel.access.open import write_effect
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import PermissionDenied
from lemming.kernel.files.effects import FileEffect
from lemming.kernel.files.quota import FolderSize
from lemming.kernel.memory import decode_memory
from lemming.kernel.org.config import Org


def require_writable(agent: Agent, base: Path, settings: Org, effect: FileEffect, *, caller: str) -> None:
    """Raise a `LemmingError` unless the file is a memory of the agent, or one that its grants cover."""
    if not effect.root and effect.path.startswith(f"{paths.memory_folder(agent.name)}/"):
        _require_memory(agent, effect)
        return
    place = resolve(agent, base, f"{effect.root or base}/{effect.path}", "write", caller=caller)
    if (place.effect_root, place.relative) != (effect.root, effect.path):
        raise place.asked.refused("it is written otherwise than the engine writes a place")
    limits = FolderSize(settings.quota.max_bytes, settings.quota.max_files)
    write_effect(place, effect.content, {}, limits=limits)


def _require_memory(agent: Agent, effect: FileEffect) -> None:
    key = effect.path.rpartition("/")[2].removesuffix(".json")
    try:
        is_one = paths.memory_file(agent.name, key) == effect.path
    except ValueError:
        is_one = False
    if not is_one:
        raise PermissionDenied(f"{effect.path} is no memory of {agent.name}")
    decode_memory(effect.content, effect.path)
