"""Load the skills of an agent, from the folders given by `skills` in the resume.

Only matching names are read.

A pattern such as `pdf-*` is searched in the agent's own `skills/`, then in the organisation's `skills/`. A
pattern with a folder (`.claude/skills/*`) is searched only there. The first skill of a name wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from lemming.capabilities.skills.skill import Skill, format_skills, parse_skill
from lemming.capabilities.skills.skills_settings import valid_patterns
from lemming.ext import ConfigError, Problem, describe_field, make_warning
from lemming.kernel.access.agent_files import read_text
from lemming.kernel.access.allowed_paths import AllowedPath, resolve_org_path, unsafe_path_reason
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import PermissionDenied, ToolError
from lemming.kernel.base.jsontext import closest_match, did_you_mean
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import EngineTool, Places, ToolResult
from lemming.kernel.tools.tool_context import ToolContext
from lemming.libraries.agent_folders import LISTING_LIMIT, is_readable, list_folder

NOTHING: Mapping[str, bytes] = {}
COMMON_FOLDERS = ("skills", ".agents/skills", ".claude/skills")
"""Common folders of an organisation's skills."""


@dataclass(frozen=True)
class SkillSet:
    """Loaded skills by name, in display order, and problems. `unmatched_patterns`: of the resume."""

    by_name: Mapping[str, Skill]
    problems: tuple[Problem, ...] = ()
    unmatched_patterns: tuple[str, ...] = ()


def parse_skill_patterns(agent: Agent) -> list[tuple[str, str, str]]:
    """Return each pattern of an agent's resume, with a folder to search and the pattern of names."""
    searches = []
    for pattern in valid_patterns(agent):
        folder, _, names = pattern.removeprefix("./").rpartition("/")
        default_folders = (f"{paths.agent_folder(agent.name)}/skills", "skills")
        searches += [(pattern, search_folder, names) for search_folder in ((folder,) if folder else default_folders)]
    return searches


def load_agent_skills(agent: Agent, org: Organisation, staged: Mapping[str, bytes] = NOTHING) -> SkillSet:
    """Return the skills listed by an agent's resume."""
    skills, problems, matched = dict[str, Skill](), list[Problem](), set[str]()
    for pattern, folder, names in parse_skill_patterns(agent):
        folder_skills = load_skills(org, folder, names, staged)
        problems += folder_skills.problems
        matched.update([pattern] if folder_skills.by_name else [])
        for name, skill in folder_skills.by_name.items():
            skills.setdefault(name, skill)
    unmatched = tuple(dict.fromkeys(pattern for pattern in valid_patterns(agent) if pattern not in matched))
    return SkillSet(dict(sorted(skills.items())), tuple(dict.fromkeys(problems)), unmatched)


def load_skills(org: Organisation, folder: str, names: str = "*", staged: Mapping[str, bytes] = NOTHING) -> SkillSet:
    """Return the skills below a folder with names matching a pattern."""
    search = SkillSearch(org.base, staged, names)
    skills = dict[str, Skill]()
    for path in search.iter_skill_folders(folder):
        try:
            skill = _load_skill(org, path, staged)
        except ConfigError as error:
            search.problems += error.problems
            continue
        search.problems += skill.remarks
        first = skills.setdefault(skill.name, skill)
        if first is not skill:
            message = f'another skill is named "{skill.name}" and is used instead: {first.file_path}'
            search.problems.append(make_warning(message, hint="rename one of the folders", file=skill.file_path))
    return SkillSet(dict(sorted(skills.items())), tuple(search.problems))


class _SkillCache:
    """Cache of an organisation's skills by folder, with the text behind each skill."""

    def __init__(self, _: Organisation) -> None:
        self.by_folder: dict[str, tuple[str, Skill | ConfigError]] = {}


def _load_skill(org: Organisation, folder: str, staged: Mapping[str, bytes]) -> Skill:
    """Return a skill. Raise `ConfigError` for an invalid skill."""
    file = f"{folder}/{paths.SKILL_FILE}"
    try:
        text = read_text(resolve_org_path(org.base, file, caller="skills"), staged)
    except ToolError as error:
        problem = make_warning(error.message, hint="it must be a text file of at most 256 KiB", file=file)
        raise ConfigError(str(problem), problems=(problem,)) from error
    by_folder = org.get_cache(_SkillCache).by_folder
    if folder not in by_folder or by_folder[folder][0] != text:
        try:
            by_folder[folder] = text, parse_skill(folder, text)
        except ConfigError as error:
            by_folder[folder] = text, error
    outcome = by_folder[folder][1]
    if isinstance(outcome, ConfigError):
        raise outcome.with_traceback(None)
    return outcome


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
        files = SkillSearch(context.base, context.staged).list_files(skill.folder)
        other_files = [path for path in files if path != paths.SKILL_FILE]
        if not file or file == paths.SKILL_FILE:
            suffix = f"\n\n[files of this skill: {', '.join(other_files)}]" if other_files else ""
            return ToolResult(True, skill.body.rstrip() + suffix)
        parts = paths.components(file)
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


MAX_DEPTH = 4
MAX_FOLDERS = 2000
MAX_FILES = 200

_EXCLUDED_FOLDERS = ("node_modules/",)


class SkillSearch:
    """One search. `problems` lists the skipped paths. `names` is a pattern for the names of skills."""

    def __init__(self, base: Path, staged: Mapping[str, bytes], names: str = "*") -> None:
        self._base, self._staged, self._name_pattern = base, staged, names
        self._remaining_folders = MAX_FOLDERS
        self.problems: list[Problem] = []

    def iter_skill_folders(self, folder: str) -> Iterator[str]:
        """Yield the skill folders below a folder with a matching name, at most `MAX_DEPTH` levels deep."""
        if is_readable(self._resolve_folder(folder), self._staged):
            yield from self._search_subfolders(folder, self._list_names(folder), MAX_DEPTH)

    def list_files(self, folder: str) -> list[str]:
        """Return the relative paths of the files below a folder, sorted, at most `MAX_FILES`."""
        files: list[str] = []
        pending = [folder]
        while pending and len(files) < MAX_FILES:
            current = pending.pop(0)
            names = self._list_names(current)
            pending += [f"{current}/{name[:-1]}" for name in names if name.endswith("/")]
            files += [f"{current}/{name}"[len(folder) + 1 :] for name in names if name[-1] not in "/@"]
        return sorted(files)[:MAX_FILES]

    def _search_subfolders(self, folder: str, names: list[str], depth: int) -> Iterator[str]:
        for name in names:
            path, is_match = f"{folder}/{name[:-1]}", fnmatchcase(name[:-1], self._name_pattern)
            if name.endswith("@") and is_match:
                self._add_problem(path, "symbolic links are not followed", "list the folder it leads to, or copy it")
            if not name.endswith("/") or name.startswith(".") or name in _EXCLUDED_FOLDERS:
                continue
            inside = self._list_names(path)
            if paths.SKILL_FILE not in inside and depth > 1:
                yield from self._search_subfolders(path, inside, depth - 1)
            if paths.SKILL_FILE in inside and is_match:
                yield path
            elif is_match:
                if f"{paths.SKILL_FILE}@" in inside:
                    self._add_problem(f"{path}/{paths.SKILL_FILE}", "symbolic links are not followed", "copy the file")
                for like in [name for name in inside if name.casefold() == paths.SKILL_FILE.casefold()][:1]:
                    self._add_problem(
                        f"{path}/{like}", f"the file of a skill must be named {paths.SKILL_FILE}", "rename it"
                    )

    def _list_names(self, folder: str) -> list[str]:
        """Return the names in a folder, folders ending with / and links with @. Empty for an unreadable folder."""
        self._remaining_folders -= 1
        if self._remaining_folders <= 0:
            if not self._remaining_folders:
                message = f"the folder has more than {MAX_FOLDERS} folders; the rest is ignored"
                self._add_problem(folder, message, "name a smaller folder")
            return []
        try:
            names, omitted = list_folder(self._resolve_folder(folder), self._staged)
        except ToolError as error:
            self._add_problem(folder, error.message, "name a folder of the organisation")
            return []
        if omitted:
            message = f"the folder has more than {LISTING_LIMIT} names; the rest is ignored"
            self._add_problem(folder, message, "split it")
        return names

    def _resolve_folder(self, folder: str) -> AllowedPath:
        return resolve_org_path(self._base, folder, caller="skills")

    def _add_problem(self, file: str, message: str, hint: str) -> None:
        self.problems.append(make_warning(message, hint=hint, file=file))
