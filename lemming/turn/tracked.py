"""How far a turn is trusted as it begins: as far as the least trusted of all that its prompt shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lemming import paths
from lemming.agents import Agent
from lemming.memory import Memories, read_memories
from lemming.turn.opening import Surroundings
from lemming.turn.values import TurnInputs

if TYPE_CHECKING:
    from lemming.messages import OutboxEntry
    from lemming.models import ModelEntry
    from lemming.trust.order import Part
    from lemming.trust.turn import TurnTrust
    from lemming.turn.labels import TrustLabels
    from lemming.turn.prompt import Seen
    from lemming.turn.seams import Showing


def trust_of_turn(inputs: TurnInputs) -> TurnTrust | None:
    """Return how far a turn is trusted as it goes on; None where nobody tracks that."""
    if not inputs.trust:
        return None
    from lemming.trust.turn import TurnTrust

    return TurnTrust(inputs.trust, inputs.agent.name, inputs.tick)


def kept_results(
    inputs: TurnInputs, results: list[dict[str, Any]], given: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return results of a turn that was given up, as its next one is told; `given` is what calls gave."""
    if (turn := trust_of_turn(inputs)) is None:
        return results
    for told in given:
        turn.take(told)
    return [*map(turn.kept, results)]


class Tracker:
    """What one turn is shown, and how far each part of it is trusted. `held` as for `gather`."""

    def __init__(
        self,
        now: Surroundings,
        agent: Agent,
        entry: ModelEntry,
        memories: Memories,
        held: Mapping[str, bytes],
    ) -> None:
        from lemming.trust.authors import Authors
        from lemming.trust.marks import Marks
        from lemming.trust.order import AGENT

        self._now, self._agent, self._entry, self._memories = now, agent, entry, memories
        self._authors = Authors(now.org, now.config, now.mail.resumes, now.tick)
        self._order = self._authors.order
        self._marks = Marks(now.org, self._authors, held)
        self._own = self._order.lowest((AGENT, self._authors.of_author(agent.name)))
        self._words = self._authors.of_memories(agent.name, memories)

    @property
    def labels(self) -> TrustLabels:
        """The labels for the parts of the prompt."""
        from lemming.turn.labels import TrustLabels

        return TrustLabels(self._authors.of_entry, self._words, self._own)

    def track(self, seen: Seen, shown: Showing) -> dict[str, Any]:
        """Return what the journal says of how far the turn is trusted, and have the prompt say it too."""
        from lemming.trust.turn import as_recorded

        files = [*self._files_of_context()]
        parts = [*self._shown(seen, shown), *files, *self._of_files(seen)]
        told = as_recorded(self._order, parts, self._own)
        if self._entry.prompt != "values":
            words = (file.word for file in files)
            labelled = zip(seen.context, words, strict=True)
            seen.context = [(f"{label} (trust: {word})", text) for (label, text), word in labelled]
            seen.time = [*seen.time, f"What you are shown here is trusted as: {told['is']}."]
        seen.results = [{"trust": self._own, **result} for result in seen.results]
        return told

    def _shown(self, seen: Seen, shown: Showing) -> Iterator[Part]:
        """Yield how far entries, memories and results are trusted that the turn is shown."""
        from lemming.trust.order import Part

        for entry in (*_entries(seen), *shown.also):
            yield Part(self._authors.of_entry(entry), entry.identity)
        for key in _memories_shown(seen, shown, self._memories):
            if key in self._words:
                yield Part(self._words[key], paths.memory_file(self._agent.name, key))
        for result in seen.results:
            if "trust" in result:
                yield Part(self._order.known(result["trust"]), f"what {result['tool']} gave before")
        for job in seen.jobs:
            yield from self._of_job(job)

    def _of_job(self, job: Mapping[str, Any]) -> Iterator[Part]:
        """Yield how far a job is trusted that an agent keeps: as far as the memory it is kept in."""
        from lemming.mail.jobs import MEMORY
        from lemming.trust.order import Part

        keeper = str(job["target"])
        words = self._authors.of_memories(keeper, read_memories(self._now.org, keeper))
        if MEMORY in words and str(job["job"]).startswith(f"{keeper}."):
            yield Part(words[MEMORY], paths.memory_file(keeper, MEMORY))

    def _files_of_context(self) -> Iterator[Part]:
        """Yield how far each context file is trusted, in their order."""
        for item in self._agent.context:
            yield self._file(item.file, "context")

    def _of_files(self, seen: Seen) -> Iterator[Part]:
        """Yield how far other files are trusted that the turn is shown, or is told by."""
        agent = self._agent
        yield self._marks.of(paths.resume_file(agent.name))
        for file in seen.outside.get("files", ()):
            yield from self._if_allowed(file)
        if self._entry.images:
            for path in _attached(_entries(seen)):
                yield self._marks.of(path)
        if agent.guides:
            from lemming.skills.guides import guide_files

            yield from map(self._marks.of, guide_files(agent))
        if agent.skills:
            from lemming.skills.finding import folders_of

            for _, folder, _ in folders_of(agent):
                yield from self._marks.below(folder)

    def _if_allowed(self, file: str) -> Iterator[Part]:
        from lemming.errors import PermissionDenied

        try:
            yield self._file(file, "plan")
        except PermissionDenied:  # nothing of it is shown
            return

    def _file(self, file: str, caller: str) -> Part:
        from lemming.access.grants import resolve

        return self._marks.of(resolve(self._agent, self._now.org.base, file, "read", caller=caller).key)


def _entries(seen: Seen) -> Iterator[OutboxEntry]:
    yield from (*seen.inbox.unread, *seen.inbox.known, *seen.inbox.own, *seen.asked)
    if task := seen.task:
        yield from (*([task.request] if task.request else []), *task.thread)
        for ended in task.asked:
            yield from filter(None, (ended.entry, ended.answer))


def _memories_shown(seen: Seen, shown: Showing, memories: Memories) -> Iterator[str]:
    """Yield the keys of the memories that a turn is shown, by its prompt or by its strategy."""
    yield from memories.values if seen.agent.turn.strategy else seen.memory
    yield from shown.also_memories


def _attached(entries: Iterable[OutboxEntry]) -> Iterator[str]:
    from lemming.turn.images import paths_in

    for entry in entries:
        yield from paths_in(entry)
