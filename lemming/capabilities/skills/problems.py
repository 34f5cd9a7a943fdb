"""What is wrong with an agent's guides and skills, before a turn shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lemming.capabilities.skills.guides import GUIDE_CHARS, read_guides
from lemming.capabilities.skills.loading import COMMON_FOLDERS, skills_in, skills_of
from lemming.capabilities.skills.settings import has_guides, patterns_of
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import Problem, ToolError
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.base.paths import GUIDE
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath


def problems_of_skills(base: OrgPath, agent: Agent, config: Config) -> Iterator[Problem]:
    """Yield what is wrong; nothing, and without a look, for an agent that has neither guides nor skills."""
    if has_guides(agent):
        yield from _guide_problems(Path(base), agent)
    if patterns_of(agent):
        yield from _skill_problems(Organisation.at(base), agent, config)


def _guide_problems(base: Path, agent: Agent) -> Iterator[Problem]:
    resume = paths.resume_file(agent.name)
    try:
        guides = read_guides(agent, base, {})
    except ToolError as error:
        hint = "it must be a text file of at most 256 KiB; every turn would fail"
        yield Problem(error.message, resume, pointer="/guides", hint=hint)
        return
    if not guides:
        hint = f"write {GUIDE} in the organisation's folder or in {paths.agent_folder(agent.name)}"
        yield _warning(resume, "/guides", f"there is no {GUIDE} that says anything", hint)
    for guide in guides:
        if len(guide.text.strip()) > GUIDE_CHARS:
            what = f"it has {len(guide.text)} characters; prompts hold the first {GUIDE_CHARS}"
            yield _warning(guide.file, "", what, "shorten it")


def _skill_problems(org: Organisation, agent: Agent, config: Config) -> Iterator[Problem]:
    resume = paths.resume_file(agent.name)
    entry = config.models.get(agent.model.key)
    if entry is not None and entry.prompt == "brief":
        what = f'model "{agent.model.key}" has "prompt": "brief" and is not told about skills'
        yield _warning(resume, "/skills", what, "take a model key whose prompt is full")
    found = skills_of(agent, org)
    yield from found.problems
    for index, pattern in enumerate(agent.further["skills"]):
        pointer, named = f"/skills/{index}", found.by_name.get(pattern.rpartition("/")[2])
        if pattern in found.patterns:
            yield _warning(resume, pointer, f'no skill is called "{pattern}"', _instead(org, agent, pattern))
        elif named and named.is_for_people:
            what = f'"{pattern}" says "disable-model-invocation": agents are not told of it'
            yield _warning(resume, pointer, what, f"take that key out of {named.file}")


def _instead(org: Organisation, agent: Agent, pattern: str) -> str:
    """Return what a person may have meant by a pattern that leads nowhere."""
    folders = (f"{paths.agent_folder(agent.name)}/skills", *COMMON_FOLDERS)
    there = {
        name: skill.folder for folder in folders for name, skill in skills_in(org, folder).by_name.items()
    }
    name = pattern.rpartition("/")[2]
    if name in there:
        return f'it lies in {there[name]}: write "{there[name]}"'
    return nearest(name, list(there)) or f"put it into skills/{name.strip('*?') or 'NAME'}/SKILL.md"


def _warning(file: str, pointer: str, message: str, hint: str) -> Problem:
    return Problem(message, file, pointer=pointer, hint=hint, severity="warning")
