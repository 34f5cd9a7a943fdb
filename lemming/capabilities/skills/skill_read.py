"""`skill_read`: the skills that a resume lists, read where they lie."""

from __future__ import annotations

from typing import Annotated

from lemming.capabilities.skills.folder_search import SkillSearch
from lemming.capabilities.skills.loading import folders_of, skills_of
from lemming.capabilities.skills.settings import patterns_of
from lemming.capabilities.skills.skill import skill_lines
from lemming.kernel.access.allowed_paths import kept_at
from lemming.kernel.access.grants import why_unsafe
from lemming.kernel.access.open import read_text
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import PermissionDenied, ToolError
from lemming.kernel.base.jsontext import near, nearest
from lemming.kernel.base.paths import SKILL_FILE, components
from lemming.kernel.files.fitting import about
from lemming.kernel.org.config import Org
from lemming.kernel.tools import EngineTool, Places, ToolResult
from lemming.kernel.tools.context import ToolContext


class SkillRead(EngineTool):
    """Reads a skill, or a further file of one."""

    name = "skill_read"
    description = "Read a skill, or a file that belongs to it. Without a name: list the skills."
    tool_class = "read"
    keeps_deadline = True
    output_limit_bytes = 64 << 10

    def why_refused(self, agent: Agent, settings: Org) -> str:
        """Return the rule by which an agent may not call it; the skills of its resume are what allows it."""
        return "" if patterns_of(agent) else "refused: its resume lists no skills"

    def reads(self, agent: Agent, settings: Org) -> Places:
        """Return the folders that the patterns of the resume lead to."""
        return {folder: f'skills "{pattern}"' for pattern, folder, _ in folders_of(agent)}

    def plan(
        self,
        context: ToolContext,
        name: Annotated[str, about("The skill's name.")] = "",
        file: Annotated[str, about("A file of the skill, by its path from there; empty: SKILL.md.")] = "",
    ) -> ToolResult:
        """Return the skill's text and the names of its further files, or the text of one of them."""
        skills = skills_of(context.agent, context.org, context.staged).by_name
        if not name:
            return ToolResult(True, "\n".join(skill_lines(skills.values())) or "(no skills)")
        if name not in skills:
            hint = nearest(name, list(skills)) or f"skills: {', '.join(skills) or 'none'}"
            raise ToolError(f'{self.name}: no skill "{name}"', hint=hint)
        skill = skills[name]
        others = [
            each
            for each in SkillSearch(context.base, context.staged).files_in(skill.folder)
            if each != SKILL_FILE
        ]
        if not file or file == SKILL_FILE:
            more = f"\n\n[files of this skill: {', '.join(others)}]" if others else ""
            return ToolResult(True, skill.body.rstrip() + more)
        parts = components(file)
        if why := why_unsafe(file, parts) or (
            file.startswith("/") and "a path from the skill's folder is needed"
        ):
            hint = f"files of the skill: {', '.join(others) or 'none'}"
            raise PermissionDenied(f'{self.name}: "{file[:200]}" refused: {why}', hint=hint)
        relative = "/".join(parts)
        meant = near(relative, others)
        place = kept_at(context.base, f"{skill.folder}/{relative}", caller=self.name, nearest=meant)
        return ToolResult(True, read_text(place, context.staged))
