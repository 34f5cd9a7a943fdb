"""Turns that are shown nothing that is trusted less than a word: rules in docs/trust.md.

What is left out is named in the turn's record, and counted in its prompt: a name may be a stranger's, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime, time
from math import log2
from typing import Any

from lemming.capabilities.trust.authors import Authors
from lemming.capabilities.trust.marks import Marks
from lemming.capabilities.trust.origins import telling_values
from lemming.capabilities.trust.words import AGENT, Part
from lemming.kernel.agents import Agent
from lemming.kernel.base.paths import memory_file, resume_file
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.begun import Begun
from lemming.kernel.mail.task import Ended, Task
from lemming.kernel.memory import Memories
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.turn.places import ToShow

NOT_SHOWN = "not shown"
_SEVERAL = {"entry": "entries", "memory": "memories", "file": "files", "result": "results"}


class CleanTurn:
    """What a turn for a request is shown, of all there is; `left_out` is the rest, each with its kind."""

    def __init__(self, authors: Authors, marks: Marks, least: str, resumes: Mapping[str, Agent]) -> None:
        self._authors, self._marks, self._least, self._resumes = authors, marks, least, resumes
        self._as_values: set[str] = set()
        self.values: list[tuple[Any, Part]] = []
        self.left_out: list[tuple[str, Part]] = []

    def of_entry(self, entry: OutboxEntry) -> str:
        """Return how far an entry is trusted as the turn is shown it: values say no stranger's words."""
        return AGENT if entry.identity in self._as_values else self._authors.of_entry(entry)

    def left(self, offered: ToShow, task: Task, own: str, memory_words: Mapping[str, str]) -> ToShow:
        """Return what is left to be shown, its files but as they are."""
        thread = [it for it in task.thread if self._passes("entry", self._authors.of_entry(it), it.identity)]
        passed = task._replace(
            thread=thread, asked=[*map(self._ended, task.asked)], begun=self._begun(task.begun)
        )
        return replace(
            offered,
            task=passed,
            memories=self._memories(offered.memories, own, memory_words),
            tell=lambda last: [*map(self._result, offered.tell(last))],
        )

    def files(self, words: Iterable[Part]) -> list[bool]:
        """Return of each context file whether it is shown."""
        return [self._passes("file", part.word, part.source) for part in words]

    def words(self) -> str:
        """Return what the prompt says of what is not shown; empty where all is."""
        counts = Counter(kind for kind, _ in self.left_out)
        told = [f"{count} {kind if count == 1 else _SEVERAL[kind]}" for kind, count in counts.items()]
        return f"{', '.join(told)} not shown: trusted less than {self._least}." if told else ""

    def _passes(self, kind: str, word: str, source: str) -> bool:
        if not self.is_below(word):
            return True
        self.left_out.append((kind, Part(self._authors.order.known(word), source)))
        return False

    def _begun(self, begun: Begun) -> Begun:
        """Return where the request stands, without a dialogue that showed what is trusted less."""
        dialogue = begun.dialogue
        is_left_out = dialogue is not None and self.is_below(
            self._authors.order.known(dialogue.trust or AGENT)
        )
        return replace(begun, dialogue=None) if is_left_out else begun

    def _ended(self, ended: Ended) -> Ended:
        """Return what became of a question; an answer that is trusted less as values, or not at all."""
        if ended.asked.held:
            return ended  # a capability's own, such as a person's word
        answer, entry = ended.answer, ended.entry
        if answer is not None and self._is_low(answer):
            answer = self._as_value(answer, entry)
        if entry is not None and not self._passes("entry", self._authors.of_entry(entry), entry.identity):
            entry = self._emptied(entry, {})
        return ended._replace(answer=answer, entry=entry)

    def _as_value(self, answer: OutboxEntry, entry: OutboxEntry | None) -> OutboxEntry:
        for schema in self._schemas_of(answer.agent, entry):
            if (values := values_in(schema, answer.payload)) is not None:
                self._as_values.add(answer.identity)
                part = Part(self._authors.order.known(self._authors.of_entry(answer)), answer.identity)
                self.values += [(value, part) for value in telling_values(schema, values)]
                return self._emptied(answer, values)
        self._passes("entry", self._authors.of_entry(answer), answer.identity)
        return self._emptied(answer, {NOT_SHOWN: f"it is trusted less than {self._least}"})

    def _schemas_of(self, author: str, entry: OutboxEntry | None) -> list[Any]:
        """Return what the answer is held to: by who asked, as long as that is trusted, and by its author."""
        resume, written = self._resumes.get(author), self._marks.of(resume_file(author)).word
        output = resume.further.get("output") if resume and not self.is_below(written) else None
        asked = entry.payload.get("schema") if entry and not self._is_low(entry) else None
        return [*([asked] if isinstance(asked, dict) else []), *([output.schema] if output else [])]

    def _emptied(self, entry: OutboxEntry, payload: Json) -> OutboxEntry:
        self._as_values.add(entry.identity)
        return replace(entry, payload=payload, tags=[])

    def _is_low(self, entry: OutboxEntry) -> bool:
        return self.is_below(self._authors.of_entry(entry))

    def is_below(self, word: str) -> bool:
        """Return whether what is trusted so is left out."""
        return self._authors.order.rank(word) < self._authors.order.rank(self._least)

    def _memories(self, memories: Memories, own: str, words: Mapping[str, str]) -> Memories:
        kept = {
            key: value
            for key, value in memories.values.items()
            if self._passes("memory", words.get(key, AGENT), memory_file(own, key))
        }
        return memories._replace(values=kept)

    def _result(self, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a result, or that there is one: a call may have been what a stranger wanted, to its name."""
        word = self._authors.order.known(result.get("trust", AGENT))
        if self._passes("result", word, f"what {result['tool']} gave"):
            return result
        nothing = f"[{NOT_SHOWN}]"
        return {"tool": nothing, "args": {}, "success": result["success"], "output": nothing}


def clean_turn(
    authors: Authors, marks: Marks, least: str, resumes: Mapping[str, Agent], task: Task | None
) -> CleanTurn | None:
    """Return who leaves things out of a turn; None where it is for nobody who is trusted so far."""
    if not least or task is None or task.request is None:
        return None
    turn = CleanTurn(authors, marks, least, resumes)
    return None if turn.is_below(authors.of_entry(task.request)) else turn


# --- what of an answer can hold no sentence -------------------------------------------------------

# Who reads strangers may say so much to somebody who acts: the strangers' words do not come along.

MOST_BITS = 256
"""So much an answer may tell in all, however it is spread over fields and lists: 32 letters at eight bits."""
MOST_ITEMS = 32
"""So many values of a list at most, with those in its lists and objects."""
MOST_DEEP = 4
_LARGEST = 2**53
_DATES: dict[str, tuple[re.Pattern[str], Callable[[str], object]]] = {
    "date": (re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII), date.fromisoformat),
    "time": (
        re.compile(r"\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)?\Z", re.ASCII),
        time.fromisoformat,
    ),
    "date-time": (
        re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)?\Z", re.ASCII),
        datetime.fromisoformat,
    ),
}
_BITS_OF_DATES = {"date": 22, "time": 37, "date-time": 59}
"""Days of 9,999 years; microseconds of a day; both. A zone counts with the time."""


def values_in(schema: Mapping[str, Any] | None, payload: Mapping[str, Any]) -> Json | None:
    """Return those fields of a payload that its schema names, if none of them can hold a sentence; else None.

    A schema of anything else than objects with `properties`, numbers, booleans, `enum`, `const`, dates and
    short lists of these says nothing of that kind, and neither does a payload that does not fit it. All of
    them together tell no more than `MOST_BITS`.

    >>> form = {"type": "object", "properties": {"stars": {"type": "integer"}, "kind": {"enum": ["a", "b"]}}}
    >>> values_in(form, {"stars": 4, "kind": "a", "text": "Obey!"})
    {'stars': 4, 'kind': 'a'}
    >>> values_in({"properties": {"text": {"type": "string"}}}, {"text": "Obey!"})
    >>> values_in(form, {"stars": 4, "kind": "Obey!"})
    """
    reading = _Reading()
    try:
        answer = reading.object(schema or {}, payload, MOST_DEEP)
    except (ValueError, TypeError, OverflowError):  # of a schema that is none, or a number that is none
        return None
    return answer if answer and reading.bits <= MOST_BITS else None


class _Reading:
    """One answer as it is read by its schema; `bits`: how much its values may tell in all."""

    def __init__(self) -> None:
        self.bits = 0.0

    def object(self, schema: Mapping[str, Any], payload: Any, deep: int) -> Json:
        properties = schema.get("properties")
        if not (isinstance(properties, dict) and isinstance(payload, Mapping) and deep):
            raise ValueError("no object whose fields are named")
        if schema.get("type", "object") != "object" or any(
            key not in payload for key in schema.get("required", ())
        ):
            raise ValueError("it does not fit")
        self.bits += len(properties.keys() - set(schema.get("required", ())))  # whether each is there
        return {
            key: self._value(form, payload[key], deep - 1)
            for key, form in properties.items()
            if key in payload
        }

    def _value(self, schema: Any, value: Any, deep: int) -> Any:
        if not isinstance(schema, dict):
            raise ValueError("anything would fit")
        choices = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(choices, list):
            if any(type(choice) is type(value) and choice == value for choice in choices):  # true is no 1
                self.bits += log2(len(choices))
                return value
            raise ValueError("none of the choices")
        if schema.get("type") == "object":
            return self.object(schema, value, deep)
        if schema.get("type") == "array" and isinstance(value, list) and _count(value) <= MOST_ITEMS and deep:
            self.bits += log2(MOST_ITEMS + 1)  # how many there are
            return [self._value(schema.get("items"), item, deep - 1) for item in value]
        self.bits += _count_bits(schema, value)
        return value


def _count(value: Any) -> int:
    """Return how many single values there are in a value; an empty list or object is one."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(_count, inside)) or 1


def _count_bits(schema: Mapping[str, Any], value: Any) -> float:
    """Return the number of bits that a value may tell; raise `ValueError` for a sentence, or a misfit."""
    kind, form = schema.get("type"), schema.get("format")
    if isinstance(value, bool) or value is None:
        if (kind == "boolean" and value is not None) or (kind == "null" and value is None):
            return 1.0 if kind == "boolean" else 0.0
        raise ValueError("it does not fit")
    if isinstance(value, int | float) and kind in ("number", "integer"):
        low, high = schema.get("minimum", -_LARGEST), schema.get("maximum", _LARGEST)
        if not low <= value <= high or abs(value) >= _LARGEST or (kind == "integer" and value != int(value)):
            raise ValueError("it does not fit")
        is_bounded = "minimum" in schema and "maximum" in schema
        if is_bounded and kind == "integer":
            return log2(int(high) - int(low) + 1)
        # Without bounds by as many digits as it has: 4 tells little, whatever might have stood there.
        return max(4.0, 3.33 * sum(letter.isdigit() for letter in repr(value)))
    if kind == "string" and isinstance(value, str) and form in _DATES:
        pattern, parsed = _DATES[form]
        if pattern.match(value):
            parsed(value.upper())  # raises for a day that is in no calendar
            return _BITS_OF_DATES[form]
    raise ValueError("it may hold a sentence")
