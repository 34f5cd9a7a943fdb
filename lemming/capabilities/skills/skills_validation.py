"""Validate an agent's guides and skills before a turn uses them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lemming.capabilities.skills.guides import GUIDE_CHARS, load_guides
from lemming.capabilities.skills.skill_lookup import COMMON_FOLDERS, load_agent_skills, load_skills
from lemming.capabilities.skills.skills_settings import has_guides, valid_patterns
from lemming.ext import Problem
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ToolError
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
        hint = "make it a text file of at most 256 KiB: every turn fails until then"
        yield Problem(error.message, resume, pointer="/guides", hint=hint)
        return
    if not guides:
        hint = f"write {GUIDE} in the organisation's folder or in {paths.agent_folder(agent.name)}"
        yield _make_warning(resume, "/guides", f"{GUIDE} does not exist, or is empty", hint)
    for guide in guides:
        if len(guide.text.strip()) > GUIDE_CHARS:
            message = (
                f"the guide must have at most {GUIDE_CHARS} characters, got {len(guide.text)}: prompts have the first"
            )
            yield _make_warning(guide.file, "", message, "shorten it")


def _validate_skill_patterns(org: Organisation, agent: Agent, config: Config) -> Iterator[Problem]:
    resume = paths.resume_file(agent.name)
    entry = config.models.get(agent.model.key)
    if entry is not None and entry.prompt == "brief":
        message = f'skills require "prompt": "full", and model "{agent.model.key}" has "brief"'
        yield _make_warning(resume, "/skills", message, "choose a model key with a full prompt")
    skill_set = load_agent_skills(agent, org)
    yield from skill_set.problems
    for index, pattern in enumerate(agent.extensions["skills"]):
        pointer, matching_skill = f"/skills/{index}", skill_set.by_name.get(pattern.rpartition("/")[2])
        if pattern in skill_set.unmatched_patterns:
            yield _make_warning(
                resume, pointer, f'there is no skill "{pattern}"', _suggest_pattern(org, agent, pattern)
            )
        elif matching_skill and matching_skill.is_hidden_from_models:
            message = f'"{pattern}" has "disable-model-invocation": agents do not see it'
            yield _make_warning(resume, pointer, message, f"remove the key from {matching_skill.file_path}")


def _suggest_pattern(org: Organisation, agent: Agent, pattern: str) -> str:
    """Return a suggestion for a pattern without a match."""
    folders = (f"{paths.agent_folder(agent.name)}/skills", *COMMON_FOLDERS)
    folders_by_name = {
        name: skill.folder for folder in folders for name, skill in load_skills(org, folder).by_name.items()
    }
    name = pattern.rpartition("/")[2]
    if name in folders_by_name:
        return f'write "{folders_by_name[name]}", the folder of the skill'
    return did_you_mean(name, list(folders_by_name)) or f"put it into skills/{name.strip('*?') or 'NAME'}/SKILL.md"


def _make_warning(file: str, pointer: str, message: str, hint: str) -> Problem:
    return Problem(message, file, pointer=pointer, hint=hint, severity="warning")
