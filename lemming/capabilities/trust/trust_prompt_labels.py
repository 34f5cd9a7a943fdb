"""Label the parts of a turn's prompt with trust labels, and record the inputs of the turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from lemming.capabilities.trust.author_labels import make_labeler
from lemming.capabilities.trust.clean_turns import CleanContextFilter
from lemming.capabilities.trust.origins import MAX_VALUES, UntrustedValue, ValueFinder, parse_value_tags
from lemming.capabilities.trust.sidecar_labels import SidecarLabels
from lemming.capabilities.trust.trust_settings import AGENT, SourcedLabel, get_minimum_label
from lemming.capabilities.trust.turn_trust import VALUES, to_record
from lemming.ext import (
    Allowed,
    BuildPrompt,
    Effect,
    Interception,
    LabelPrompt,
    Outcome,
    Preparation,
    PromptLabels,
    SelectContext,
    ShowEarlierResult,
    ShowEntry,
    ShowFile,
    ShowMemory,
)
from lemming.kernel.access.agent_files import read_raw
from lemming.kernel.access.allowed_paths import resolve_path
from lemming.kernel.access.context_files import ForeignMemory, resolve_item
from lemming.kernel.base import paths
from lemming.kernel.base.errors import PermissionDenied
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.turn_agenda import RequestOutcome
from lemming.kernel.memory import decode_record, get_trust_label, load_memories
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.resume import ContextFile
from lemming.kernel.turn.prompt_input import PromptInput


class PromptTaintTracker(PromptLabels):
    """Prompt labels with trust labels on every entry, and on labelled memories. Tracks the inputs of a turn."""

    def __init__(self, turn: Preparation) -> None:
        context, tick_context, agent = turn.context, turn.context.tick_context, turn.agent
        self._tick_context, self._agent, self._entry = tick_context, agent, context.model
        self._staged = context.unwritten_files
        self._authors = tick_context.get_cache(make_labeler)
        self.order = self._authors.order
        self._sidecar_labels = SidecarLabels(tick_context.org, self._authors, context.unwritten_files)
        self.own_label = self.order.lowest((AGENT, self._authors.author_label(agent.name)))
        self.memory_labels = self._authors.memory_labels(agent.name, turn.memories)
        self._memory_keys = turn.memories.values.keys()
        self._clean_filter: CleanContextFilter | None = None
        self._files: list[SourcedLabel] = []
        self.record: Json = {}
        self.line = self._entry_line

    def _entry_line(self, entry: OutboxEntry) -> str:
        """Return an entry on one line, beginning with the trust label."""
        return f'{{"trust": "{self.entry_label(entry)}", {entry.prompt_line[1:]}'

    def label_entry(self, entry: OutboxEntry) -> Json:
        """Return an entry as JSON values, with the trust label."""
        return {**entry.as_json(), "trust": self.entry_label(entry)}

    def label_outcome(self, outcome: RequestOutcome, raw: Json) -> Json:
        """Return a sub-request's outcome with the trust label of the answer."""
        source_entry, call_label = outcome.answer or outcome.entry, raw.get("trust")
        label = self.entry_label(source_entry) if source_entry else self.own_label
        if call_label and self._clean_filter and self._clean_filter.is_below_minimum(call_label):
            return {**raw, "args": {}, "trust": label}
        return {**raw, "trust": self.order.lowest([label, call_label]) if call_label else label}

    def label_memory(self, key: str, raw: Json) -> Json:
        """Return a memory as JSON values, with the trust label."""
        return {**raw, "trust": self.memory_labels.get(key, self.own_label)}

    def entry_prefix(self, entry: OutboxEntry) -> str:
        """Return the prefix of an entry in a prompt for small models."""
        return f"[trust: {self.entry_label(entry)}] "

    def memory_prefix(self, key: str) -> str:
        """Return the prefix of a memory in a prompt for small models."""
        return f"[trust: {self.memory_labels.get(key, self.own_label)}] "

    def entry_trust(self, entry: OutboxEntry) -> str:
        """Return the trust label of an entry, whatever the turn is shown of it."""
        return self.order.normalize(self._authors.entry_label(entry))

    def memory_trust(self, key: str) -> str:
        """Return the trust label of a memory."""
        return self.order.normalize(self.memory_labels.get(key, AGENT))

    def result_trust(self, result: Mapping[str, Any]) -> str:
        """Return the trust label of a result."""
        return self.order.normalize(result.get("trust") or AGENT)

    def lowest_trust(self, labels: Iterable[str]) -> str:
        """Return the least trusted of several labels."""
        return self.order.lowest(labels)

    def template_values(self) -> Json:
        """Return the trust labels of labelled memories as template values."""
        return {"trust": {"memory": dict(self.memory_labels)}} if self.memory_labels else {}

    def entry_label(self, entry: OutboxEntry) -> str:
        """Return the trust label of an entry as shown to the turn."""
        return self._clean_filter.entry_label(entry) if self._clean_filter else self._authors.entry_label(entry)

    @property
    def handles(self) -> Sequence[type[Effect]]:
        """The parts of the prompt with labels, and all inputs of a turn that may be clean."""
        labelled: Sequence[type[Effect]] = (LabelPrompt, ShowFile, BuildPrompt)
        if not get_minimum_label(self._agent):
            return labelled
        return (*labelled, ShowEntry, ShowMemory, ShowEarlierResult, SelectContext)

    def intercept(self, effect: Effect) -> Interception:
        """Label the prompt, and show a clean turn only what it may be shown."""
        match effect:
            case LabelPrompt():
                return (yield replace(effect, labels=self))
            case BuildPrompt():
                return (yield self._label_prompt(effect))
            case SelectContext(task=task) if task and self._clean_filter:
                open_request = self._clean_filter.filter_dialogue(task.open_request, task.outcomes)
                return (yield replace(effect, task=task._replace(open_request=open_request)))
            case ShowEntry(part="request", entry=entry):
                self._clean_filter = self._make_clean_filter(entry)
            case ShowFile(index=index):
                file = self._context_file_label(self._agent.context[index])
                outcome = self._reject("file", file.label, file.source) or (yield effect)
                self._files += [file] if isinstance(outcome, Allowed) else []
                return outcome
            case ShowMemory(memory_key=key):
                label = self.memory_labels.get(key, AGENT)
                if outcome := self._reject("memory", label, paths.memory_file(self._agent.name, key)):
                    self.memory_labels.pop(key, None)
                return outcome
            case _ if self._clean_filter:
                filtered = self._clean_filter.filter_effect(effect)
                return (yield filtered) if isinstance(filtered, Effect) else filtered
        return None

    def _reject(self, kind: str, label: str, source: str) -> Outcome | None:
        return self._clean_filter.reject_untrusted(kind, label, source) if self._clean_filter else None

    def _make_clean_filter(self, request: OutboxEntry) -> CleanContextFilter | None:
        """Return the filter of a clean turn, or None if the turn shows everything."""
        resumes = self._tick_context.mail.resumes
        clean_filter = CleanContextFilter(self._authors, self._sidecar_labels, self._agent, resumes)
        if clean_filter.is_below_minimum(self._authors.entry_label(request)):
            return None
        for key in self.memory_labels.keys() - self._memory_keys:
            del self.memory_labels[key]  # labels only of visible memories
        return clean_filter

    def _label_prompt(self, effect: BuildPrompt) -> BuildPrompt:
        """Return the prompt with the labels of its parts, and note the turn's trust label for the record."""
        prompt, selected, files = effect.prompt, effect.selected, self._files
        entries = [*_iter_entries(prompt), *selected.other_entries]
        parts = [*self._visible_labels(prompt, entries, selected.other_memories), *files, *self._file_labels(prompt)]
        values = self._traced_values(prompt, entries)
        # More values than are traced: the turn counts as shown the texts of the others.
        parts += [SourcedLabel(self.order.normalize(value.label), value.source) for value in values[MAX_VALUES:]]
        self.record = record = to_record(self.order, parts, self.own_label)
        time, context = [*prompt.time], prompt.context
        if self._clean_filter and self._clean_filter.omitted:
            record["left_out"] = [{"is": label, "of": source} for _, (label, source) in self._clean_filter.omitted]
            time.append(self._clean_filter.omission_note())
        if values:
            record[VALUES] = [value.as_json() for value in values[:MAX_VALUES]]
        if self._entry.prompt != "values":
            labelled = zip(context, files, strict=True)
            context = [(f"{title} (trust: {file.label})", text) for (title, text), file in labelled]
            time.append(f"What you are shown here is trusted as: {record['is']}.")
        plain_results = ({key: result[key] for key in result if key != VALUES} for result in prompt.results)
        results = [{"trust": self.own_label, **result} for result in plain_results]
        return effect.change(time=time, context=context, results=results)

    def _traced_values(self, prompt_input: PromptInput, entries: Sequence[OutboxEntry]) -> Sequence[UntrustedValue]:
        """Return the values of less trusted texts in what the turn is shown, each once.

        A value also present in a trusted text of the turn is left out.
        """
        values = [*self._clean_filter.values] if self._clean_filter else []
        for value in (value for entry in entries for value in parse_value_tags(entry.tags, entry.identity)):
            # A person may have endorsed the entry.
            label = self._authors.apply_endorsements(self.order.normalize(value.label), value.source)
            values.append(value._replace(label=label))
        for result in prompt_input.results:
            values += map(UntrustedValue.from_json, result.get(VALUES, ()))
        if not values:
            return ()
        # The first source stands for all: each entry of a conversation may repeat a value.
        values = [*{(str(value.value), value.label): value for value in reversed(values)}.values()][::-1]
        finder = ValueFinder([value.value for value in values])
        trusted_positions = set[int]()
        for content in self._trusted_texts(prompt_input, entries):
            positions = finder.find(content)
            if not finder.has_room():
                break  # what is not compared is no proof that a value is the agent's own
            trusted_positions |= positions
        return [value for position, value in enumerate(values) if position not in trusted_positions]

    def _trusted_texts(self, prompt_input: PromptInput, entries: Sequence[OutboxEntry]) -> Iterator[Any]:
        """Yield the agent's trusted texts: the instructions, entries, memories and files."""
        is_untrusted, clean_filter = self.order.is_untrusted, self._clean_filter
        if not is_untrusted(self._sidecar_labels.get_label(paths.resume_file(self._agent.name)).label):
            yield self._agent.instructions
        for entry in entries:
            holds_values = (clean_filter and clean_filter.is_reduced(entry)) or any(parse_value_tags(entry.tags, ""))
            is_own = entry.agent == self._agent.name
            if not (is_own or holds_values or is_untrusted(self._authors.entry_label(entry))):
                yield entry.payload
        labels, memories = self.memory_labels, prompt_input.memory.items()
        yield {key: value for key, value in memories if not is_untrusted(labels.get(key, AGENT))}
        for (_, text), file in zip(prompt_input.context, self._files, strict=True):
            if not is_untrusted(file.label):
                yield text

    def _visible_labels(
        self, prompt_input: PromptInput, entries: Sequence[OutboxEntry], other_memories: Iterable[str]
    ) -> Iterator[SourcedLabel]:
        """Yield the labels of entries, memories and results visible to the turn."""
        for entry in entries:
            yield SourcedLabel(self.entry_label(entry), entry.identity)
        for key in (*prompt_input.memory, *other_memories):
            if key in self.memory_labels:
                yield SourcedLabel(self.memory_labels[key], paths.memory_file(self._agent.name, key))
        for result in prompt_input.results:
            if "trust" in result:
                yield SourcedLabel(self.order.normalize(result["trust"]), f"what {result['tool']} gave before")
        if prompt_input.dialogue and prompt_input.dialogue.trust:
            yield SourcedLabel(self.order.normalize(prompt_input.dialogue.trust), "what was said for it before")
        for owner, key in prompt_input.job_memories:  # a job has the label of the memory that keeps it
            labels = self._authors.memory_labels(owner, load_memories(self._tick_context.org, owner))
            if key in labels:
                yield SourcedLabel(labels[key], paths.memory_file(owner, key))

    def _context_file_label(self, item: ContextFile | ForeignMemory) -> SourcedLabel:
        """Return the label of a context file. Another agent's memory may have been written in this tick."""
        if not isinstance(item, ForeignMemory):
            return self._file_label(item.file, "context")
        path = resolve_item(self._agent, self._tick_context.org.base, item)
        label = get_trust_label(decode_record(read_raw(path, self._staged), item.file))
        return SourcedLabel(self.order.normalize(label) if label else AGENT, item.file)

    def _file_labels(self, prompt_input: PromptInput) -> Iterator[SourcedLabel]:
        """Yield the labels of other files visible to the turn or used by the turn."""
        agent = self._agent
        # Never left out, even of a clean turn: these lower its label instead.
        yield self._sidecar_labels.get_label(paths.resume_file(agent.name))
        for file in prompt_input.extra_values.get("files", ()):
            with suppress(PermissionDenied):  # a refused file is not shown
                yield self._file_label(file, "plan")
        for path in prompt_input.source_paths:
            yield from (
                self._sidecar_labels.iter_folder_labels(path[:-1])
                if path.endswith("/")
                else [self._sidecar_labels.get_label(path)]
            )

    def _file_label(self, file: str, caller: str) -> SourcedLabel:
        path = resolve_path(self._agent, self._tick_context.org.base, file, "read", caller=caller)
        return self._sidecar_labels.get_label(path.path_key)


def _iter_entries(prompt_input: PromptInput) -> Iterator[OutboxEntry]:
    inbox = prompt_input.inbox
    yield from (*inbox.unread, *inbox.earlier, *inbox.own_entries, *prompt_input.requests)
    if task := prompt_input.task:
        yield from (*([task.request] if task.request else []), *task.thread)
        for outcome in task.outcomes:
            yield from filter(None, (outcome.entry, outcome.answer))
