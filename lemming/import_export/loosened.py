"""Descriptions of removed or changed guards: a person agrees to each guard by name.

The meaning of a value is not evaluated: every changed gate, grant and limit is listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lemming.kernel.base.jsontext import JsonProblem, parse, to_line
from lemming.kernel.org.config import CREDITS_FILE, ORG_FILE

ORG_GUARD_KEYS = (
    "gates", "trust", "shell", "http", "paused", "quota", "tool_files", "plugins", "on_failure", "on_waiting",
    "create_agent_allowed", "create_agent_models", "create_agent_per_turn", "create_agent_max_agents",
    "create_agent_max_depth", "tool_max_memory_bytes", "tool_timeout_s", "loops",
)  # fmt: skip
"""Keys of the settings that guard something, or run something."""
RESUME_GUARD_KEYS = ("gates", "trust", "permissions", "credits", "model", "team", "verify", "loops", "turn")
"""Keys of a resume that do."""
_WIDTH = 160


def list_loosened_guards(path: str, old_raw: bytes, new_raw: bytes) -> Iterator[str]:
    """Yield the guards removed or altered in a changed file: "removes gate {...}"."""
    try:
        old, new = parse(old_raw, allow_bom=True), parse(new_raw, allow_bom=True)
    except (JsonProblem, ValueError):
        return
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return
    if path == CREDITS_FILE:
        keys = (*old,)
    elif path == ORG_FILE:
        keys = ORG_GUARD_KEYS
    elif path.endswith("/resume.json"):
        keys = RESUME_GUARD_KEYS
    else:
        return
    for key in keys:
        if key == "gates":
            yield from _list_gate_changes(old.get(key), new.get(key))
        elif key in old or key in new:
            yield from _list_changes(key, old.get(key), new.get(key))


def _list_gate_changes(old: Any, new: Any) -> Iterator[str]:
    """Yield the removed gates, and new gates in front of remaining gates: the first decisive gate wins."""
    old_lines = [to_line(gate) for gate in old] if isinstance(old, list) else []
    new_lines = [to_line(gate) for gate in new] if isinstance(new, list) else []
    removed = [gate for gate in old_lines if gate not in new_lines]
    for gate in removed:
        yield f"removes gate {_truncate(gate)}"
    remaining = [gate for gate in old_lines if gate in new_lines]
    if remaining and remaining != [gate for gate in new_lines if gate in old_lines]:
        yield "changes the order of the gates"
    for index, gate in enumerate(new_lines):
        if (
            gate not in old_lines
            and '"then": "pass"' in gate
            and any(other in old_lines for other in new_lines[index:])
        ):
            yield f"lets pass, before other gates: {_truncate(gate)}"


def _list_changes(key: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys((*old, *new)):
            yield from _list_changes(f"{key}.{name}", old.get(name), new.get(name))
    elif new is None and old is not None:
        yield f"removes {key} {_truncate(to_line(old))}"
    elif old != new:
        yield f"changes {key} from {_truncate(to_line(old))} to {_truncate(to_line(new))}"


def _truncate(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
