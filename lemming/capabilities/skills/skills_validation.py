"""Validate an agent's guides and skills before a turn uses them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lemming.capabilities.skills.guides import GUIDE_CHARS, load_guides
from lemming.capabilities.skills.skill_lookup import COMMON_FOLDERS, load_agent_skills, load_skills
from lemming.capabilities.skills.skills_settings import has_guides, valid_patterns
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem, ToolError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.base.paths import GUIDE
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath


def validate_skills(base: OrgPath, agent: Agent, config: Config) -> Iterator[Problem]:
    """Yield the problems of an agent's guides and skills. Without either, no file is read."""
    if has_guides(agent):
        yield from _validate_guides(Path(base), agent)
    if valid_patterns(agent):
        yield from _validate_skill_patterns(Organisation.from_path(base), agent, config)


def _validate_guides(base: Path, agent: Agent) -> Iterator[Problem]:
    resume = paths.resume_file(agent.name)
    try:
        guides = load_guides(agent, base, {})
    except ToolError as error:
        hint = "it must be a text file of at most 256 KiB; every turn would fail"
        yield Problem(error.message, resume, pointer="/guides", hint=hint)
        return
    if not guides:
        hint = f"write {GUIDE} in the organisation's folder or in {paths.agent_folder(agent.name)}"
        yield _make_warning(resume, "/guides", f"there is no {GUIDE} that says anything", hint)
    for guide in guides:
        if len(guide.text.strip()) > GUIDE_CHARS:
            message = f"it has {len(guide.text)} characters; prompts hold the first {GUIDE_CHARS}"
            yield _make_warning(guide.file, "", message, "shorten it")


def _validate_skill_patterns(org: Organisation, agent: Agent, config: Config) -> Iterator[Problem]:
    resume = paths.resume_file(agent.name)
    entry = config.models.get(agent.model.key)
    if entry is not None and entry.prompt == "brief":
        message = f'model "{agent.model.key}" has "prompt": "brief" and is not told about skills'
        yield _make_warning(resume, "/skills", message, "take a model key whose prompt is full")
    skill_set = load_agent_skills(agent, org)
    yield from skill_set.problems
    for index, pattern in enumerate(agent.extensions["skills"]):
        pointer, matching_skill = f"/skills/{index}", skill_set.by_name.get(pattern.rpartition("/")[2])
        if pattern in skill_set.unmatched_patterns:
            yield _make_warning(
                resume, pointer, f'no skill is called "{pattern}"', _suggest_pattern(org, agent, pattern)
            )
        elif matching_skill and matching_skill.is_hidden_from_models:
            message = f'"{pattern}" says "disable-model-invocation": agents are not told of it'
            yield _make_warning(resume, pointer, message, f"take that key out of {matching_skill.file_path}")


def _suggest_pattern(org: Organisation, agent: Agent, pattern: str) -> str:
    """Return a suggestion for a pattern without a match."""
    folders = (f"{paths.agent_folder(agent.name)}/skills", *COMMON_FOLDERS)
    folders_by_name = {
        name: skill.folder for folder in folders for name, skill in load_skills(org, folder).by_name.items()
    }
    name = pattern.rpartition("/")[2]
    if name in folders_by_name:
        return f'it lies in {folders_by_name[name]}: write "{folders_by_name[name]}"'
    return (
        did_you_mean(name, list(folders_by_name))
        or f"put it into skills/{name.strip('*?') or 'NAME'}/SKILL.md"
    )


def _make_warning(file: str, pointer: str, message: str, hint: str) -> Problem:
    return Problem(message, file, pointer=pointer, hint=hint, severity="warning")
