"""Mapping of foreign terms to ours: names, tools, models, intervals, and helpers shared by the importers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lemming.import_export.import_source import ImportResult, ImportSource, ImportTarget
from lemming.kernel.base.paths import SKILL_FILE, new_agent_name_error
from lemming.kernel.base.times.zones import zone_error
from lemming.libraries.compatible_servers import SERVERS
from lemming.libraries.cron_expressions import find_cron_error

_TOOLS = {
    "bash": "shell", "exec": "shell", "process": "shell", "shell": "shell",
    "read": "file_read", "write": "file_write", "edit": "file_edit", "multiedit": "file_edit",
    "apply_patch": "file_edit", "glob": "file_list", "ls": "file_list", "list": "file_list",
    "grep": "file_search", "webfetch": "http_get", "web_fetch": "http_get",
}  # fmt: skip
_UNNEEDED_TOOLS = {
    "todowrite": "memories need no tool",
    "todoread": "memories need no tool",
    "skill": '"skills" needs no tool',
    "memory_search": "memories need no tool",
    "memory_get": "memories need no tool",
}
SAFE_TOOLS = ("file_read", "file_write", "file_edit", "file_list", "file_search")
"""Tools for an imported agent with access to "all": they reach no further than its own workspace."""

MODEL_ALIASES = {
    "sonnet": "claude-sonnet-5-5",
    "opus": "claude-opus-5-5",
    "haiku": "claude-haiku-5-5",
    "fable": "claude-fable-5-2",
}
"""Claude Code's names of models, and the full names."""

_PROVIDERS: dict[str, dict[str, Any]] = {
    "anthropic": {"provider": "anthropic"},
    "openai": {"provider": "openai"},
    "ollama": {"provider": "ollama"},
    **{name: {"provider": name} for name, host in SERVERS.items() if host.address},
}
_INTERVAL = re.compile(r"([0-9]{1,6})\s*(ms|s|m|h|d)?\Z")
_UNIT_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def to_agent_name(text: str) -> str:
    """Convert a text to an agent name.

    Returns: an empty string if no valid name remains.

    >>> to_agent_name("Code Reviewer"), to_agent_name("../x"), to_agent_name("Зоя")
    ('code-reviewer', 'x', '')
    """
    name = re.sub(r"[^a-z0-9_-]+", "-", text.strip().lower()).strip("-_")[:63]
    return "" if new_agent_name_error(name) else name


def make_title(name: str, description: str) -> str:
    """Return a title: the first clause of a description, or the name if the description begins with "use" or
    "must".

    >>> make_title("reviewer", "Reviews code. Use it after each change.")
    'Reviews code'
    >>> make_title("code-reviewer", "Use this agent when code has changed.")
    'Code Reviewer'
    """
    first = re.split(r"[.;:\n]", " ".join(description.split()), maxsplit=1)[0].strip()
    if not first or first.lower().startswith(("use ", "must ")):
        return name.replace("-", " ").replace("_", " ").title()
    return first if len(first) <= 60 else f"{first[:60].rsplit(' ', 1)[0]} ..."


def split_words(value: Any) -> list[str]:
    """Return the items of a list, or of a comma-separated text: `Read, Agent(a, b), Bash`."""
    if isinstance(value, str):
        return [item.strip() for item in re.findall(r"(?:[^,(]|\([^)]*\)?)+", value) if item.strip()]
    return [str(item).strip() for item in value if str(item).strip()] if isinstance(value, list) else []


def map_tools(names: Iterable[str], target: ImportTarget, result: ImportResult, file: str) -> list[str]:
    """Return our tools for the tools of another program, with a remark for each tool without an equivalent."""
    mapped = []
    for name in names:
        tool_name = name.partition("(")[0].strip().lower()
        mapped_name = _TOOLS.get(tool_name, "")
        if mapped_name in target.tools:
            mapped.append(mapped_name)
            if "(" in name:
                result.add_remark(file, f"tool {name}: {mapped_name} is granted without the limits in brackets")
        elif tool_name.startswith("mcp__"):
            parts = ".".join(name.split("__"))
            result.add_remark(file, f'tool {name}: add "{parts}" to permissions.tools once its server is set up')
        elif tool_name in _UNNEEDED_TOOLS:
            result.add_remark(file, f"tool {name}: {_UNNEEDED_TOOLS[tool_name]}")
        else:
            result.add_remark(file, f"tool {name}: LeMMing has no such tool; it was left out")
    return list(dict.fromkeys(mapped))


def map_model(model_name: str, result: ImportResult, file: str) -> str:
    """Return our model key for another program's model name, and record the model entry in the result."""
    if not model_name or model_name in ("inherit", "default"):
        return "default"
    if model_name in MODEL_ALIASES:
        result.models[model_name] = {"provider": "anthropic", "model": MODEL_ALIASES[model_name]}
        return model_name
    provider, slash, model = model_name.partition("/")
    if not slash:
        provider = next((name for prefix, name in _PROVIDERS_BY_PREFIX.items() if model_name.startswith(prefix)), "")
        model = model_name
    if provider not in _PROVIDERS:
        result.add_remark(file, f'model "{model_name}": unknown provider; "default" is used instead')
        return "default"
    key = model.replace("/", "-")
    result.models[key] = {**_PROVIDERS[provider], "model": model}
    return key


_PROVIDERS_BY_PREFIX = {"claude-": "anthropic", "gpt-": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}


def parse_interval(text: Any) -> float | None:
    """Return the seconds of an interval such as `30m`. A number without a unit counts minutes.

    Returns: None for any other text.

    >>> parse_interval("30m"), parse_interval("1h"), parse_interval("0"), parse_interval("soon")
    (1800.0, 3600.0, 0.0, None)
    """
    match = _INTERVAL.match(str(text).strip().lower())
    return float(match[1]) * _UNIT_SECONDS[match[2] or "m"] if match else None


def to_cron(seconds: float, hours: str = "*") -> str:
    """Return the cron expression nearest to an interval, within the given hours.

    >>> to_cron(1800), to_cron(7200), to_cron(1800, "8-21"), to_cron(90_000)
    ('*/30 * * * *', '0 */2 * * *', '*/30 8-21 * * *', '0 0 * * *')
    """
    minutes = max(1, round(seconds / 60))
    if minutes < 60:
        step = max(divisor for divisor in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30) if divisor <= minutes)
        return f"{'*' if step == 1 else f'*/{step}'} {hours} * * *"
    step = max(divisor for divisor in (1, 2, 3, 4, 6, 8, 12, 24) if divisor <= minutes // 60)
    if step == 24:
        return f"0 {hours.partition('-')[0] if hours != '*' else 0} * * *"
    return f"0 {f'{hours}/{step}' if step > 1 else hours} * * *"


def to_schedule(cron: str, zone: str) -> tuple[dict[str, Any], str]:
    """Return a schedule by the clock and an empty reason, or an empty schedule and the reason."""
    if problem := find_cron_error(cron):
        return {}, problem[0]
    if problem := zone_error(zone or "UTC"):
        return {}, problem[0]
    return {"run_every_n_ticks": 1, "cron": cron, "timezone": zone or "UTC"}, ""


def build_resume(name: str, *, title: str, instructions: str, key: str, **options: Any) -> dict[str, Any]:
    """Return a resume with keys in the usual order. Empty values in `options` are left out."""
    permissions = {"read_outboxes": options.pop("read", []), "tools": options.pop("tools", [])}
    resume: dict[str, Any] = {
        "name": name,
        "title": title,
        "model": {"key": key, **options.pop("model", {})},
        "permissions": permissions,
        "schedule": options.pop("schedule", {"run_every_n_ticks": 1, "wake": "changed"}),
        "instructions": instructions,
        "credits": {"max_credits": 1000, "soft_cap": 500},
    }
    return {**resume, **{key.replace("x_", "x-"): value for key, value in options.items() if value}}


def join_team(result: ImportResult, name: str, members: list[str]) -> None:
    """Let an agent ask other agents, and let both sides read each other."""
    if not members:
        return
    team = result.resumes[name].setdefault("team", {"ask": []})
    for member in members:
        if member not in team["ask"]:
            team["ask"].append(member)
        for reader, author in ((name, member), (member, name)):
            authors = result.resumes[reader]["permissions"]["read_outboxes"]
            if author not in authors:
                authors.append(author)


def copy_folder(source: ImportSource, folder: str, target_folder: str, files: dict[str, bytes]) -> None:
    """Add all files of a folder to `files`."""
    for path in source.walk_files(folder):
        raw = source.read_bytes(f"{folder}/{path}")
        if raw is not None:
            files[f"{target_folder}/{path}"] = raw


def import_skills(source: ImportSource, folder: str, target: ImportTarget, result: ImportResult) -> dict[str, str]:
    """Import the skills of a folder, and return the resume entry of each skill by name."""
    folders = {name: f"{folder}/{name}" for name in source.list_folder(folder)[0]}
    skills = {name: path for name, path in folders.items() if source.read_bytes(f"{path}/{SKILL_FILE}") is not None}
    if target.is_in_place:
        return skills
    for name, path in skills.items():
        copy_folder(source, path, f"skills/{name}", result.optional)
    return {name: name for name in skills}


def report_skipped(result: ImportResult, folder: str, names: Iterable[str]) -> None:
    """Add a remark with the names of files and folders skipped by the import."""
    if skipped := list(names):
        suffix = f" and {len(skipped) - 10} more" if len(skipped) > 10 else ""
        result.add_remark(folder or ".", f"not imported: {', '.join(skipped[:10])}{suffix}")


def get_nested_object(value: Any, *keys: str) -> dict[str, Any]:
    """Return a nested object, or an empty object if a key is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
