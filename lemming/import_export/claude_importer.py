"""Import of Claude Code's subagents (`.claude/agents/*.md`). Unmapped keys are stored under `x-claude`."""

from __future__ import annotations

from typing import Any

from lemming.import_export.import_source import ImportResult, ImportSource, ImportTarget
from lemming.import_export.importer_helpers import (
    SAFE_TOOLS,
    build_resume,
    import_skills,
    join_team,
    make_title,
    map_model,
    map_tools,
    report_skipped,
    split_words,
    to_agent_name,
)
from lemming.kernel.base.paths import GUIDE

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
    return build_resume(
        name,
        title=make_title(name, description),
        instructions=body or description or f"You are {name}.",
        key=key,
        read=list(target.people),
        tools=[tool for tool in tools if tool not in denied],
        schedule={"run_every_n_ticks": 1, "wake": "addressed"},
        skills=skills,
        guides=is_guided,
        turn={"max_steps": max_steps} if max_steps else {"max_steps": 5} if tools else {},
        x_claude=_unmapped_keys(header, name, key, max_steps),
    )


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
    guide_path = next((file for file in (GUIDE, "CLAUDE.md", ".claude/CLAUDE.md") if source.read_bytes(file)), None)
    if guide_path and not (target.is_in_place and guide_path == GUIDE):
        result.optional[GUIDE] = source.read_bytes(guide_path) or b""
    return guide_path is not None
