"""Guides and skills, as the engine knows them: sections after the instructions of an agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lemming.capabilities.skills.folder_search import SkillSearch
from lemming.capabilities.skills.guides import guide_files, read_guides
from lemming.capabilities.skills.loading import folders_of, skills_of
from lemming.capabilities.skills.settings import has_guides, patterns_of, wrong_patterns
from lemming.capabilities.skills.skill import skills_section
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.paths import GUIDE
from lemming.kernel.files.stamps import is_there
from lemming.kernel.memory import Memories
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.org.resume import Agent
from lemming.kernel.tick.firing_plan import takes_turns
from lemming.kernel.turn.seams import Capability, Moment, Preparation, Showing
from lemming.kernel.turn.seen import Seen

_USUAL = ("agents", "config", "shared", "trust")


class Skills(Capability):
    """Guides and skills, which the keys `guides` and `skills` of a resume ask for."""

    name = "skills"

    def prepare(self, moment: Moment) -> Preparation:
        """Return what the prompt is to say of guides and skills."""
        return SkillsPreparation(moment)

    def wrong_with(self, agent: Agent | None, known: object) -> Iterator[tuple[str, str, str]]:
        """Yield the patterns that can lead to no skills."""
        if agent is not None:
            yield from wrong_patterns(agent)

    def problems_of_key(self, base: OrgPath, agent: Agent | None, config: Config) -> Iterator[Problem]:
        """Yield what is wrong with the guides and skills of an agent that takes turns."""
        if agent is not None and takes_turns(agent, config):
            from lemming.capabilities.skills.problems import problems_of_skills

            yield from problems_of_skills(base, agent, config)

    def roots_outside(self, agents: Iterable[Agent]) -> Iterable[str]:
        """Return the files and folders at which guides and skills are looked for, outside."""
        return outside_roots(agents)

    def files_outside(self, base: OrgPath, agents: Iterable[Agent]) -> Iterable[str]:
        """Return the guides and the files of skills that are there, outside."""
        return outside_files(base, agents)


class SkillsPreparation(Preparation):
    """Reads the guides, and looks for the skills where tools can be called."""

    def finds(self, memories: Memories) -> Mapping[str, str]:
        """Read the guides; raise `ToolError` for one that cannot be read."""
        moment = self.moment
        self._guides = read_guides(moment.agent, moment.now.org.base, moment.held)
        return {guide.file: guide.digest for guide in self._guides}

    def sections(self) -> Sequence[str]:
        """Return the guides, and the list of the skills."""
        moment, sections = self.moment, [guide.section for guide in self._guides]
        if patterns_of(moment.agent) and moment.model.prompt != "brief":
            sections.append(skills_section(skills_of(moment.agent, moment.now.org, moment.held).by_name))
        return sections

    def annotates(self, seen: Seen, shown: Showing) -> None:
        """Say which files and folders these are from."""
        agent = self.moment.agent
        folders = (f"{folder}/" for _, folder, _ in folders_of(agent))
        seen.told_by = [*seen.told_by, *guide_files(agent), *folders]


def outside_roots(agents: Iterable[Agent]) -> list[str]:
    """Return the files and folders at which these agents' guides and skills are looked for, outside."""
    roots: set[str] = set()
    for agent in agents:
        roots.update([GUIDE] if has_guides(agent) else [])
        roots.update(folder for _, folder, _ in folders_of(agent))
    return sorted(root for root in roots if root.split("/")[0] not in _USUAL)


def outside_files(base: OrgPath, agents: Iterable[Agent]) -> list[str]:
    """Return the guides and the files of skills that are there, outside of the usual folders, sorted."""
    found: set[str] = set()
    for root in outside_roots(agents):
        if root == GUIDE:
            found.update([GUIDE] if is_there(f"{base}/{GUIDE}") else [])
            continue
        search = SkillSearch(Path(base), {})
        for folder in search.skills_below(root):
            found.update(f"{folder}/{file}" for file in search.files_in(folder))
    return sorted(found)
