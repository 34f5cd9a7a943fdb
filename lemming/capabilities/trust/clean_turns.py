"""Clean turns: turns without any input below a minimum trust label. Rules: docs/security.md.

The turn's record names the omitted inputs. The prompt only counts the inputs, because even a name may come
from an untrusted author.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from math import log2
from typing import Any

from lemming.capabilities.trust.author_labels import OrgTrustLabeler
from lemming.capabilities.trust.origins import UntrustedValue, iter_recognizable_values
from lemming.capabilities.trust.sidecar_labels import SidecarLabels
from lemming.capabilities.trust.trust_settings import AGENT, SourcedLabel, get_minimum_label
from lemming.ext import Effect, Outcome, Rejected, ShowEarlierResult, ShowEntry, resume_file
from lemming.kernel.agents import Agent
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.turn_agenda import RequestOutcome
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.messages import OutboxEntry

NOT_SHOWN = "not shown"
_PLURALS = {"entry": "entries", "memory": "memories", "file": "files", "result": "results"}


class CleanContextFilter:
    """Filter for the inputs of a clean turn."""

    def __init__(
        self, authors: OrgTrustLabeler, sidecar_labels: SidecarLabels, agent: Agent, resumes: Mapping[str, Agent]
    ) -> None:
        self._authors, self._marks, self._resumes, self._agent_name = authors, sidecar_labels, resumes, agent.name
        self._minimum = get_minimum_label(agent)
        self._reduced: set[str] = set()
        self.values: list[UntrustedValue] = []
        self._omitted: list[tuple[str, SourcedLabel]] = []

    @property
    def omitted(self) -> Sequence[tuple[str, SourcedLabel]]:
        """The removed inputs with their kinds, files first."""
        return sorted(self._omitted, key=lambda item: item[0] != "file")

    def entry_label(self, entry: OutboxEntry) -> str:
        """Return the trust label of an entry as shown: extracted values contain no untrusted text."""
        return AGENT if self.is_reduced(entry) else self._authors.entry_label(entry)

    def is_reduced(self, entry: OutboxEntry) -> bool:
        """Return True if the turn is shown values or a placeholder in place of an entry's payload."""
        return entry.identity in self._reduced

    def filter_effect(self, effect: Effect) -> Effect | Outcome:
        """Return an effect as a clean turn may be shown it, or its rejection."""
        match effect:
            case ShowEntry(part="thread", entry=entry):
                return self.reject_untrusted("entry", self._authors.entry_label(entry), entry.identity) or effect
            case ShowEntry(entry=entry, outcome=outcome) if outcome is not None and not outcome.sub_request.held:
                if effect.part == "answer":
                    return replace(effect, entry=self._reduce_to_values(entry, outcome.entry))
                is_allowed = self._is_allowed("entry", self._authors.entry_label(entry), entry.identity)
                return effect if is_allowed else replace(effect, entry=self._replace_payload(entry, {}))
            case ShowEarlierResult(result=result):
                return replace(effect, result=self._filter_result(result))
        return effect

    def reject_untrusted(self, kind: str, label: str, source: str) -> Rejected | None:
        """Return the rejection of an input below the minimum label, else None."""
        return None if self._is_allowed(kind, label, source) else Rejected(f"it is trusted less than {self._minimum}")

    def omission_note(self) -> str:
        """Return the prompt's note about omitted inputs, empty if nothing was omitted."""
        counts = Counter(kind for kind, _ in self.omitted)
        counts_text = [f"{count} {kind if count == 1 else _PLURALS[kind]}" for kind, count in counts.items()]
        return f"{', '.join(counts_text)} not shown: trusted less than {self._minimum}." if counts_text else ""

    def _is_allowed(self, kind: str, label: str, source: str) -> bool:
        if not self.is_below_minimum(label):
            return True
        self._omitted.append((kind, SourcedLabel(self._authors.order.normalize(label), source)))
        return False

    def filter_dialogue(self, open_request: OpenRequest, outcomes: Iterable[RequestOutcome]) -> OpenRequest:
        """Return the open request, without a dialogue below the minimum label or with values of unknown origin."""
        dialogue = open_request.dialogue
        # The dialogue may show values of an answer that has been removed since, and nothing else names them.
        if any(outcome.sub_request.answer and outcome.answer is None for outcome in outcomes):
            return replace(open_request, dialogue=None)
        label = self._authors.order.normalize((dialogue and dialogue.trust) or AGENT)
        return replace(open_request, dialogue=None) if self.is_below_minimum(label) else open_request

    def _reduce_to_values(self, answer: OutboxEntry, request: OutboxEntry | None) -> OutboxEntry:
        """Return the answer of a sub-request; an untrusted answer is reduced to values or removed."""
        if not self._is_untrusted(answer):
            return answer
        label = self._authors.order.normalize(self._authors.entry_label(answer))
        for schema in self._answer_schemas(answer.agent, request):
            if (values := extract_safe_values(schema, answer.payload)) is not None:
                for value in iter_recognizable_values(schema, values):
                    self.values.append(UntrustedValue(value, label, answer.identity))
                return self._replace_payload(answer, values)
        self._is_allowed("entry", label, answer.identity)
        return self._replace_payload(answer, {NOT_SHOWN: f"it is trusted less than {self._minimum}"})

    def _answer_schemas(self, author: str, entry: OutboxEntry | None) -> list[Any]:
        """Return the schemas of an answer: from the asker, if trusted, and from the author's resume."""
        # A schema by an untrusted author could pass any sentence, as one of the choices of an `enum`.
        resume, resume_label = self._resumes.get(author), self._marks.get_label(resume_file(author)).label
        output = resume.extensions.get("output") if resume and not self.is_below_minimum(resume_label) else None
        request_schema = entry.payload.get("schema") if entry and not self._is_untrusted(entry) else None
        return [*([request_schema] if isinstance(request_schema, dict) else []), *([output.schema] if output else [])]

    def _replace_payload(self, entry: OutboxEntry, payload: Json) -> OutboxEntry:
        self._reduced.add(entry.identity)
        return replace(entry, payload=payload, tags=[])

    def _is_untrusted(self, entry: OutboxEntry) -> bool:
        return self.is_below_minimum(self._authors.entry_label(entry))

    def is_below_minimum(self, label: str) -> bool:
        """Return True if a label is below the minimum."""
        return self._authors.order.rank(label) < self._authors.order.rank(self._minimum)

    def _filter_result(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a result, or a placeholder: an untrusted author may have chosen even the name of a call."""
        label = self._authors.order.normalize(result.get("trust", AGENT))
        if self._is_allowed("result", label, f"what {result['tool']} gave"):
            return result
        placeholder = f"[{NOT_SHOWN}]"
        return {"tool": placeholder, "args": {}, "success": result["success"], "output": placeholder}


# An agent that reads untrusted text may pass these values, and none of its sentences, to one that acts.

MAX_BITS = 256
"""Information limit of an answer over all its fields and lists: that of 32 letters at eight bits."""
MAX_ITEMS = 32
"""Maximum number of values in a list, nested values included."""
MAX_DEPTH = 4
_MAX_NUMBER = 2**53
_DATES: dict[str, tuple[re.Pattern[str], Callable[[str], object]]] = {
    "date": (re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII), date.fromisoformat),
    "time": (re.compile(r"\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?\Z", re.ASCII), time.fromisoformat),
    "date-time": (
        re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)?\Z", re.ASCII),
        datetime.fromisoformat,
    ),
}
_DATE_BITS = {"date": 22, "time": 37, "date-time": 59}
"""Days of 9,999 years; microseconds of a day; both. A zone counts with the time."""


def extract_safe_values(schema: Mapping[str, Any] | None, payload: Mapping[str, Any]) -> Json | None:
    """Return the fields of a payload described by the schema, or None if a field could contain a sentence.

    Allowed are objects with `properties`, numbers, booleans, `enum`, `const`, dates and short lists of these
    types. Any other schema, or a payload violating the schema, gives None. All fields together may carry at
    most `MAX_BITS` of information.

    >>> form = dict(type="object", properties=dict(stars={"type": "integer"}, kind={"enum": ["a", "b"]}))
    >>> extract_safe_values(form, dict(stars=4, kind="a", text="Obey!"))
    {'stars': 4, 'kind': 'a'}
    >>> extract_safe_values({"properties": {"text": {"type": "string"}}}, {"text": "Obey!"})
    >>> extract_safe_values(form, dict(stars=4, kind="Obey!"))
    """
    reader = _ValueReader()
    try:
        answer = reader.parse_object(schema or {}, payload, MAX_DEPTH)
    except (ValueError, TypeError, OverflowError):  # an invalid schema or number
        return None
    return answer if answer and reader.bits <= MAX_BITS else None


class _ValueReader:
    """Reads one answer by its schema. `bits` counts the information carried by the values."""

    def __init__(self) -> None:
        self.bits = 0.0

    def parse_object(self, schema: Mapping[str, Any], payload: Any, depth: int) -> Json:
        properties = schema.get("properties")
        if not (isinstance(properties, dict) and isinstance(payload, Mapping) and depth):
            raise ValueError("no object whose fields are named")
        if schema.get("type", "object") != "object" or any(key not in payload for key in schema.get("required", ())):
            raise ValueError("it does not fit")
        self.bits += len(properties.keys() - set(schema.get("required", ())))  # the presence of each is a bit
        forms = ((key, form) for key, form in properties.items() if key in payload)
        return {key: self._parse_value(form, payload[key], depth - 1) for key, form in forms}

    def _parse_value(self, schema: Any, value: Any, depth: int) -> Any:
        if not isinstance(schema, dict):
            raise ValueError("anything would fit")
        choices = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(choices, list):
            # The types too: True == 1 in Python.
            if any(type(choice) is type(value) and choice == value for choice in choices):
                self.bits += log2(len(choices))
                return value
            raise ValueError("none of the choices")
        if schema.get("type") == "object":
            return self.parse_object(schema, value, depth)
        if schema.get("type") == "array" and isinstance(value, list) and _count_values(value) <= MAX_ITEMS and depth:
            self.bits += log2(MAX_ITEMS + 1)  # the length tells something too
            return [self._parse_value(schema.get("items"), item, depth - 1) for item in value]
        self.bits += _count_bits(schema, value)
        return value


def _count_values(value: Any) -> int:
    """Return the number of single values in a value. An empty list or object counts as one value."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_count_values, items)) or 1


def _count_bits(schema: Mapping[str, Any], value: Any) -> float:
    """Return the bits of information in a value. Raise `ValueError` for a possible sentence or a schema violation."""
    kind, form = schema.get("type"), schema.get("format")
    if isinstance(value, bool) or value is None:
        if (kind == "boolean" and value is not None) or (kind == "null" and value is None):
            return 1.0 if kind == "boolean" else 0.0
        raise ValueError("it does not fit")
    if isinstance(value, int | float) and kind in ("number", "integer"):
        low, high = schema.get("minimum", -_MAX_NUMBER), schema.get("maximum", _MAX_NUMBER)
        if not low <= value <= high or abs(value) >= _MAX_NUMBER or (kind == "integer" and value != int(value)):
            raise ValueError("it does not fit")
        is_bounded = "minimum" in schema and "maximum" in schema
        if is_bounded and kind == "integer":
            return log2(int(high) - int(low) + 1)
        # Without bounds, by the number of digits: a small number tells little.
        return max(4.0, 3.33 * sum(letter.isdigit() for letter in repr(value)))
    if kind == "string" and isinstance(value, str) and form in _DATES:
        pattern, parse_date = _DATES[form]
        if pattern.match(value):
            parse_date(value.upper())  # raises for an impossible date
            return _DATE_BITS[form]
    raise ValueError("it may hold a sentence")
