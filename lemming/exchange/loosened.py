"""Which guards a change takes away or alters, in words: a person agrees to each by name.

What a value means is not judged here: every gate, grant and limit that is not as it was is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lemming.kernel.base.jsontext import JsonProblem, parse, to_line
from lemming.kernel.org.config import CREDITS_FILE, ORG_FILE

Json = dict[str, Any]
OF_ORG = (
    "gates", "trust", "shell", "http", "paused", "quota", "tool_files", "plugins", "on_failure", "on_waiting",
    "create_agent_allowed", "create_agent_models", "create_agent_per_turn", "create_agent_max_agents",
    "create_agent_max_depth", "tool_max_memory_bytes", "tool_timeout_s", "loops",
)  # fmt: skip
"""Keys of the settings that guard something, or run something."""
OF_RESUME = ("gates", "trust", "permissions", "credits", "model", "team", "verify", "loops", "turn")
"""Keys of a resume that do."""
_WIDTH = 160


def list_loosened_guards(path: str, before: bytes, after: bytes) -> Iterator[str]:
    """Yield the guards that a changed file drops or changes: "removes gate {...}"."""
    try:
        old, new = parse(before, allow_bom=True), parse(after, allow_bom=True)
    except (JsonProblem, ValueError):
        return
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return
    if path == CREDITS_FILE:
        keys = (*old,)
    elif path == ORG_FILE:
        keys = OF_ORG
    elif path.endswith("/resume.json"):
        keys = OF_RESUME
    else:
        return
    for key in keys:
        if key == "gates":
            yield from _gates(old.get(key), new.get(key))
        elif key in old or key in new:
            yield from _changed(key, old.get(key), new.get(key))


def _gates(old: Any, new: Any) -> Iterator[str]:
    """Yield the gates that go, and those that come before what stays: the first one that settles holds."""
    was = [to_line(gate) for gate in old] if isinstance(old, list) else []
    now = [to_line(gate) for gate in new] if isinstance(new, list) else []
    gone = [gate for gate in was if gate not in now]
    for gate in gone:
        yield f"removes gate {_short(gate)}"
    kept = [gate for gate in was if gate in now]
    if kept and kept != [gate for gate in now if gate in was]:
        yield "puts the gates into another order"
    for place, gate in enumerate(now):
        if gate not in was and '"then": "pass"' in gate and any(later in was for later in now[place:]):
            yield f"lets pass, before other gates: {_short(gate)}"


def _changed(key: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys((*old, *new)):
            yield from _changed(f"{key}.{name}", old.get(name), new.get(name))
    elif new is None and old is not None:
        yield f"removes {key} {_short(to_line(old))}"
    elif old != new:
        yield f"changes {key} from {_short(to_line(old))} to {_short(to_line(new))}"


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
