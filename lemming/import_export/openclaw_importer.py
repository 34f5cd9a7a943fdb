"""Import of OpenClaw workspaces (`SOUL.md`, `AGENTS.md`, ...).

Unmapped keys are stored under `x-openclaw`.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from lemming.import_export.import_source import ImportResult, ImportSource, ImportTarget
from lemming.import_export.importer_helpers import (
    SAFE_TOOLS,
    build_resume,
    copy_folder,
    get_nested_object,
    map_model,
    map_tools,
    parse_interval,
    report_skipped,
    split_words,
    to_agent_name,
    to_cron,
    to_schedule,
)
from lemming.kernel.base.errors import ToolError
from lemming.kernel.memory import make_memory_effect
from lemming.libraries.front_matter import InvalidFrontMatter, parse_yaml

CONFIG = "openclaw.json"
_INSTRUCTION_FILES = ("SOUL.md", "AGENTS.md", "USER.md")
_CONTEXT_FILES = ("TOOLS.md", "HEARTBEAT.md")
_STARTUP_FILES = ("BOOT.md", "BOOTSTRAP.md")
_MEMORY_FILES = ("MEMORY.md", "memory.md")
_KNOWN_FILES = {*_INSTRUCTION_FILES, *_CONTEXT_FILES, *_STARTUP_FILES, *_MEMORY_FILES, "IDENTITY.md"}
_DEFAULT_EVERY = "30m"
_BULLET = re.compile(r"^\s*[-*]\s*\**(Name|Creature|Vibe|Emoji|Avatar)\**\s*:\s*\**[ \t]*(\S.*)$", re.MULTILINE)


def import_openclaw(source: ImportSource, target: ImportTarget, result: ImportResult, created_at: str) -> None:
    """Import a workspace, or all workspaces of a folder such as `~/.openclaw`. `created_at`: time of the memories."""
    config = _load_config(source, result)
    folders = (
        [""] if _is_workspace(source, "") else [name for name in source.list_folder()[0] if _is_workspace(source, name)]
    )
    entries = _list_entries(config)
    defaults = get_nested_object(config, "agents", "defaults")
    for folder in folders:
        entry = _find_entry(folder or source.folder.name, entries, is_only=len(folders) == 1)
        agent_defaults = {key: value for key, value in defaults.items() if key in ("model", "heartbeat")}
        heartbeat = _find_heartbeat(agent_defaults, entry, entries)
        _import_workspace(source, folder, _AgentSettings(entry, agent_defaults, heartbeat), target, result, created_at)


class _AgentSettings(NamedTuple):
    """Settings of an agent: the own entry, the defaults, and the resulting heartbeat."""

    entry: dict[str, Any]
    defaults: dict[str, Any]
    heartbeat: dict[str, Any]


def _find_heartbeat(defaults: dict[str, Any], entry: dict[str, Any], entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an agent's heartbeat. Once any agent has an own heartbeat, the default applies to no agent."""
    # OpenClaw's rule: once any agent sets a heartbeat, only agents with their own setting have one
    if any("heartbeat" in other for other in entries) and "heartbeat" not in entry:
        return {"every": "0m"}
    return {**get_nested_object(defaults, "heartbeat"), **get_nested_object(entry, "heartbeat")}


def _load_config(source: ImportSource, result: ImportResult) -> dict[str, Any]:
    """Load the settings from the folder, or from the parent folder of a workspace."""
    parent = ImportSource(source.folder.parent, [])
    text = source.read_text(CONFIG) or (parent.read_text(CONFIG) if _is_workspace(source, "") else None)
    try:
        return get_nested_object({"found": load_json5(text)}, "found") if text else {}
    except InvalidFrontMatter as error:
        result.add_remark(CONFIG, f"{error}: left out; write it as plain JSON")
        return {}


def _is_workspace(source: ImportSource, folder: str) -> bool:
    return not {"SOUL.md", "AGENTS.md", "IDENTITY.md"}.isdisjoint(source.list_folder(folder)[1])


def _list_entries(config: dict[str, Any]) -> list[dict[str, Any]]:
    agents = get_nested_object(config, "agents")
    agent_list = agents.get("list")
    entries = [entry for entry in agent_list if isinstance(entry, dict)] if isinstance(agent_list, list) else []
    entries_by_name = get_nested_object(agents, "entries").items()
    return [*entries, *({"id": name, **entry} for name, entry in entries_by_name if isinstance(entry, dict))]


def _find_entry(folder: str, entries: list[dict[str, Any]], *, is_only: bool) -> dict[str, Any]:
    """Return the settings of the agent with the given workspace folder."""
    for entry in entries:
        workspace_name = str(entry.get("workspace") or "").rstrip("/").rpartition("/")[2]
        if folder in (workspace_name, entry.get("id"), f"workspace-{entry.get('id')}"):
            return entry
    default = next((item for item in entries if item.get("default") or item.get("id") == "main"), None)
    if default and not default.get("workspace") and folder in ("workspace", "clawd"):
        return default
    return entries[0] if is_only and len(entries) == 1 else {}


def _import_workspace(
    source: ImportSource,
    folder: str,
    settings: _AgentSettings,
    target: ImportTarget,
    result: ImportResult,
    created_at: str,
) -> None:
    entry, defaults, heartbeat = settings
    texts = {name: source.read_text(_join_path(folder, name)) or "" for name in _KNOWN_FILES}
    bullets = ((key.lower(), text.strip(" *_")) for key, text in _BULLET.findall(texts["IDENTITY.md"]))
    identity = {key: text for key, text in bullets if text}
    identity |= {key: value for key, value in get_nested_object(entry, "identity").items() if isinstance(value, str)}
    agent_id = entry.get("id") if entry.get("id") != "main" else ""
    name = to_agent_name(str(agent_id or identity.get("name") or folder or source.folder.name))
    location = _join_path(folder, "SOUL.md")
    if not name or name in result.resumes:
        result.add_remark(folder or ".", "has no valid name for an agent: left out")
        return
    sections = [f"# {item}\n{texts[item].strip()}" for item in _INSTRUCTION_FILES if texts[item].strip()]
    context = _import_files(source, folder, name, texts, result, created_at)
    schedule = _build_schedule(heartbeat, texts["HEARTBEAT.md"], result, _join_path(folder, "HEARTBEAT.md"))
    model = entry.get("model", defaults.get("model"))
    model_options = get_nested_object({"model": model}, "model")
    key = map_model(str(model_options.get("primary") or "") if model_options else str(model or ""), result, location)
    fallback = [map_model(item, result, location) for item in split_words(model_options.get("fallbacks"))]
    result.resumes[name] = build_resume(
        name,
        title=str(identity.get("name") or entry.get("name") or name),
        instructions="\n\n".join(sections) or f"You are {name}.",
        key=key,
        model={"fallback": [item for item in fallback if item not in ("default", key)]} if fallback else {},
        read=list(target.people),
        tools=_map_tools(get_nested_object(entry, "tools"), target, result, location),
        schedule=schedule,
        skills=["*"] if any(path.startswith(f"agents/{name}/skills/") for path in result.files) else [],
        turn={"max_steps": 5},
        context=context,
        x_openclaw={
            **({"entry": entry} if entry else {}),
            **({"defaults": defaults} if defaults else {}),
            **({"identity": identity} if identity else {}),
        },
    )


def _import_files(
    source: ImportSource, folder: str, name: str, texts: dict[str, str], result: ImportResult, created_at: str
) -> list[dict[str, str]]:
    """Import memories, skills and other workspace files. Return the files included in every prompt of the agent."""
    home = f"agents/{name}/workspace"
    for file in (*_CONTEXT_FILES, *_STARTUP_FILES, "IDENTITY.md"):
        if texts[file].strip():
            result.files[f"{home}/{file}"] = texts[file].encode()
    for file in _STARTUP_FILES:
        if texts[file].strip():
            result.add_remark(_join_path(folder, file), "does not run automatically; it was copied to the workspace")
    memory = next((texts[file] for file in _MEMORY_FILES if texts[file].strip()), "")
    if memory:
        try:
            effect = make_memory_effect(name, "memory", memory, created_at)
            result.files[effect.path] = effect.content
        except ToolError as error:
            result.add_remark(_join_path(folder, _MEMORY_FILES[0]), f"{error.message}; it was copied to the workspace")
            result.files[f"{home}/{_MEMORY_FILES[0]}"] = memory.encode()
    copy_folder(source, _join_path(folder, "memory"), f"{home}/memory", result.files)
    copy_folder(source, _join_path(folder, "skills"), f"agents/{name}/skills", result.files)
    folders, files = source.list_folder(folder)
    skipped = [f"{entry}/" for entry in folders if entry not in ("memory", "skills") and not entry.startswith(".")]
    skipped += [entry for entry in files if entry not in _KNOWN_FILES and entry != CONFIG and not entry.startswith(".")]
    report_skipped(result, folder, skipped)
    return [{"file": f"./workspace/{file}"} for file in _CONTEXT_FILES if f"{home}/{file}" in result.files]


def _map_tools(settings: dict[str, Any], target: ImportTarget, result: ImportResult, file: str) -> list[str]:
    allowed = [*split_words(settings.get("allow")), *split_words(settings.get("alsoAllow"))]
    # the remarks on denied tools would not help the user
    denied = set(map_tools(split_words(settings.get("deny")), target, ImportResult(), file))
    if allowed:
        return [tool for tool in map_tools(allowed, target, result, file) if tool not in denied]
    tools = [tool for tool in SAFE_TOOLS if tool in target.tools and tool not in denied]
    result.add_remark(
        file, f"it may use all tools in the source, and {', '.join(tools)} here; add others to permissions.tools"
    )
    return tools


def _build_schedule(heartbeat: dict[str, Any], heartbeat_text: str, result: ImportResult, file: str) -> dict[str, Any]:
    """Convert a heartbeat to a schedule. A task list without tasks gives no schedule."""
    wake_on_change = {"run_every_n_ticks": 1, "wake": "changed"}
    has_tasks = any(line.strip() and not line.lstrip().startswith("#") for line in heartbeat_text.splitlines())
    if (not heartbeat and not has_tasks) or (heartbeat_text and not has_tasks):
        return wake_on_change
    interval = heartbeat.get("every", _DEFAULT_EVERY)
    seconds = parse_interval(interval)
    if not seconds:
        if seconds is None:
            result.add_remark(file, f'the heartbeat must be an interval, got "{interval}": no schedule')
        return wake_on_change
    active = get_nested_object(heartbeat, "activeHours")
    cron = to_cron(seconds, _to_cron_hours(active))
    schedule, problem = to_schedule(cron, str(active.get("timezone") or ""))
    if problem:
        result.add_remark(file, f"the heartbeat has no schedule: {problem}")
        return wake_on_change
    result.add_remark(
        file, f'heartbeat every {interval} becomes "{cron}", {schedule["timezone"]}; it answers only at these times'
    )
    return schedule


def _to_cron_hours(active_hours: dict[str, Any]) -> str:
    """Return the active hours of a heartbeat as a cron field."""
    start, end = (str(active_hours.get(key) or "").partition(":")[0] for key in ("start", "end"))
    if not (start.isdigit() and end.isdigit()) or not 0 <= int(start) < int(end) <= 24:
        return "*"
    return f"{int(start)}-{int(end) - 1}"


def _join_path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


# --- JSON5 settings ------------------------------------------------------------------------------
# JSON with comments, unquoted keys and trailing commas.


LIMIT_CHARS = 256 << 10
_STRINGS_AND_COMMENTS = re.compile(
    r""""(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?|//[^\n]*|/\*.*?(?:\*/|\Z)|\t"""
    r"""|(?<=[\w$])\s*:(?=[^\s])""",
    re.DOTALL,
)


def load_json5(text: str) -> Any:
    """Parse JSON with comments, unquoted keys and trailing commas.

    Raises: NotFrontMatter.

    >>> load_json5("{a: 'x', /* y */ b: [1, 2,]}")
    {'a': 'x', 'b': [1, 2]}
    """
    if len(text) > LIMIT_CHARS:
        raise InvalidFrontMatter(f"it must have at most {LIMIT_CHARS} characters, got {len(text)}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return parse_yaml(_STRINGS_AND_COMMENTS.sub(_to_yaml_token, text), 2 * LIMIT_CHARS)


def _to_yaml_token(match: re.Match[str]) -> str:
    token = match[0]
    if token[0] in "\"'":
        return token
    return ": " if token.lstrip().startswith(":") else " "
