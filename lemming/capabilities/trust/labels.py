"""What one turn is shown, and the labels by which its prompt says how far each part is trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import compress

from lemming.capabilities.trust.authors import authors_in
from lemming.capabilities.trust.clean import CleanTurn, clean_turn
from lemming.capabilities.trust.marks import Marks
from lemming.capabilities.trust.settings import least_shown
from lemming.capabilities.trust.turn import as_recorded
from lemming.capabilities.trust.words import AGENT, Part
from lemming.kernel.access.allowed_paths import resolve
from lemming.kernel.access.context_files import MemoryOfAnother, place_of_item
from lemming.kernel.access.open import read_raw
from lemming.kernel.base import paths
from lemming.kernel.base.errors import PermissionDenied
from lemming.kernel.files.fields import Json
from lemming.kernel.mail.task import Ended
from lemming.kernel.memory import decode_record, read_memories
from lemming.kernel.memory import trust_in as word_in
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.labels import Labels
from lemming.kernel.turn.places import ToShow
from lemming.kernel.turn.seams import Moment, Showing
from lemming.kernel.turn.seen import Seen


class TrustLabels(Labels):
    """Labels that say how far each part is trusted: every entry, and those memories that say so."""

    def __init__(self, tracker: Tracker) -> None:
        self._of_entry, self._is_left_out = tracker.of_entry, tracker.is_left_out
        self._memories, self._own, self._order = tracker.words, tracker.own, tracker.order
        self.line = self._line

    def _line(self, entry: OutboxEntry) -> str:
        """Return an entry on one line, which begins with how far it is trusted."""
        return f'{{"trust": "{self._of_entry(entry)}", {entry.line[1:]}'

    def entry(self, entry: OutboxEntry) -> Json:
        """Return an entry as JSON values, with how far it is trusted."""
        return {**entry.as_json(), "trust": self._of_entry(entry)}

    def ended(self, ended: Ended, plain: Json) -> Json:
        """Return what became of something that was asked, with how far the answer is trusted."""
        told, asked_in = ended.answer or ended.entry, plain.get("trust")
        word = self._of_entry(told) if told else self._own
        if asked_in and self._is_left_out(asked_in):
            return {**plain, "args": {}, "trust": word}
        return {**plain, "trust": self._order.lowest([word, asked_in]) if asked_in else word}

    def memory(self, key: str, plain: Json) -> Json:
        """Return a memory as JSON values, with how far it is trusted."""
        return {**plain, "trust": self._memories.get(key, self._own)}

    def of_entry(self, entry: OutboxEntry) -> str:
        """Return what stands before an entry in a prompt for small models."""
        return f"[trust: {self._of_entry(entry)}] "

    def of_memory(self, key: str) -> str:
        """Return what stands before a memory in a prompt for small models."""
        return f"[trust: {self._memories.get(key, self._own)}] "

    def values(self) -> Json:
        """Return how far the memories are trusted that say so."""
        return {"trust": {"memory": dict(self._memories)}} if self._memories else {}


class Tracker:
    """What one turn is shown, and how far each part of it is trusted."""

    def __init__(self, moment: Moment) -> None:
        now, agent = moment.now, moment.agent
        self._now, self._agent, self._entry = now, agent, moment.model
        self._held = moment.held
        self._authors = now.own(authors_in)
        self.order = self._authors.order
        self._marks = Marks(now.org, self._authors, moment.held)
        self.own = self.order.lowest((AGENT, self._authors.of_author(agent.name)))
        self.words = self._authors.of_memories(agent.name, read_memories(now.org, agent.name))
        self._clean: CleanTurn | None = None
        self._files_left: Sequence[bool] = ()
        self.labels = TrustLabels(self)

    def of_entry(self, entry: OutboxEntry) -> str:
        """Return how far an entry is trusted as the turn is shown it."""
        return self._clean.of_entry(entry) if self._clean else self._authors.of_entry(entry)

    def is_left_out(self, word: str) -> bool:
        """Return whether the turn is not shown what is trusted so."""
        return self._clean is not None and self._clean.is_below(word)

    def clean(self, offered: ToShow) -> ToShow:
        """Return what the turn is shown: all, but for what a clean one is not."""
        least, resumes, task = least_shown(self._agent), self._now.mail.resumes, offered.task
        self._clean = clean_turn(self._authors, self._marks, least, resumes, task)
        if self._clean is None or task is None:
            return offered
        self._files_left = self._clean.files([*self._files_of_context()])
        left = self._clean.left(offered, task, self._agent.name, self.words)
        for key in self.words.keys() - left.memories.values.keys():
            del self.words[key]  # labels name those that there are
        return replace(left, context=[*compress(offered.context, self._files_left)])

    def track(self, seen: Seen, shown: Showing) -> Json:
        """Return what the journal says of how far the turn is trusted, and have the prompt say it too."""
        files = [*self._files_of_context()]
        if self._clean:
            files = [*compress(files, self._files_left)]
        parts = [*self._shown(seen, shown), *files, *self._of_files(seen)]
        told = as_recorded(self.order, parts, self.own)
        if self._clean and self._clean.left_out:
            told["left_out"] = [{"is": word, "of": source} for _, (word, source) in self._clean.left_out]
            seen.time = [*seen.time, self._clean.words()]
        if self._clean and self._clean.values:
            known = [
                {"value": value, "is": word, "of": source} for value, (word, source) in self._clean.values
            ]
            told["values"] = known
        if self._entry.prompt != "values":
            words = (file.word for file in files)
            labelled = zip(seen.context, words, strict=True)
            seen.context = [(f"{label} (trust: {word})", text) for (label, text), word in labelled]
            seen.time = [*seen.time, f"What you are shown here is trusted as: {told['is']}."]
        seen.results = [{"trust": self.own, **result} for result in seen.results]
        return told

    def _shown(self, seen: Seen, shown: Showing) -> Iterator[Part]:
        """Yield how far entries, memories and results are trusted that the turn is shown."""
        for entry in (*_entries(seen), *shown.also):
            yield Part(self.of_entry(entry), entry.identity)
        for key in (*seen.memory, *shown.also_memories):
            if key in self.words:
                yield Part(self.words[key], paths.memory_file(self._agent.name, key))
        for result in seen.results:
            if "trust" in result:
                yield Part(self.order.known(result["trust"]), f"what {result['tool']} gave before")
        if seen.dialogue and seen.dialogue.trust:
            yield Part(self.order.known(seen.dialogue.trust), "what was said for it before")
        for keeper, key in seen.jobs_kept:  # a job is trusted as far as the memory it is kept in
            words = self._authors.of_memories(keeper, read_memories(self._now.org, keeper))
            if key in words:
                yield Part(words[key], paths.memory_file(keeper, key))

    def _files_of_context(self) -> Iterator[Part]:
        """Yield how far each context file is trusted, in their order."""
        for item in self._agent.context:
            if isinstance(item, MemoryOfAnother):
                yield self._memory_of(item)
            else:
                yield self._file(item.file, "context")

    def _memory_of(self, item: MemoryOfAnother) -> Part:
        """Return how far a memory of another agent is trusted, which may be one of this very tick."""
        place = place_of_item(self._agent, self._now.org.base, item)
        word = word_in(decode_record(read_raw(place, self._held), item.file))
        return Part(self.order.known(word) if word else AGENT, item.file)

    def _of_files(self, seen: Seen) -> Iterator[Part]:
        """Yield how far other files are trusted that the turn is shown, or is told by."""
        agent = self._agent
        yield self._marks.of(paths.resume_file(agent.name))
        for file in seen.outside.get("files", ()):
            yield from self._if_allowed(file)
        for path in seen.told_by:
            yield from self._marks.below(path[:-1]) if path.endswith("/") else [self._marks.of(path)]

    def _if_allowed(self, file: str) -> Iterator[Part]:
        try:
            yield self._file(file, "plan")
        except PermissionDenied:  # nothing of it is shown
            return

    def _file(self, file: str, caller: str) -> Part:
        return self._marks.of(resolve(self._agent, self._now.org.base, file, "read", caller=caller).key)


def _entries(seen: Seen) -> Iterator[OutboxEntry]:
    yield from (*seen.inbox.unread, *seen.inbox.known, *seen.inbox.own, *seen.asked)
    if task := seen.task:
        yield from (*([task.request] if task.request else []), *task.thread)
        for ended in task.asked:
            yield from filter(None, (ended.entry, ended.answer))
