"""Import of Claude Code's subagents and skills, and of a project's `AGENTS.md`.

Keys of a subagent without a counterpart are stored under `x-claude` in its resume.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lemming.import_export.import_source import ImportResult, ImportSource, ImportTarget
from lemming.kernel.base import paths
from lemming.libraries.compatible_servers import SERVERS

_TOOLS = {
    "bash": "shell", "read": "file_read", "write": "file_write", "edit": "file_edit", "multiedit": "file_edit",
    "glob": "file_list", "ls": "file_list", "grep": "file_search", "webfetch": "http_get",
}  # fmt: skip
_UNNEEDED_TOOLS = {
    "todowrite": "memories need no tool",
    "todoread": "memories need no tool",
    "skill": '"skills" needs no tool',
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

_PROVIDERS = {"anthropic", "openai", "ollama", *(name for name, host in SERVERS.items() if host.address)}

AGENTS, SKILLS = ".claude/agents", ".claude/skills"
_MAX_STEPS = 50

_UNSUPPORTED_KEYS = {
    "permissionMode": "LeMMing's tools use permissions and do not ask",
    "hooks": "hooks are not supported",
    "mcpServers": "put servers into config/mcp.json",
    "memory": "memories need no setting; stored memories are not imported",
    "isolation": "every agent has its own workspace",
}


def import_claude(source: ImportSource, target: ImportTarget, result: ImportResult) -> None:
    """Import the subagents of a project, the skills, and the `AGENTS.md` or `CLAUDE.md`."""
    is_guided = _import_guide(source, target, result)
    skills = import_skills(source, SKILLS, target, result)
    for path in source.walk_files(AGENTS):
        file = f"{AGENTS}/{path}"
        document = source.read_markdown(file) if path.endswith(".md") else None
        if document is None:
            continue
        header, body = document
        name = to_agent_name(str(header.get("name") or path.rpartition("/")[2].removesuffix(".md")))
        if not {"name", "description"} & header.keys():
            result.add_remark(file, "has neither name nor description: left out")
        elif not name:
            result.add_remark(file, "has no valid name for an agent: left out")
        elif name in result.resumes:
            result.add_remark(file, f"there is another agent {name}: left out")
        else:
            skill_names = _map_skills(header, skills, result, file)
            result.resumes[name] = _build_resume(name, file, header, body, target, result, skill_names, is_guided)
    _join_teams(result)
    folders, files = source.list_folder(".claude")
    skipped = [f"{name}/" for name in folders if name not in ("agents", "skills")]
    report_skipped(result, ".claude", [*skipped, *(name for name in files if name != "CLAUDE.md")])


def _map_skills(header: dict[str, Any], available: dict[str, str], result: ImportResult, file: str) -> list[str]:
    requested = split_words(header.get("skills"))
    for missing in (name for name in requested if name not in available):
        result.add_remark(file, f'skill "{missing}" is not in {SKILLS}; put it into skills/')
    if requested:
        result.add_remark(file, "the skills are read on demand, not put into every prompt")
    return [available.get(name, name) for name in requested]


def _build_resume(
    name: str,
    file: str,
    header: dict[str, Any],
    body: str,
    target: ImportTarget,
    result: ImportResult,
    skills: list[str],
    is_guided: bool,
) -> dict[str, Any]:
    description = str(header.get("description") or "")
    # the remarks on denied tools would not help the user
    denied = set(map_tools(split_words(header.get("disallowedTools")), target, ImportResult(), file))
    tool_names = split_words(header.get("tools"))
    tools = map_tools([tool_name for tool_name in tool_names if not _is_subagent_tool(tool_name)], target, result, file)
    if "tools" not in header:
        tools = [tool for tool in SAFE_TOOLS if tool in target.tools]
        result.add_remark(
            file, f"it may use all tools in the source, and {', '.join(tools)} here; add others to permissions.tools"
        )
    for key, reason in _UNSUPPORTED_KEYS.items():
        if key in header:
            result.add_remark(file, f"{key}: {reason}")
    steps = header.get("maxTurns")
    max_steps = min(steps, _MAX_STEPS) if isinstance(steps, int) and steps > 0 else 0
    if max_steps and max_steps != steps:
        result.add_remark(file, f"maxTurns {steps}: a turn has at most {_MAX_STEPS} steps")
    key = map_model(str(header.get("model") or ""), result, file)
    options = {
        "skills": skills,
        "guides": is_guided,
        "turn": {"max_steps": max_steps} if max_steps else {"max_steps": 5} if tools else {},
        "x-claude": _unmapped_keys(header, name, key, max_steps),
    }
    return {
        "name": name,
        "title": make_title(name, description),
        "model": {"key": key},
        "permissions": {"read_outboxes": [*target.people], "tools": [tool for tool in tools if tool not in denied]},
        "schedule": {"run_every_n_ticks": 1, "wake": "addressed"},
        "instructions": body or description or f"You are {name}.",
        "credits": {"max_credits": 1000, "soft_cap": 500},
        **{key: value for key, value in options.items() if value},
    }


def _unmapped_keys(header: dict[str, Any], name: str, key: str, max_steps: int) -> dict[str, Any]:
    """Return the header keys without a full equivalent in the resume."""
    is_mapped = {
        "name": header.get("name") == name,
        "model": header.get("model") == key,
        "maxTurns": max_steps and header.get("maxTurns") == max_steps,
        "skills": isinstance(header.get("skills"), list),
    }
    return {header_key: value for header_key, value in header.items() if not is_mapped.get(header_key)}


def _is_subagent_tool(tool_name: str) -> bool:
    return tool_name.partition("(")[0] in ("Agent", "Task")


def _join_teams(result: ImportResult) -> None:
    """Let each agent ask the subagents in its tools: `Agent(reviewer, tester)`, or all agents if no name is given."""
    for name, resume in result.resumes.items():
        header = resume.get("x-claude", {})
        for tool_name in filter(_is_subagent_tool, split_words(header.get("tools"))):
            requested = split_words(tool_name.partition("(")[2].rstrip(")"))
            members = [
                member for member in (requested or result.resumes) if member in result.resumes and member != name
            ]
            for missing in (member for member in requested if member not in result.resumes):
                result.add_remark(name, f"it may start {missing}, which was not imported: left out")
            join_team(result, name, members)


def _import_guide(source: ImportSource, target: ImportTarget, result: ImportResult) -> bool:
    """Import the project's instructions for all agents. Return True if the project has such a file."""
    guide_path = next(
        (file for file in (paths.GUIDE, "CLAUDE.md", ".claude/CLAUDE.md") if source.read_bytes(file)), None
    )
    if guide_path and not (target.is_in_place and guide_path == paths.GUIDE):
        result.optional[paths.GUIDE] = source.read_bytes(guide_path) or b""
    return guide_path is not None


# --- our words for theirs -------------------------------------------------------------------------


def to_agent_name(text: str) -> str:
    """Convert a text to an agent name.

    Returns: an empty string if no valid name remains.

    >>> to_agent_name("Code Reviewer"), to_agent_name("../x"), to_agent_name("Зоя")
    ('code-reviewer', 'x', '')
    """
    name = re.sub(r"[^a-z0-9_-]+", "-", text.strip().lower()).strip("-_")[:63]
    return "" if paths.new_agent_name_error(name) else name


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
    result.models[key] = {"provider": provider, "model": model}
    return key


_PROVIDERS_BY_PREFIX = {"claude-": "anthropic", "gpt-": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}


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


def import_skills(source: ImportSource, folder: str, target: ImportTarget, result: ImportResult) -> dict[str, str]:
    """Import the skills of a folder, and return the resume entry of each skill by name."""
    folders = {name: f"{folder}/{name}" for name in source.list_folder(folder)[0]}
    skills = {
        name: path for name, path in folders.items() if source.read_bytes(f"{path}/{paths.SKILL_FILE}") is not None
    }
    if target.is_in_place:
        return skills
    for name, path in skills.items():
        for file in source.walk_files(path):
            if (raw := source.read_bytes(f"{path}/{file}")) is not None:
                result.optional[f"skills/{name}/{file}"] = raw
    return {name: name for name in skills}


def report_skipped(result: ImportResult, folder: str, names: Iterable[str]) -> None:
    """Add a remark with the names of files and folders skipped by the import."""
    if skipped := list(names):
        suffix = f" and {len(skipped) - 10} more" if len(skipped) > 10 else ""
        result.add_remark(folder or ".", f"not imported: {', '.join(skipped[:10])}{suffix}")
