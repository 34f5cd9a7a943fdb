"""The skills capability: guides and skills as sections after the instructions of an agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from lemming.capabilities.skills.skill import build_skills_section
from lemming.capabilities.skills.skill_lookup import (
    COMMON_FOLDERS,
    SkillSearch,
    load_agent_skills,
    load_skills,
    parse_skill_patterns,
)
from lemming.capabilities.skills.skills_settings import has_guides, valid_patterns
from lemming.ext import (
    AgentSubject,
    BuildPrompt,
    Capability,
    DescribeQuery,
    Interception,
    OrgQuery,
    OutsideFile,
    OutsideRoot,
    Preparation,
    Problem,
    ReadPath,
    SelectContext,
    Watch,
    make_warning,
)
from lemming.kernel.access.agent_files import read_text
from lemming.kernel.access.allowed_paths import resolve_org_path
from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ToolError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.libraries.agent_folders import is_readable

_STANDARD_FOLDERS = ("agents", "config", "shared", "trust")


class SkillsCapability(Capability):
    """Guides and skills, enabled by the keys `guides` and `skills` of a resume."""

    name = "skills"
    handles = (SelectContext, BuildPrompt)
    describes = (OutsideRoot, OutsideFile, ReadPath)

    def due(self, turn: Preparation) -> Iterator[Watch]:
        """Yield the guides: a change is news. Raises `ToolError` for an unreadable guide."""
        for guide in turn.get_cache(_load_guides):
            yield Watch(guide.file, sha256(guide.text.encode()).hexdigest())

    def intercept(self, effect: SelectContext | BuildPrompt, turn: Preparation) -> Interception:
        """Add the guides and the list of the skills, and the files and folders behind them."""
        if isinstance(effect, SelectContext):
            sections = [guide.to_prompt_section for guide in turn.get_cache(_load_guides)]
            if valid_patterns(turn.agent) and turn.model.prompt != "brief":  # if tools can be called
                skills = load_agent_skills(turn.agent, turn.org, turn.context.unwritten_files).by_name
                sections.append(build_skills_section(skills))
            return (yield replace(effect, sections=(*effect.sections, *filter(None, sections))))
        folders = (f"{folder}/" for _, folder, _ in parse_skill_patterns(turn.agent))
        source_paths = [*effect.prompt.source_paths, *list_guide_files(turn.agent), *folders]
        return (yield effect.change(source_paths=source_paths))

    def describe(self, query: DescribeQuery) -> Iterator[OutsideRoot | OutsideFile | ReadPath]:
        """Yield guides that turns read, external folders searched for guides and skills, and existing external files."""
        if isinstance(query, OrgQuery) and query.kind is OutsideRoot:
            yield from map(OutsideRoot, external_roots(query.agents.values()))
        elif isinstance(query, OrgQuery) and query.kind is OutsideFile:
            yield from map(OutsideFile, external_files(query.org, query.agents.values()))
        elif isinstance(query, OrgQuery):
            for name, agent in query.agents.items():
                yield from (ReadPath(name, file, f"guides: {file}") for file in list_guide_files(agent))


def external_roots(agents: Iterable[Agent]) -> list[str]:
    """Return the external files and folders searched for the agents' guides and skills."""
    roots: set[str] = set()
    for agent in agents:
        roots.update([paths.GUIDE] if has_guides(agent) else [])
        roots.update(folder for _, folder, _ in parse_skill_patterns(agent))
    return sorted(root for root in roots if root.split("/")[0] not in _STANDARD_FOLDERS)


def external_files(base: OrgPath, agents: Iterable[Agent]) -> list[str]:
    """Return the existing guides and skill files outside the standard folders, sorted."""
    files: set[str] = set()
    for root in external_roots(agents):
        if root == paths.GUIDE:
            files.update([paths.GUIDE] if path_exists(f"{base}/{paths.GUIDE}") else [])
            continue
        search = SkillSearch(Path(base), {})
        for folder in search.iter_skill_folders(root):
            files.update(f"{folder}/{file}" for file in search.list_files(folder))
    return sorted(files)


def find_skill_problems(subject: AgentSubject) -> Iterator[Problem]:
    """Yield the problems of an agent's guides and skills. Without either, no file is read."""
    agent, config = subject.agent, subject.config
    if has_guides(agent) and config.has_model_turns(agent):
        yield from _validate_guides(Path(subject.org), agent)
    if valid_patterns(agent) and config.has_model_turns(agent):
        yield from _validate_skill_patterns(subject.org, agent, config)


def _validate_guides(base: Path, agent: Agent) -> Iterator[Problem]:
    try:
        guides = load_guides(agent, base, {})
    except ToolError as error:
        hint = "make it a text file of at most 256 KiB: every turn fails until then"
        yield Problem(error.message, pointer="/guides", hint=hint)
        return
    if not guides:
        hint = f"write {paths.GUIDE} in the organisation's folder or in {paths.agent_folder(agent.name)}"
        yield make_warning(f"{paths.GUIDE} does not exist, or is empty", "/guides", hint)
    for guide in guides:
        if len(guide.text.strip()) > GUIDE_CHARS:
            limit = f"the guide must have at most {GUIDE_CHARS} characters"
            yield make_warning(f"{limit}, got {len(guide.text)}: prompts have the first", "", "shorten it", guide.file)


def _validate_skill_patterns(org: Organisation, agent: Agent, config: Config) -> Iterator[Problem]:
    entry = config.models.get(agent.model.key)
    if entry is not None and entry.prompt == "brief":
        message = f'skills require "prompt": "full", and model "{agent.model.key}" has "brief"'
        yield make_warning(message, "/skills", "choose a model key with a full prompt")
    skill_set = load_agent_skills(agent, org)
    yield from skill_set.problems
    for index, pattern in enumerate(agent.extensions["skills"]):
        pointer, matching_skill = f"/skills/{index}", skill_set.by_name.get(pattern.rpartition("/")[2])
        if pattern in skill_set.unmatched_patterns:
            yield make_warning(f'there is no skill "{pattern}"', pointer, _suggest_pattern(org, agent, pattern))
        elif matching_skill and matching_skill.is_hidden_from_models:
            message = f'"{pattern}" has "disable-model-invocation": agents do not see it'
            yield make_warning(message, pointer, f"remove the key from {matching_skill.file_path}")


def _suggest_pattern(org: Organisation, agent: Agent, pattern: str) -> str:
    folders = (f"{paths.agent_folder(agent.name)}/skills", *COMMON_FOLDERS)
    folders_by_name = {
        name: skill.folder for folder in folders for name, skill in load_skills(org, folder).by_name.items()
    }
    name = pattern.rpartition("/")[2]
    if name in folders_by_name:
        return f'write "{folders_by_name[name]}", the folder of the skill'
    return did_you_mean(name, list(folders_by_name)) or f"put it into skills/{name.strip('*?') or 'NAME'}/SKILL.md"


GUIDE_CHARS = 20_000


class Guide(NamedTuple):
    """A guide: its path in the organisation, and its whole text."""

    file: str
    text: str

    @property
    def to_prompt_section(self) -> str:
        """The guide as a prompt section, truncated to `GUIDE_CHARS` characters."""
        text = self.text.strip()
        suffix = f"\n[cut: the first {GUIDE_CHARS} of {len(text)} characters]" if len(text) > GUIDE_CHARS else ""
        return f"# Instructions from {self.file}\n{text[:GUIDE_CHARS]}{suffix}"


def _load_guides(turn: Preparation) -> Sequence[Guide]:
    return load_guides(turn.agent, turn.org.base, turn.context.unwritten_files)


def list_guide_files(agent: Agent) -> list[str]:
    """Return the possible paths of an agent's guides, the nearest last. Empty if guides are disabled."""
    return [paths.GUIDE, f"{paths.agent_folder(agent.name)}/{paths.GUIDE}"] if has_guides(agent) else []


def load_guides(agent: Agent, base: Path, staged: Mapping[str, bytes]) -> list[Guide]:
    """Return existing nonempty guides. Raises `ToolError` for a link, a folder, a binary file or over 256 KiB."""
    paths_ = [resolve_org_path(base, file, caller="guides") for file in list_guide_files(agent)]
    existing = [path for path in paths_ if is_readable(path, staged)]
    guides = [Guide(path.relative, read_text(path, staged)) for path in existing]
    return [guide for guide in guides if guide.text.strip()]
