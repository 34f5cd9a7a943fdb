"""The trust label of a turn over time, and the labels of the turn's outputs. Pure.

A turn has the lowest trust label of its inputs. Every output of the turn receives this label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lemming.capabilities.trust.origins import (
    UntrustedValue,
    ValueFinder,
    find_untrusted_values,
    make_value_tags,
    strip_value_tags,
)
from lemming.capabilities.trust.sidecar_labels import make_label_effect
from lemming.capabilities.trust.trust_settings import AGENT, TAG, SourcedLabel, TrustOrder, strip_label_tags
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.messages import OutboxEntry

VALUES = "values"
"""Key of the values with a lower label, in a turn's record and in results for the next turn."""
MAX_SOURCES = 16
"""Maximum number of named sources of a turn's label."""


def to_record(order: TrustOrder, labels: Iterable[SourcedLabel], base_label: str = AGENT) -> dict[str, Any]:
    """Return the journal record of a turn's initial trust label and its sources."""
    low_labels = {part.source: part.label for part in labels if order.rank(part.label) < order.rank(base_label)}
    label = order.lowest([base_label, *low_labels.values()])
    sources = [{"is": low_labels[source], "of": source} for source in low_labels if low_labels[source] == label]
    return {"is": label, "order": [*order.labels], **({"from": sources[:MAX_SOURCES]} if sources else {})}


class LabelWithSources(NamedTuple):
    """The trust label of a file, and the sources of the label."""

    label: str
    sources: Sequence[SourcedLabel]


class TurnLabelState:
    """The current trust label of a tracked turn, and its sources."""

    def __init__(self, recorded: Mapping[str, Any], agent: str, tick: int) -> None:
        self.order = TrustOrder(tuple(recorded["order"]))
        self.label: str = self.order.normalize(recorded["is"])
        self.sources = [SourcedLabel(item["is"], item["of"]) for item in recorded.get("from", ())]
        self._record = recorded
        self._agent, self._tick = agent, tick
        self._inherited: dict[str, SourcedLabel] = {}  # files that still hold earlier text, by path
        self._labelled: set[str] = set()  # files with a sidecar label
        self._open_folders: set[str] = set()  # folders in which a call may have written anything

    @property
    def low_values(self) -> list[UntrustedValue]:
        """The shown values with a label below the turn's, the least trusted first."""
        return find_untrusted_values(self._record, self.label)

    def lower_label(self, label: str, source: str) -> None:
        """Record an input of the turn, and lower the turn's label if needed."""
        # The label only falls: nothing that comes later makes the turn trusted again.
        if self.order.rank(label) < self.order.rank(self.label):
            self.label, self.sources = self.order.normalize(label), []
        if self.order.is_untrusted(label) and label == self.label and len(self.sources) < MAX_SOURCES:
            self.sources.append(SourcedLabel(label, source))

    def record_result(self, call_label: Mapping[str, Any]) -> None:
        """Record the labels of a call's result: the result itself and the files involved."""
        for source in call_label.get("from", ()):
            self.lower_label(source["is"], source["of"])
        for path, source in call_label.get("bears", {}).items():
            self._inherited[path] = SourcedLabel(source["is"], source["of"])
        self._labelled.update(call_label.get("marked", ()))
        self._open_folders.update(call_label.get("below", ()))

    def to_kept_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return a result for the next turn. Its arguments are text of this turn, so this turn's label applies too."""
        label = self.order.lowest((self.label, result.get("trust", AGENT)))
        values = [value.as_json() for value in self._find_values([result["args"], result["output"]])]
        result = {**result, VALUES: values} if values else result
        return {**result, "trust": label} if self.order.is_untrusted(label) else result

    def _find_values(self, content: Any) -> list[UntrustedValue]:
        """Return the values in JSON content with a lower label than the turn."""
        if not (low_values := self.low_values):
            return []
        positions = ValueFinder([value.value for value in low_values]).find(content)
        return [low_values[position] for position in sorted(positions)]

    def as_json(self) -> dict[str, Any]:
        """Return the trust label and its sources for the turn's report."""
        source_records = [{"is": source_label, "of": source} for source_label, source in dict.fromkeys(self.sources)]
        return {"is": self.label, **({"from": source_records} if source_records else {})}

    def label_entry(self, entry: OutboxEntry) -> OutboxEntry:
        """Return an entry with the engine's trust tags, and without any other trust tag."""
        tags = self._label_tags(entry.tags, entry.payload)
        return entry if tags == entry.tags else replace(entry, tags=tags)

    def label_files(self, staged: Mapping[str, FileEffect]) -> dict[str, FileEffect]:
        """Return the turn's files by path, labelled in the record or by a sidecar label.

        A sidecar label comes before its file: no file ever exists without its label.
        """
        labelled = {label_effect.path_key: label_effect for label_effect in self.folder_label_effects()}
        for path, effect in staged.items():
            if label_effect := self._label_effect(effect):
                labelled[label_effect.path_key] = label_effect
            labelled[path] = self._label_file(effect)
        return labelled

    def folder_label_effects(self) -> list[FileEffect]:
        """Return the sidecar labels for folders with possible writes of a call."""
        if not self.order.is_untrusted(self.label):
            return []
        folders = [f"{folder}/" for folder in sorted(self._open_folders)]
        return [self._make_effect(folder, *self._lower(self._inherited.get(folder))) for folder in folders]

    def _lower(self, *parts: SourcedLabel | None) -> LabelWithSources:
        """Return the label of the turn, or of its least trusted part."""
        lowest = LabelWithSources(self.label, self.sources)
        for part in filter(None, parts):
            if self.order.rank(part.label) < self.order.rank(lowest.label):
                lowest = LabelWithSources(part.label, [part])
        return lowest

    def _label_file(self, effect: FileEffect) -> FileEffect:
        """Return a file of the turn, with the trust label inside for a memory or an entry."""
        kind = _self_labelled_folder(effect)
        if kind == "memory" and self.order.is_untrusted(label := self._find_label(effect).label):
            record = {**parse(effect.content), "trust": label}
            return replace(effect, content=dump_pretty(record), memory_value=record)
        if kind == "outbox":
            record = parse(effect.content)
            record["tags"] = self._label_tags(record["tags"], record["payload"])
            return replace(effect, content=dump_pretty(record))
        return effect

    def _find_label(self, effect: FileEffect) -> LabelWithSources:
        """Return the trust label of a file: at most the label of an earlier text or of a value inside."""
        parts = [self._inherited.get(effect.path_key)]
        if self._record.get(VALUES):
            # A reader of the file is not told of its values, as a reader of an entry is: the file is labelled.
            is_memory = _self_labelled_folder(effect) == "memory"
            content = parse(effect.content)["value"] if is_memory else effect.content.decode(errors="replace")
            parts += [SourcedLabel(value.label, value.source) for value in self._find_values([effect.path, content])]
        return self._lower(*parts)

    def _label_effect(self, effect: FileEffect) -> FileEffect | None:
        """Return the sidecar label of a file, or None if the file needs no label and has none."""
        if effect.removes or _self_labelled_folder(effect):
            return None
        label, sources = self._find_label(effect)
        if self.order.is_untrusted(label):
            return self._make_effect(effect.path_key, label, sources)
        # A labelled file that a trusted turn replaced needs a new label, or the old one would stay.
        return self._make_effect(effect.path_key, self.label, ()) if effect.path_key in self._labelled else None

    def _make_effect(self, file: str, label: str, sources: Iterable[SourcedLabel]) -> FileEffect:
        return make_label_effect(file, label, self._tick, self._agent, dict.fromkeys(sources))

    def _label_tags(self, tags: list[str], payload: Any) -> list[str]:
        # Only the engine's tags count: a model could tag its own entry as trusted.
        own_tags = [f"{TAG}{self.label}"] if self.order.is_untrusted(self.label) else []
        plain_tags = strip_value_tags(strip_label_tags(tags))
        return [*plain_tags, *own_tags, *make_value_tags(self._find_values([plain_tags, payload]))]


def _self_labelled_folder(effect: FileEffect) -> str:
    """Return the agent subfolder of a file with a label inside ("memory", "outbox"), empty for other files."""
    folders = effect.path.split("/")
    is_candidate = not effect.root and len(folders) == 4 and folders[0] == "agents"
    return folders[2] if is_candidate and folders[2] in ("memory", "outbox") else ""
