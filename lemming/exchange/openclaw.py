"""From OpenClaw's workspaces (`SOUL.md`, `AGENTS.md`, ...) to agents; the rest is kept under `x-openclaw`."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from lemming.capabilities.skills.front_matter import NotFrontMatter, load_yaml
from lemming.exchange.mapping import (
    HARMLESS,
    agent_name,
    copy_folder,
    cron_of,
    model_key,
    part_of,
    resume_of,
    schedule_of,
    seconds_of,
    tell_of_others,
    tools_for,
    words_in,
)
from lemming.exchange.source import Destination, Source, Taken
from lemming.kernel.base.errors import ToolError
from lemming.kernel.memory import memory_effect

CONFIG = "openclaw.json"
_INSTRUCTIONS = ("SOUL.md", "AGENTS.md", "USER.md")
_CONTEXT = ("TOOLS.md", "HEARTBEAT.md")
_ONCE = ("BOOT.md", "BOOTSTRAP.md")
_MEMORY = ("MEMORY.md", "memory.md")
_KNOWN_FILES = {*_INSTRUCTIONS, *_CONTEXT, *_ONCE, *_MEMORY, "IDENTITY.md"}
_DEFAULT_EVERY = "30m"
_BULLET = re.compile(
    r"^\s*[-*]\s*\**(Name|Creature|Vibe|Emoji|Avatar)\**\s*:\s*\**[ \t]*(\S.*)$", re.MULTILINE
)


def take_openclaw(source: Source, known: Destination, taken: Taken, now: str) -> None:
    """Take a workspace, or all that a folder such as `~/.openclaw` holds. `now`: the memories' timestamp."""
    config = _config(source, taken)
    folders = (
        [""]
        if _is_workspace(source, "")
        else [each for each in source.names()[0] if _is_workspace(source, each)]
    )
    entries = _entries(config)
    defaults = part_of(config, "agents", "defaults")
    for folder in folders:
        entry = _entry_for(folder or source.folder.name, entries, is_only=len(folders) == 1)
        used = {key: value for key, value in defaults.items() if key in ("model", "heartbeat")}
        heartbeat = _heartbeat(used, entry, entries)
        _take_workspace(source, folder, _Settings(entry, used, heartbeat), known, taken, now)


class _Settings(NamedTuple):
    """What the settings say of one agent: its own, the defaults, and the heartbeat that follows from both."""

    entry: dict[str, Any]
    defaults: dict[str, Any]
    heartbeat: dict[str, Any]


def _heartbeat(
    defaults: dict[str, Any], entry: dict[str, Any], entries: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return an agent's heartbeat; where any agent has one of its own, only those beat."""
    # so it is there: once one agent says a heartbeat, only those have one that say it
    if any("heartbeat" in each for each in entries) and "heartbeat" not in entry:
        return {"every": "0m"}
    return {**part_of(defaults, "heartbeat"), **part_of(entry, "heartbeat")}


def _config(source: Source, taken: Taken) -> dict[str, Any]:
    """Return the settings in the folder, or in the one above a workspace."""
    above = Source(source.folder.parent, [])
    text = source.text(CONFIG) or (above.text(CONFIG) if _is_workspace(source, "") else None)
    try:
        return part_of({"found": load_json5(text)}, "found") if text else {}
    except NotFrontMatter as error:
        taken.remark(CONFIG, f"{error}: left out; write it as plain JSON")
        return {}


def _is_workspace(source: Source, folder: str) -> bool:
    return not {"SOUL.md", "AGENTS.md", "IDENTITY.md"}.isdisjoint(source.names(folder)[1])


def _entries(config: dict[str, Any]) -> list[dict[str, Any]]:
    agents = part_of(config, "agents")
    listed = agents.get("list")
    found = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    named = part_of(agents, "entries").items()
    return [*found, *({"id": name, **each} for name, each in named if isinstance(each, dict))]


def _entry_for(folder: str, entries: list[dict[str, Any]], *, is_only: bool) -> dict[str, Any]:
    """Return the settings of the agent whose workspace a folder is."""
    for entry in entries:
        at = str(entry.get("workspace") or "").rstrip("/").rpartition("/")[2]
        if folder in (at, entry.get("id"), f"workspace-{entry.get('id')}"):
            return entry
    default = next((each for each in entries if each.get("default") or each.get("id") == "main"), None)
    if default and not default.get("workspace") and folder in ("workspace", "clawd"):
        return default
    return entries[0] if is_only and len(entries) == 1 else {}


def _take_workspace(
    source: Source, folder: str, settings: _Settings, known: Destination, taken: Taken, now: str
) -> None:
    entry, defaults, heartbeat = settings
    texts = {name: source.text(_at(folder, name)) or "" for name in _KNOWN_FILES}
    bullets = ((key.lower(), text.strip(" *_")) for key, text in _BULLET.findall(texts["IDENTITY.md"]))
    identity = {key: text for key, text in bullets if text}
    identity |= {key: value for key, value in part_of(entry, "identity").items() if isinstance(value, str)}
    said = entry.get("id") if entry.get("id") != "main" else ""
    name = agent_name(str(said or identity.get("name") or folder or source.folder.name))
    where = _at(folder, "SOUL.md")
    if not name or name in taken.resumes:
        taken.remark(folder or ".", "has no name of its own that an agent can have: left out")
        return
    sections = [f"# {each}\n{texts[each].strip()}" for each in _INSTRUCTIONS if texts[each].strip()]
    context = _take_files(source, folder, name, texts, taken, now)
    schedule = _schedule(heartbeat, texts["HEARTBEAT.md"], taken, _at(folder, "HEARTBEAT.md"))
    model = entry.get("model", defaults.get("model"))
    chosen = part_of({"model": model}, "model")
    key = model_key(str(chosen.get("primary") or "") if chosen else str(model or ""), taken, where)
    fallback = [model_key(each, taken, where) for each in words_in(chosen.get("fallbacks"))]
    taken.resumes[name] = resume_of(
        name,
        title=str(identity.get("name") or entry.get("name") or name),
        instructions="\n\n".join(sections) or f"You are {name}.",
        key=key,
        model={"fallback": [each for each in fallback if each not in ("default", key)]} if fallback else {},
        read=list(known.people),
        tools=_tools(part_of(entry, "tools"), known, taken, where),
        schedule=schedule,
        skills=["*"] if any(path.startswith(f"agents/{name}/skills/") for path in taken.files) else [],
        turn={"max_steps": 5},
        context=context,
        x_openclaw={
            **({"entry": entry} if entry else {}),
            **({"defaults": defaults} if defaults else {}),
            **({"identity": identity} if identity else {}),
        },
    )


def _take_files(
    source: Source, folder: str, name: str, texts: dict[str, str], taken: Taken, now: str
) -> list[dict[str, str]]:
    """Take memories, skills and what lies beside them; return what every prompt of the agent holds."""
    home = f"agents/{name}/workspace"
    for file in (*_CONTEXT, *_ONCE, "IDENTITY.md"):
        if texts[file].strip():
            taken.files[f"{home}/{file}"] = texts[file].encode()
    for file in _ONCE:
        if texts[file].strip():
            taken.remark(_at(folder, file), "is not run by itself; it is in the workspace")
    memory = next((texts[file] for file in _MEMORY if texts[file].strip()), "")
    if memory:
        try:
            effect = memory_effect(name, "memory", memory, now)
            taken.files[effect.path] = effect.content
        except ToolError as error:
            taken.remark(_at(folder, _MEMORY[0]), f"{error.message}; it is in the workspace")
            taken.files[f"{home}/{_MEMORY[0]}"] = memory.encode()
    copy_folder(source, _at(folder, "memory"), f"{home}/memory", taken.files)
    copy_folder(source, _at(folder, "skills"), f"agents/{name}/skills", taken.files)
    folders, files = source.names(folder)
    others = [f"{each}/" for each in folders if each not in ("memory", "skills") and not each.startswith(".")]
    others += [
        each for each in files if each not in _KNOWN_FILES and each != CONFIG and not each.startswith(".")
    ]
    tell_of_others(taken, folder, others)
    return [{"file": f"./workspace/{file}"} for file in _CONTEXT if f"{home}/{file}" in taken.files]


def _tools(said: dict[str, Any], known: Destination, taken: Taken, file: str) -> list[str]:
    listed = [*words_in(said.get("allow")), *words_in(said.get("alsoAllow"))]
    # remarks on what is taken away are of no use to anybody
    denied = set(tools_for(words_in(said.get("deny")), known, Taken(), file))
    if listed:
        return [tool for tool in tools_for(listed, known, taken, file) if tool not in denied]
    tools = [tool for tool in HARMLESS if tool in known.tools and tool not in denied]
    taken.remark(
        file, f"it may use all tools there: here {', '.join(tools)}; add others to permissions.tools"
    )
    return tools


def _schedule(heartbeat: dict[str, Any], list_of: str, taken: Taken, file: str) -> dict[str, Any]:
    """Return the schedule that a heartbeat becomes; a list without tasks is none."""
    by_news = {"run_every_n_ticks": 1, "wake": "changed"}
    has_tasks = any(line.strip() and not line.lstrip().startswith("#") for line in list_of.splitlines())
    if (not heartbeat and not has_tasks) or (list_of and not has_tasks):
        return by_news
    every = heartbeat.get("every", _DEFAULT_EVERY)
    seconds = seconds_of(every)
    if not seconds:
        if seconds is None:
            taken.remark(file, f'heartbeat "{every}" is no interval: it has no schedule')
        return by_news
    active = part_of(heartbeat, "activeHours")
    cron = cron_of(seconds, _hours(active))
    schedule, why = schedule_of(cron, str(active.get("timezone") or ""))
    if why:
        taken.remark(file, f"the heartbeat has no schedule: {why}")
        return by_news
    taken.remark(
        file, f'heartbeat every {every}: "{cron}", {schedule["timezone"]}; it answers then, not in between'
    )
    return schedule


def _hours(active: dict[str, Any]) -> str:
    """Return the hours of a day in which a heartbeat beats, as cron has them."""
    start, end = (str(active.get(key) or "").partition(":")[0] for key in ("start", "end"))
    if not (start.isdigit() and end.isdigit()) or not 0 <= int(start) < int(end) <= 24:
        return "*"
    return f"{int(start)}-{int(end) - 1}"


def _at(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


# --- settings as people write them ---------------------------------------------------------------
# JSON with comments, words without quotes and commas at the end.


LIMIT_CHARS = 256 << 10
_STRINGS_AND_COMMENTS = re.compile(
    r""""(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?|//[^\n]*|/\*.*?(?:\*/|\Z)|\t"""
    r"""|(?<=[\w$])\s*:(?=[^\s])""",
    re.DOTALL,
)


def load_json5(text: str) -> Any:
    """Return the value of a text; raise `NotFrontMatter` for what cannot be read.

    >>> load_json5("{a: 'x', /* y */ \\"b\\":[1,2,], // z\\n}")
    {'a': 'x', 'b': [1, 2]}
    """
    if len(text) > LIMIT_CHARS:
        raise NotFrontMatter(f"it has {len(text)} characters; at most {LIMIT_CHARS} are read")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return load_yaml(_STRINGS_AND_COMMENTS.sub(_as_yaml, text), 2 * LIMIT_CHARS)


def _as_yaml(found: re.Match[str]) -> str:
    part = found[0]
    if part[0] in "\"'":
        return part
    return ": " if part.lstrip().startswith(":") else " "
