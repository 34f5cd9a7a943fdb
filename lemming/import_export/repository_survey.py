"""What a repository holds for coding agents: instructions, subagents, skills, MCP servers and settings.

The repository is untrusted. Texts are taken for prompts of agents; nothing that would start a program is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lemming.import_export.import_source import ImportSource
from lemming.kernel.base.jsontext import JsonProblem, parse
from lemming.libraries.wording import format_count

GUIDES = ("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md")
AGENTS, SKILLS, SETTINGS = ".claude/agents", ".claude/skills", (".claude/settings.json", ".claude/settings.local.json")
OTHER_SETTINGS = (".codex", ".gemini", ".opencode", ".pi", "opencode.json")
_UNTRUSTED = "not enabled: a repository's own settings are untrusted"


class SurveyItem(NamedTuple):
    """Something that was found: its name, and what became of it."""

    name: str
    result: str


class RepositorySurvey(NamedTuple):
    """The texts that are taken, and a line about each thing that was found.

    `guide`: text for all prompts. `roles`: instructions by agent, "triager" or "reviewer". `skills`: description by path.
    """

    guide: str
    roles: Mapping[str, str]
    skills: Mapping[str, str]
    items: list[SurveyItem]


def survey_repository(folder: Path) -> RepositorySurvey:
    """Read the files for coding agents in a work tree. Links, too large files and broken files are only named."""
    source, items = ImportSource(folder), list[SurveyItem]()
    guide, roles = _read_guide(source, items), _read_roles(source, items)
    skills = _read_skills(source, items)
    _list_servers(source, items)
    _list_settings(source, items)
    items += (SurveyItem(remark.file, f"not taken: {remark.message}") for remark in source.remarks)
    return RepositorySurvey(guide, roles, skills, items)


def _read_guide(source: ImportSource, items: list[SurveyItem]) -> str:
    guide, guide_file = "", ""
    for file in GUIDES:
        if not (text := source.read_text(file)):
            continue
        if guide:
            items.append(SurveyItem(file, f"not taken: {guide_file} is"))
        else:
            guide, guide_file = text, file
            items.append(SurveyItem(file, "taken: a copy is in the prompts of coder and reviewer; read it"))
    return guide


def _read_roles(source: ImportSource, items: list[SurveyItem]) -> dict[str, str]:
    roles: dict[str, str] = {}
    for path in source.walk_files(AGENTS):
        file, document = f"{AGENTS}/{path}", source.read_markdown(f"{AGENTS}/{path}") if path.endswith(".md") else None
        if document is None:
            continue
        name = path.rpartition("/")[2].lower()
        role = "reviewer" if "review" in name else "triager" if "triag" in name else ""
        if role and document[1] and role not in roles:
            roles[role] = document[1]
            items.append(SurveyItem(file, f"taken: its text is in the instructions of {role}; read it"))
        else:
            items.append(SurveyItem(file, f"not taken: `lemming import claude {source.folder}` makes it an agent"))
    return roles


def _read_skills(source: ImportSource, items: list[SurveyItem]) -> dict[str, str]:
    skills: dict[str, str] = {}
    for name in source.list_folder(SKILLS)[0]:
        file = f"{SKILLS}/{name}/SKILL.md"
        if (document := source.read_markdown(file)) is not None:
            skills[file] = " ".join(str(document[0].get("description") or name).split())[:200]
            items.append(SurveyItem(file, "taken: coder is told of it, and reads it in its clone"))
    return skills


def _list_servers(source: ImportSource, items: list[SurveyItem]) -> None:
    if (document := _read_json(source, ".mcp.json", items)) is not None:
        servers = document.get("mcpServers")
        names = ", ".join(servers) if isinstance(servers, dict) else "none"
        items.append(SurveyItem(".mcp.json", f"{_UNTRUSTED}. Servers: {names}"))


def _list_settings(source: ImportSource, items: list[SurveyItem]) -> None:
    for file in SETTINGS:
        if (document := _read_json(source, file, items)) is None:
            continue
        hooks = document.get("hooks")
        events = f". Hooks: {', '.join(hooks)}" if isinstance(hooks, dict) and hooks else ""
        other_keys = [key for key in document if key != "hooks"]
        keys = f". {format_count(len(other_keys), 'other key')}: {', '.join(other_keys)}" if other_keys else ""
        items.append(SurveyItem(file, f"{_UNTRUSTED}{events}{keys}"))
    folders, files = source.list_folder()
    items += (SurveyItem(name, _UNTRUSTED) for name in OTHER_SETTINGS if name in (*folders, *files))


def _read_json(source: ImportSource, file: str, items: list[SurveyItem]) -> dict[str, Any] | None:
    if (raw := source.read_bytes(file)) is None:
        return None
    try:
        document = parse(raw)
    except JsonProblem as problem:
        items.append(SurveyItem(file, f"{_UNTRUSTED}; it is no JSON: {problem.message}"))
        return None
    return document if isinstance(document, dict) else {}
