"""The tool `skill_read`: read the skills listed by the resume in place."""

from __future__ import annotations

from typing import Annotated

from lemming.capabilities.skills.folder_search import SkillSearch
from lemming.capabilities.skills.skill import format_skills
from lemming.capabilities.skills.skill_lookup import load_agent_skills, parse_skill_patterns
from lemming.capabilities.skills.skills_settings import valid_patterns
from lemming.ext import describe_field
from lemming.kernel.access.agent_files import read_text
from lemming.kernel.access.allowed_paths import resolve_org_path
from lemming.kernel.access.grant_syntax import unsafe_path_reason
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import PermissionDenied, ToolError
from lemming.kernel.base.jsontext import closest_match, did_you_mean
from lemming.kernel.base.paths import SKILL_FILE, components
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools import EngineTool, Places, ToolResult
from lemming.kernel.tools.tool_context import ToolContext


class SkillReadTool(EngineTool):
    """Reads a skill, or another file of a skill."""

    name = "skill_read"
    description = "Read a skill, or a file that belongs to it. Without a name: list the skills."
    tool_class = "read"
    keeps_deadline = True
    output_limit_bytes = 64 << 10

    def refusal_reason(self, agent: Agent, settings: OrgSettings) -> str:
        """Return the rule against a call: the resume must list skills."""
        return "" if valid_patterns(agent) else "refused: its resume lists no skills"

    def read_paths(self, agent: Agent, settings: OrgSettings) -> Places:
        """Return the folders searched for the resume's patterns."""
        return {folder: f'skills "{pattern}"' for pattern, folder, _ in parse_skill_patterns(agent)}

    def plan(
        self,
        context: ToolContext,
        name: Annotated[str, describe_field("The skill's name.")] = "",
        file: Annotated[str, describe_field("A file of the skill, by its path from there; empty: SKILL.md.")] = "",
    ) -> ToolResult:
        """Return the skill's text with the names of its other files, or the text of another file."""
        skills = load_agent_skills(context.agent, context.org, context.staged).by_name
        if not name:
            return ToolResult(True, "\n".join(format_skills(skills.values())) or "(no skills)")
        if name not in skills:
            hint = did_you_mean(name, list(skills)) or f"skills: {', '.join(skills) or 'none'}"
            raise ToolError(f'{self.name}: no skill "{name}"', hint=hint)
        skill = skills[name]
        other_files = [
            path for path in SkillSearch(context.base, context.staged).list_files(skill.folder) if path != SKILL_FILE
        ]
        if not file or file == SKILL_FILE:
            suffix = f"\n\n[files of this skill: {', '.join(other_files)}]" if other_files else ""
            return ToolResult(True, skill.body.rstrip() + suffix)
        parts = components(file)
        if reason := unsafe_path_reason(file, parts) or (
            file.startswith("/") and "a path from the skill's folder is needed"
        ):
            hint = f"files of the skill: {', '.join(other_files) or 'none'}"
            raise PermissionDenied(f'{self.name}: "{file[:200]}" refused: {reason}', hint=hint)
        relative = "/".join(parts)
        suggestion = closest_match(relative, other_files)
        allowed_path = resolve_org_path(
            context.base, f"{skill.folder}/{relative}", caller=self.name, nearest=suggestion
        )
        return ToolResult(True, read_text(allowed_path, context.staged))
