"""The contract between engine and model: four keys of JSON, and nothing else. Pure.

Format: architecture guide, "Engine↔LLM JSON Contract". A reply may stand in a code fence or in prose; that
is accepted and remarked upon. What is wrong in an optional part (a memory, tags, a call, a key too many)
costs that part, beside something sound. Everything else that is wrong with a reply is said in one
`ContractError`.

Backends that constrain their output to a schema cannot express free-form objects, so they are given a
*wire* form in which free-form parts are JSON inside a string (`data_json`, `value_json`, `args_json`).
`parse_reply` turns either form into the same values; `lemming.kernel.turn.reply_schemas` has the schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from lemming.kernel.base.call_shapes import KEYS, MAX_TOOL_NAME_CHARS, CallShapes
from lemming.kernel.base.errors import ContractError
from lemming.kernel.base.jsontext import JsonProblem, nearest, parse, to_line
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.base.paths import MEMORY_KEY, MEMORY_KEY_RULE
from lemming.kernel.base.reply_json import MAX_REPLY_DEPTH
from lemming.kernel.base.reply_object import REPLY_LIMIT_BYTES as REPLY_LIMIT_BYTES
from lemming.kernel.base.reply_object import has_contract as has_contract
from lemming.kernel.base.reply_object import object_in as object_in

MAX_ENTRIES = 64
MAX_TOOL_CALLS = 64
MAX_MEMORY_UPDATES = 64
MAX_ENTRY_BYTES = 64 << 10
MAX_TAGS = 32
MAX_TAG_CHARS = 100
MAX_PROBLEMS_QUOTED = 8
MAX_PARTS_LEFT_OUT = 256
MAX_REMARKS = 32
MOST_GROWTH = 5  # times, of JSON that is written anew: 1e15 becomes 1000000000000000.0
ENTRY_KEYS = dict.fromkeys(("kind", "payload", "tags")).keys()
CALL_KEYS = dict.fromkeys(("tool", "args", "args_json")).keys()
UPDATE_KEYS = dict.fromkeys(("key", "value", "value_json")).keys()
ENGINE_KEYS = ("id", "agent", "tick", "created_at", "timestamp")
# Beside the payload these change who is reached, or when: an entry is not written without them.
PAYLOAD_KEYS = frozenset(
    ("to", "target", "targets", "recipient", "recipients", "reply_to", "not_before", "deadline", "status")
)
_PLACE = re.compile(r"/(\w+)(?:/(\d+))?(?:/(.*))?", re.DOTALL)
_SHAPES = CallShapes(())

Keep = Literal["all", "sound", "some", "any"]
"""The wrong parts that are left out: none; optional ones beside a sound part; any beside one; any."""


class NewEntry(NamedTuple):
    """An entry as the model wants it written: the rest of its keys are the engine's."""

    kind: MessageKind
    payload: dict[str, Any]
    tags: list[str]


class ToolCall(NamedTuple):
    """A call as the model wants it made, with the id that its backend gave it, if any.

    `approved`: by whose word this very call, which waited for it, is made. `judged`: why judges did not pass
    it, by the line of the gate that asked; empty where one did.
    """

    tool: str
    args: Any
    id: str = ""
    approved: Mapping[str, Any] | None = None
    judged: Mapping[str, str] | None = None


Fit = Callable[[list[NewEntry]], list[NewEntry | list[str]]]
"""Holds entries against what they must be: each is given back, or what is wrong in its payload."""


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class MemoryUpdate:
    """A memory as the model wants it kept."""

    key: str
    value: Any


class TurnReply(NamedTuple):
    """A reply that is the contract. `remarks`: what was put right; `left_out`: what was wrong.

    `goes_on`: what it asks for is not all that the turn is for, so that the model is asked again.
    """

    outbox_entries: tuple[NewEntry, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    memory_updates: tuple[MemoryUpdate, ...] = ()
    notes: str = ""
    remarks: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    goes_on: bool = False


def parse_reply(
    text: str,
    *,
    kinds: Iterable[str],
    max_entries: int = MAX_ENTRIES,
    max_calls: int | None = MAX_TOOL_CALLS,
    keep: Keep = "sound",
    fit: Fit | None = None,
    has_calls: bool = False,
) -> TurnReply:
    """Return what a model's reply asks for; raise `ContractError` that lists what is wrong with it.

    `max_calls`: so many tool calls are read; None: all. What `keep` admits is told in `left_out`.
    `has_calls`: sound calls stand beside the text.

    >>> parse_reply('{"notes": "nothing to do"}', kinds=["message"]).notes
    'nothing to do'
    >>> memories = '[{"key": "a b", "value": 1}, {"key": "town", "value": "Oslo"}]'
    >>> parse_reply('{"memory_updates": %s}' % memories, kinds=["message"]).memory_updates
    (MemoryUpdate(key='town', value='Oslo'),)
    """
    remarks: list[str] = []
    plain = object_in(text, remarks, is_strict=keep == "all")
    # only a long reply can hold one that is too large: each payload is written anew to measure it
    may_be_large = MOST_GROWTH * len(text) > MAX_ENTRY_BYTES
    reader = _Reader(tuple(kinds), remarks, may_be_large=may_be_large, keep=keep)
    reader.keys(plain)
    entries = reader.entries(plain.get("outbox_entries"), fit)
    calls = reader.calls(plain.get("tool_calls"))
    updates = reader.updates(plain.get("memory_updates"))
    notes = reader.notes(plain.get("notes"))
    if reader.problems and not reader.may_go_without(
        has_sound_part=bool(entries or calls or updates or has_calls)
    ):
        raise ContractError("; ".join(map(str, reader.problems[:MAX_PROBLEMS_QUOTED])))
    return TurnReply(
        reader.cap(entries, min(max_entries, MAX_ENTRIES), "outbox_entries"),
        tuple(calls) if max_calls is None else reader.cap(calls, max_calls, "tool_calls"),
        reader.cap(updates, MAX_MEMORY_UPDATES, "memory_updates"),
        notes,
        _shortened(remarks),
        tuple(problem.as_remark() for problem in reader.problems),
    )


def brief_reply(kind: str, text: str) -> str:
    """Return a reply of one entry with a text, in the compact form that examples teach."""
    entry = {"kind": kind, "payload": {"text": text}, "tags": []}
    reply = {"outbox_entries": [entry], "tool_calls": [], "memory_updates": [], "notes": ""}
    return json.dumps(reply, ensure_ascii=False, separators=(",", ":"))


class _Problem(NamedTuple):
    """What is wrong at a place. `is_optional`: the reply may go on without what is there."""

    place: str
    words: str
    is_optional: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.words}" if self.place else self.words

    def as_remark(self) -> str:
        """Return the words for a model: it knows the parts by their names, and not by pointers."""
        match = _PLACE.fullmatch(self.place)
        part, number, rest = match.groups() if match else ("", None, None)
        which = f"{part} {int(number) + 1}" if number and number != "0" else part
        where = ": ".join(filter(None, (which, (rest or "").replace("/", "."))))
        return f"{where}: {self.words}; it was not kept" if where else f"{self.words}; it was not kept"


class _Reader:
    """Checks the parts of a reply and collects what is wrong, each with its JSON pointer."""

    def __init__(self, kinds: tuple[str, ...], remarks: list[str], *, may_be_large: bool, keep: Keep) -> None:
        self.kinds, self.remarks, self.may_be_large, self.keep = kinds, remarks, may_be_large, keep
        self.problems: list[_Problem] = []

    def may_go_without(self, *, has_sound_part: bool) -> bool:
        """Return True if the reply stands without the parts that are wrong."""
        if self.keep == "sound":
            return has_sound_part and all(problem.is_optional for problem in self.problems)
        return self.keep == "any" or (self.keep == "some" and has_sound_part)

    def keys(self, plain: dict[str, Any]) -> None:
        if plain and plain.keys() <= KEYS:
            return
        for key in plain:
            if key not in KEYS and self._is_worth_saying():
                self._optional("", f'unknown key "{key[:80]}": {_hint(key, KEYS)}')
        if plain.keys().isdisjoint(KEYS):
            self._wrong("", f"the object has none of the keys {', '.join(KEYS)}")

    def entries(self, value: Any, fit: Fit | None) -> list[NewEntry]:
        places: list[str] = []
        found: list[NewEntry] = []
        for place, item in self._objects(value, "/outbox_entries", ENTRY_KEYS):
            if self._entry_is_sound(place, item):
                payload = item["payload"]
                if "data_json" in payload:
                    payload = self._with_embedded(place, payload)
                if payload is not None:
                    places.append(place)
                    found.append(NewEntry(item["kind"], payload, self._tags(place, item.get("tags"))))
        return [*self._fitting(places, fit(found))] if fit and found else found

    def _fitting(self, places: Iterable[str], looked_at: list[NewEntry | list[str]]) -> Iterator[NewEntry]:
        for place, found in zip(places, looked_at, strict=True):
            if isinstance(found, NewEntry):
                yield found
            elif self._is_worth_saying():
                for wrong in found:
                    pointer, _, words = wrong.partition(": ")
                    self._wrong(f"{place}/payload{pointer}", words)

    def calls(self, value: Any) -> list[ToolCall]:
        calls = []
        for place, item in self._objects(value, "/tool_calls", CALL_KEYS):
            args = item.get("args", {})
            if "args_json" in item:
                args = self._embedded(f"{place}/args_json", item["args_json"], is_optional=True)
            tool = item.get("tool")
            if not isinstance(tool, str) or len(tool) > MAX_TOOL_NAME_CHARS:
                self._optional(f"{place}/tool", "expected the name of a tool")
            elif not isinstance(args, dict):
                self._optional(f"{place}/args", "expected an object")
            else:
                calls.append(ToolCall(tool, args))
        return calls

    def updates(self, value: Any) -> list[MemoryUpdate]:
        updates = []
        for place, item in self._objects(value, "/memory_updates", UPDATE_KEYS):
            key = item.get("key")
            if not isinstance(key, str) or not MEMORY_KEY.match(key) or key.endswith("."):
                got = f", got {to_line(key)[:80]}" if "key" in item else ""
                self._optional(f"{place}/key", f"{MEMORY_KEY_RULE}{got}")
            elif "value_json" in item:
                embedded = self._embedded(f"{place}/value_json", item["value_json"], is_optional=True)
                # None stands also for a text that is no JSON, which is a problem that has been noted
                if embedded is not None or str(item["value_json"]).strip() == "null":
                    updates.append(MemoryUpdate(key, embedded))
            elif "value" in item:
                updates.append(MemoryUpdate(key, item["value"]))
            else:
                self._optional(f"{place}/value", "this key is required")
        return updates

    def notes(self, value: Any) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        self._optional("/notes", "expected text")
        return ""

    def cap(self, items: list[Any], limit: int, name: str) -> tuple[Any, ...]:
        if len(items) <= limit:
            return tuple(items)
        left_out = f"{name}: {len(items) - limit} of {len(items)} were left out, the limit is {limit}"
        self.remarks.insert(0, left_out)
        return tuple(items[:limit])

    def _wrong(self, place: str, words: str) -> None:
        self.problems.append(_Problem(place, words))

    def _optional(self, place: str, words: str) -> None:
        self.problems.append(_Problem(place, words, is_optional=True))

    def _is_worth_saying(self) -> bool:
        """Whether one more problem would still be quoted; a flood of them must not hold the tick up."""
        return len(self.problems) < (MAX_PROBLEMS_QUOTED if self.keep == "all" else MAX_PARTS_LEFT_OUT)

    def _objects(self, value: Any, place: str, known: KeysView[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        if value is None or value == []:
            return
        is_optional = known is not ENTRY_KEYS
        if not isinstance(value, list):
            self.problems.append(_Problem(place, "expected a list", is_optional))
            return
        for index, item in enumerate(value):
            if self.problems and not self._is_worth_saying():
                return
            here = f"{place}/{index}"
            if not isinstance(item, dict):
                self.problems.append(_Problem(here, "expected an object", is_optional))
            elif item.keys() <= known:
                yield here, item
            elif known is CALL_KEYS and self.keep != "all" and (call := _call_in(item)):
                yield here, call
            elif self._may_have(here, item, known):
                yield here, item

    def _may_have(self, place: str, item: dict[str, Any], known: KeysView[str]) -> bool:
        """Say which keys are not known, and return whether the item is looked at nevertheless."""
        # Without its arguments a call is another one.
        is_needed = known is CALL_KEYS and item.keys().isdisjoint(("args", "args_json"))
        is_sound = True
        for key in item:
            if key in known:
                continue
            if known is ENTRY_KEYS and key in ENGINE_KEYS:
                self.remarks.append(f"{place}/{key}: ignored, the engine sets it")
            elif self._is_worth_saying():
                is_payloads = known is ENTRY_KEYS and key in PAYLOAD_KEYS
                hint = f'"{key}" belongs into the payload' if is_payloads else _hint(key, known)
                words = f'unknown key "{key[:80]}", {hint}'
                self.problems.append(_Problem(place, words, is_optional=not is_payloads))
                is_sound = is_sound and not is_payloads and not is_needed
        return is_sound or (not is_needed and self.keep in ("all", "sound"))

    def _entry_is_sound(self, place: str, item: dict[str, Any]) -> bool:
        before = len(self.problems)
        kind = item.get("kind")
        if kind not in self.kinds or not isinstance(kind, str):
            got = f", got {to_line(kind)[:80]}" if "kind" in item else ""
            self._wrong(f"{place}/kind", f"expected one of {', '.join(self.kinds)}{got}")
        if not isinstance(item.get("payload"), dict):
            self._wrong(f"{place}/payload", 'expected an object such as {"text": "..."}')
        elif self.may_be_large and len(to_line(item["payload"]).encode()) > MAX_ENTRY_BYTES:
            self._wrong(f"{place}/payload", f"larger than {MAX_ENTRY_BYTES} bytes")
        return len(self.problems) == before

    def _tags(self, place: str, tags: Any) -> list[str]:
        if tags in (None, []):
            return []
        if not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
            self._optional(f"{place}/tags", "expected a list of words")
        elif len(tags) > MAX_TAGS or max(map(len, tags)) > MAX_TAG_CHARS:
            self._optional(f"{place}/tags", f"at most {MAX_TAGS} tags of {MAX_TAG_CHARS} characters")
        else:
            return tags
        return []

    def _with_embedded(self, place: str, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Undo the wire form of a payload: nulls dropped, `data_json` merged in."""
        # backends that are held to a schema write every key, and null where they have nothing
        plain = {key: value for key, value in payload.items() if value is not None and key != "data_json"}
        if not payload["data_json"]:
            return plain
        more = self._embedded(f"{place}/payload/data_json", payload["data_json"])
        if not isinstance(more, dict):
            self._wrong(f"{place}/payload/data_json", "expected a JSON object inside the text")
            return None
        return {**more, **plain}

    def _embedded(self, place: str, text: Any, *, is_optional: bool = False) -> Any:
        if not isinstance(text, str):
            self.problems.append(_Problem(place, "expected JSON inside a text", is_optional))
            return None
        try:
            return parse(text, max_depth=MAX_REPLY_DEPTH)
        except JsonProblem as error:
            self.problems.append(_Problem(place, error.message, is_optional))
            return None


def _call_in(item: dict[str, Any]) -> dict[str, Any] | None:
    """Return a call in a shape that models were taught elsewhere as one of the contract."""
    calls = _SHAPES.read(item)
    return {"tool": calls[0].name, "args": calls[0].args} if len(calls) == 1 else None


def _hint(key: str, known: KeysView[str]) -> str:
    return nearest(key, tuple(known)) or f"the keys are {', '.join(known)}"


def _shortened(remarks: list[str]) -> tuple[str, ...]:
    more = len(remarks) - MAX_REMARKS
    return (*remarks[:MAX_REMARKS], f"and {more} more remarks") if more > 0 else tuple(remarks)
