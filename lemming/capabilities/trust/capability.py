"""What trust does in a turn: it is trusted as far as the least trusted of all that it is shown.

Rules: docs/trust.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import compress
from typing import Any

from lemming.access.allowed_paths import resolve
from lemming.access.context_files import MemoryOfAnother, place_of_item
from lemming.access.open import read_raw
from lemming.agents import Agent, Survey
from lemming.base import paths
from lemming.base.contract import ToolCall
from lemming.base.errors import PermissionDenied
from lemming.capabilities.trust.authors import authors_in
from lemming.capabilities.trust.clean import CleanTurn, clean_turn
from lemming.capabilities.trust.marks import Marks, forget_marks, rename_marks
from lemming.capabilities.trust.settings import least_shown, trust_in
from lemming.capabilities.trust.soundness import wrong_with_clean, wrong_with_trust
from lemming.capabilities.trust.tracing import TrustTracing
from lemming.capabilities.trust.turn import TurnTrust, as_recorded
from lemming.capabilities.trust.vouches import Vouches
from lemming.capabilities.trust.words import AGENT, TRUST, Part
from lemming.files.effects import FileEffect
from lemming.files.fields import Json
from lemming.journal.records import Record, ToolFinished
from lemming.mail.task import Ended
from lemming.memory import decode_record, read_memories
from lemming.memory import trust_in as word_in
from lemming.messages import OutboxEntry
from lemming.org.config import Config, Org
from lemming.org.organisation import Organisation, OrgPath
from lemming.tick.firing_plan import people_in
from lemming.tick.soundness.inventory import Inventory
from lemming.tools import ToolResult
from lemming.turn.draft import Draft
from lemming.turn.labels import Labels
from lemming.turn.moments import Keeps
from lemming.turn.opening import Surroundings
from lemming.turn.places import LetsIn, ToShow, Tracing, Words
from lemming.turn.prompt import Seen
from lemming.turn.seams import Capability, Moment, Preparation, Showing, TurnPart
from lemming.turn.values import TurnInputs


class TrustOfTurns(Capability):
    """How far turns are trusted, where the key `trust` of the settings has it tracked."""

    name = TRUST

    def prepare(self, moment: Moment) -> Preparation:
        """Return what it has of what a turn starts from."""
        return TrustPreparation(moment)

    def part(self, draft: Draft, given: Json) -> TurnPart:
        """Return its part in a turn that is tracked."""
        return TrustPart(self.name, draft, given)

    def words(self, now: Surroundings) -> Words | None:
        """Return how far what turns are shown is trusted."""
        return now.own(authors_in) if trust_in(now.config.org) else None

    def tracing(self, now: Surroundings, inputs: TurnInputs) -> Tracing | None:
        """Return who looks at how far what the calls of a turn give is trusted."""
        return TrustTracing(now, inputs) if trust_in(now.config.org) else None

    def tools_named(self, said: Org | Agent) -> Iterable[str]:
        """Return the tools that the settings say something of."""
        trust = trust_in(said) if isinstance(said, Org) else None
        return trust.tools if trust else ()

    def wrong_with(self, agent: Agent | None, known: Inventory) -> Iterator[tuple[str, str, str]]:
        """Yield rules that are about nobody here, patterns that fit no tool, and what makes no turn clean."""
        trust = trust_in(known.config.org)
        if agent is not None:
            yield from wrong_with_clean(agent, trust, known.config)
        elif trust:
            yield from wrong_with_trust(trust, known)

    def keeps(self, org: Organisation, config: Config, survey: Survey) -> Keeps:
        """Return who says that people vouch for something by an entry: their word holds on."""
        people, is_one = frozenset(people_in(survey, config)), org.own(Vouches).is_one
        return lambda name: name.author in people and is_one(name)

    @contextmanager
    def renaming(self, base: OrgPath, before: str, after: str) -> Iterator[None]:
        """Have the marks of the files in a folder be those of another."""
        rename_marks(base, before, after)
        yield
        forget_marks(base, before)

    def kept_results(
        self, inputs: TurnInputs, records: Iterable[Record], results: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return results of a turn that is given up, each with how far it is trusted."""
        turn = TurnTrust.of(inputs)
        for record in records:
            if isinstance(record, ToolFinished):
                turn.take(record.trust)
        return [*map(turn.kept, results)]


class TrustPart(TurnPart):
    """How far one turn is trusted, and what it writes made to say so."""

    def __init__(self, name: str, draft: Draft, given: Json) -> None:
        super().__init__(name, draft, given)
        self._turn = TurnTrust(given, draft.inputs.agent.name, draft.inputs.tick)
        draft.noted[TRUST] = self._turn.as_json()

    def trust(self) -> str:
        """Return how far the turn is trusted by now."""
        return self._turn.word

    def after_call(self, index: int, call: ToolCall, result: ToolResult) -> None:
        """Note how far what a call gave is trusted."""
        if result.trust:
            self._turn.take(result.trust)
            self.draft.noted[TRUST] = self._turn.as_json()

    def writes(self, files: dict[str, FileEffect]) -> dict[str, FileEffect]:
        """Return files that say how far they are trusted, or have a mark for it."""
        return self._turn.borne(files)

    def shown_result(self, result: Json) -> Json:
        """Return a result that says how far it is trusted."""
        return self._turn.told(result)

    def seals(self) -> None:
        """Have all that the turn writes and leaves bear how far it is trusted in the end."""
        draft, turn = self.draft, self._turn
        draft.staged = turn.borne(draft.staged)
        draft.entries = [*map(turn.of_entry, draft.entries)]
        draft.last_words = [*map(turn.of_entry, draft.last_words)]
        draft.results = [*map(turn.kept, draft.results)]
        draft.outside = [*map(turn.kept, draft.outside)]


class TrustPreparation(Preparation):
    """Works out how far a turn is trusted as it begins."""

    @cached_property
    def _tracker(self) -> Tracker:
        return Tracker(self.moment)

    def labels(self) -> Labels:
        """Return the labels for the parts of the prompt."""
        return self._tracker.labels

    def looks(self, offered: ToShow, lets_in: LetsIn) -> ToShow:
        """Return what a turn is shown that is to be clean."""
        return self._tracker.clean(offered)

    def annotates(self, seen: Seen, shown: Showing) -> None:
        """Have the prompt say how far the turn, and each part of it, is trusted."""
        self._told = self._tracker.track(seen, shown)

    def given(self) -> Json:
        """Return how far the turn is trusted as it begins, and what made it so."""
        return self._told


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
