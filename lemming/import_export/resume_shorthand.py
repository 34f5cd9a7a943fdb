"""Shorthand of a resume, as in the flags of `lemming agents new` and in documents. Pure.

    does: Sum up what the collector found.
    read: [collector]
    cron: 0 9 * * 1
    approve: [file_write, send]

All other resume keys can appear next to the shorthand keys under their full names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple, get_args

from lemming.kernel.base.entry_kinds import ToolClass
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files.fast_decoder import extension_keys, field_types
from lemming.kernel.org.resume import Agent

Json = dict[str, Any]

DEFAULT_CREDITS = {"max_credits": 1000, "soft_cap": 500}
PLACEHOLDER = "Describe here what this agent is for and what it should write."
RESUME_PATHS = {
    "does": ("instructions",),
    "read": ("permissions", "read_outboxes"),
    "tools": ("permissions", "tools"),
    "may_read": ("permissions", "file_access", "allow_read"),
    "may_write": ("permissions", "file_access", "allow_write"),
    "every": ("schedule", "run_every_n_ticks"),
    "offset": ("schedule", "phase_offset"),
    "cron": ("schedule", "cron"),
    "timezone": ("schedule", "timezone"),
    "wake": ("schedule", "wake"),
    "steps": ("turn", "max_steps"),
    "strategy": ("turn", "strategy"),
    "kinds": ("turn", "kinds"),
    "ask": ("team", "ask"),
    "hand_to": ("team", "hand_to"),
}
"""Short names of single keys of a resume."""
SHORTHAND_KEYS = (*RESUME_PATHS, "model", "approve", "budget")
_RESUME_KEYS = frozenset((*field_types(Agent), *extension_keys(Agent))) - {"extensions"}
_LIMIT = re.compile(r"\$\s*(?P<dollars>[0-9]+(?:\.[0-9]+)?)|(?P<tokens>[1-9][0-9]*)\s+tokens")
_FOREIGN_KEYS = dict.fromkeys(
    ("goal", "instruction", "instuctions", "prompt", "role", "system", "system_prompt", "task"),
    'write "does": what the agent is to do',
)
_LIST_KEYS = frozenset({"read", "tools", "may_read", "may_write", "kinds", "ask", "hand_to", "approve"})


def default_title(name: str) -> str:
    """Return the default title of an agent.

    >>> default_title("night-editor")
    'Night Editor'
    """
    return name.replace("_", " ").replace("-", " ").title()


class ShorthandDefaults(NamedTuple):
    """Defaults for a new agent: the persons, and the time zone of schedules without a zone (empty: no default)."""

    persons: tuple[str, ...] = ()
    zone: str = ""


NO_DEFAULTS = ShorthandDefaults()


def expand_shorthand(name: str, shorthand: Mapping[str, Any], defaults: ShorthandDefaults = NO_DEFAULTS) -> Json:
    """Expand shorthand to a full resume.

    By default an agent takes a turn when an input has changed (with `cron`: by the clock), and has a budget of 1,000
    credits. Raises: UsageError for an unknown key.
    """
    known_keys = [*SHORTHAND_KEYS, *sorted(_RESUME_KEYS - {"name", "instructions"})]
    for key in shorthand:
        if key not in (*known_keys, "instructions") and not key.startswith("x-"):
            hint = _FOREIGN_KEYS.get(key, "") or did_you_mean(key, known_keys) or f"use one of {', '.join(known_keys)}"
            raise UsageError(f'unknown key "{key}"', where=f"agents.{name}", hint=hint)
    resume: Json = {"name": name, "title": default_title(name), "model": {"key": "default"}}
    resume |= {"permissions": {"read_outboxes": [], "tools": []}, "schedule": {"wake": get_default_wake(shorthand)}}
    resume |= {"instructions": PLACEHOLDER, "credits": DEFAULT_CREDITS}
    resume |= {key: deepcopy(value) for key, value in shorthand.items() if key not in SHORTHAND_KEYS}
    return {key: value for key, value in apply_shorthand(resume, shorthand, defaults).items() if value != {}}


def get_default_wake(shorthand: Mapping[str, Any]) -> str:
    """Return the default wake condition: "always" with a cron expression, otherwise "changed"."""
    return "always" if shorthand.get("cron") else "changed"


def apply_shorthand(resume: Json, shorthand: Mapping[str, Any], defaults: ShorthandDefaults = NO_DEFAULTS) -> Json:
    """Apply shorthand to a resume; shorthand replaces the earlier values.

    An agent with approvals also reads a person, because otherwise no answer could arrive.
    """
    resume = deepcopy(resume)
    for key, value in shorthand.items():
        if key in RESUME_PATHS:
            *blocks, last = RESUME_PATHS[key]
            block_value = resume
            for block in blocks:
                block_value[block] = block_value = dict(block_value.get(block) or {})
            block_value[last] = _to_list(value) if key in _LIST_KEYS else value
    if (model := shorthand.get("model")) is not None:
        resume["model"] = {**resume["model"], "key": model} if isinstance(model, str) else deepcopy(model)
    if "budget" in shorthand:
        _set_budget(resume, shorthand["budget"])
    if approve := _to_list(shorthand.get("approve") or []):
        classes = [name for name in approve if name in get_args(ToolClass)]
        tools = [name for name in approve if name not in classes]
        gates = [{"at": "call", "class": classes, "then": "ask"}] if classes else []
        gates += [{"at": "call", "tool": tools, "then": "ask"}] if tools else []
        resume["gates"] = [*(resume.get("gates") or []), *gates]
        authors = resume["permissions"].setdefault("read_outboxes", [])
        if defaults.persons and not {"*", *defaults.persons} & {*authors}:
            authors.append(defaults.persons[0])
    if shorthand.get("cron") and defaults.zone and "timezone" not in resume["schedule"]:
        resume["schedule"]["timezone"] = defaults.zone
    return resume


def to_shorthand(resume: Mapping[str, Any]) -> Json:
    """Convert a resume to shorthand; `expand_shorthand` gives an equal resume back."""
    remaining, shorthand = deepcopy(dict(resume)), {}
    name = remaining.pop("name")
    if remaining.get("title") == default_title(name):
        del remaining["title"]
    for key, path in RESUME_PATHS.items():
        value, is_present = _pop_path(remaining, path)
        if is_present and key not in ("ask", "hand_to"):
            shorthand[key] = value
        elif is_present:
            remaining.setdefault("team", {})[path[-1]] = value
    for key in ("read", "tools"):
        if shorthand.get(key) == []:
            del shorthand[key]
    if remaining.get("model") == {"key": "default"}:
        del remaining["model"]
    elif remaining.get("model", {}).keys() == {"key"}:
        shorthand["model"] = remaining.pop("model")["key"]
    for block in ("permissions", "turn", "schedule"):
        if remaining.get(block) == {}:
            del remaining[block]
    if shorthand.get("wake") == get_default_wake(shorthand):
        del shorthand["wake"]
    elif "wake" not in shorthand:
        remaining.setdefault("schedule", {})
    if remaining.setdefault("credits", {}) == DEFAULT_CREDITS:
        del remaining["credits"]
    elif remaining["credits"].keys() == {"max_credits"}:
        shorthand["budget"] = remaining.pop("credits")["max_credits"]
    return {**shorthand, **remaining}


def _pop_path(resume: Json, path: tuple[str, ...]) -> tuple[Any, bool]:
    block_value: Any = resume
    for block in path[:-1]:
        block_value = block_value.get(block)
        if not isinstance(block_value, dict):
            return None, False
    if path[-1] not in block_value:
        return None, False
    value = block_value.pop(path[-1])
    if len(path) > 2 and not block_value:
        resume[path[0]].pop(path[1])
    return value, True


def _set_budget(resume: Json, budget: Any) -> None:
    """Set the budget: a number means total credits, "$2" and "9000 tokens" are additional limits."""
    if isinstance(budget, str) and (match := _LIMIT.fullmatch(budget.strip())):
        amounts = {key: _parse_number(value) for key, value in match.groupdict().items() if value}
        limit = {"at": "spend", **amounts, "per": "agent", "then": "block"}
        resume["gates"] = [*(resume.get("gates") or []), limit]
        return
    try:
        credits = _parse_number(budget)
    except (TypeError, ValueError):
        hint = (
            'write credits such as 50, dollars such as "$2", or "200000 tokens"; '
            'for a limit a day add "window": "1d" to the gate that this writes'
        )
        message = f'a budget must be credits, dollars or tokens, got "{budget}"'
        raise UsageError(message, where=f"agents.{resume['name']}", hint=hint) from None
    resume["credits"] = {"max_credits": credits}


def _parse_number(text: Any) -> int | float:
    """Return a number as an int if integral, else as a float.

    >>> _parse_number("5"), _parse_number(0.5)
    (5, 0.5)
    """
    value = float(text)
    return int(value) if value == int(value) else value


def _to_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
