"""The skills capability: guides and skills as sections after the instructions of an agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lemming.capabilities.skills.folder_search import SkillSearch
from lemming.capabilities.skills.guides import list_guide_files, load_guides
from lemming.capabilities.skills.skill import build_skills_section
from lemming.capabilities.skills.skill_lookup import load_agent_skills, parse_skill_patterns
from lemming.capabilities.skills.skills_settings import has_guides, valid_patterns, validate_patterns
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.paths import GUIDE
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.memory import Memories
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.resume import Agent
from lemming.kernel.tick.firing_plan import has_model_turns
from lemming.kernel.turn.check_subjects import AgentCheck, CheckSubject, ReferenceCheck, to_problems
from lemming.kernel.turn.descriptions import DescribeQuery, OrgQuery, OutsideFile, OutsideRoot
from lemming.kernel.turn.prompt_input import PromptInput
from lemming.kernel.turn.turn_hooks import Capability, ContextProvider, TurnContext, VisibleContext

_STANDARD_FOLDERS = ("agents", "config", "shared", "trust")


class SkillsCapability(Capability):
    """Guides and skills, enabled by the keys `guides` and `skills` of a resume."""

    name = "skills"
    describes = (OutsideRoot, OutsideFile)

    def context_provider(self, context: TurnContext) -> ContextProvider:
        """Return the context provider with the prompt's guides and skills."""
        return SkillsContextProvider(context)

    def check(self, subject: CheckSubject) -> Iterator[Problem]:
        """Yield the patterns that can match no skill, and problems with guides and skills of agents that take turns."""
        if isinstance(subject, ReferenceCheck) and subject.agent is not None:
            yield from to_problems(validate_patterns(subject.agent))
        elif isinstance(subject, AgentCheck) and has_model_turns(subject.agent, subject.config):
            from lemming.capabilities.skills.skills_validation import validate_skills

            yield from validate_skills(subject.base, subject.agent, subject.config)

    def describe(self, query: DescribeQuery) -> Iterator[OutsideRoot | OutsideFile]:
        """Yield the external files and folders searched for guides and skills, and the existing files."""
        if isinstance(query, OrgQuery) and query.kind is OutsideRoot:
            yield from map(OutsideRoot, external_roots(query.agents.values()))
        elif isinstance(query, OrgQuery) and query.kind is OutsideFile:
            yield from map(OutsideFile, external_files(query.org, query.agents.values()))


class SkillsContextProvider(ContextProvider):
    """Reads the guides, and searches the skills if tools can be called."""

    def scan_files(self, memories: Memories) -> Mapping[str, str]:
        """Read the guides. Raise `ToolError` for an unreadable guide."""
        context = self.context
        self._guides = load_guides(context.agent, context.tick_context.org.base, context.unwritten_files)
        return {guide.file: guide.sha256_hex for guide in self._guides}

    def prompt_sections(self) -> Sequence[str]:
        """Return the guides, and the list of the skills."""
        context, sections = self.context, [guide.to_prompt_section for guide in self._guides]
        if valid_patterns(context.agent) and context.model.prompt != "brief":
            sections.append(
                build_skills_section(
                    load_agent_skills(context.agent, context.tick_context.org, context.unwritten_files).by_name
                )
            )
        return sections

    def annotate_prompt(self, prompt_input: PromptInput, visible: VisibleContext) -> None:
        """Record the files and folders behind the sections."""
        agent = self.context.agent
        folders = (f"{folder}/" for _, folder, _ in parse_skill_patterns(agent))
        prompt_input.source_paths = [*prompt_input.source_paths, *list_guide_files(agent), *folders]


def external_roots(agents: Iterable[Agent]) -> list[str]:
    """Return the external files and folders searched for the agents' guides and skills."""
    roots: set[str] = set()
    for agent in agents:
        roots.update([GUIDE] if has_guides(agent) else [])
        roots.update(folder for _, folder, _ in parse_skill_patterns(agent))
    return sorted(root for root in roots if root.split("/")[0] not in _STANDARD_FOLDERS)


def external_files(base: OrgPath, agents: Iterable[Agent]) -> list[str]:
    """Return the existing guides and skill files outside the standard folders, sorted."""
    files: set[str] = set()
    for root in external_roots(agents):
        if root == GUIDE:
            files.update([GUIDE] if path_exists(f"{base}/{GUIDE}") else [])
            continue
        search = SkillSearch(Path(base), {})
        for folder in search.iter_skill_folders(root):
            files.update(f"{folder}/{file}" for file in search.list_files(folder))
    return sorted(files)
