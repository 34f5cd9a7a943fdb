"""Memories of an agent saved and deleted outside a turn."""

from __future__ import annotations

import os
from typing import Any

from lemming.kernel.base import paths
from lemming.kernel.base.clock import Clock, SystemClock, timestamp
from lemming.kernel.base.redaction.secrets import redact_json
from lemming.kernel.files import fs
from lemming.kernel.files.file_effects import apply_effect
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.memory import load_memory, make_memory_effect


def save_memory(
    base_path: str | os.PathLike[str], agent_name: str, key: str, value: Any, *, clock: Clock | None = None
) -> None:
    """Store `value` under `key`. Raises `ToolError` for an invalid one, `CorruptState` for a damaged file."""
    base = paths.as_base(base_path)
    current_time = timestamp((clock or SystemClock()).now())
    make_memory_effect(agent_name, key, value, current_time)  # rejects an invalid value
    effect = make_memory_effect(agent_name, key, redact_json(value), current_time)
    load_memory(base, agent_name, key)  # a damaged file is not replaced
    apply_effect(base, effect)


def delete_memory(base_path: str | os.PathLike[str], agent_name: str, key: str) -> bool:
    """Delete a key; return False if the key did not exist."""
    base, file = paths.as_base(base_path), make_memory_effect(agent_name, key, None, "").path  # rejects an invalid key
    existed = path_exists(f"{base}/{file}")
    fs.remove(base, file)
    return existed
