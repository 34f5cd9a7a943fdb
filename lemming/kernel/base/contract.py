"""The contract between engine and model: four keys of JSON, and nothing else. Pure.

Format: architecture guide, "Engine↔LLM JSON Contract". A reply may stand in a code fence or in prose; that
is accepted and remarked upon. Everything wrong with a reply is said in one `ContractError`, in words that
can be quoted back to the model.

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

from lemming.kernel.base.errors import ContractError
from lemming.kernel.base.jsontext import MAX_DEPTH, JsonProblem, nearest, parse, to_line
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.base.paths import MEMORY_KEY, MEMORY_KEY_RULE

REPLY_LIMIT_BYTES = 1 << 20
MAX_ENTRIES = 64
MAX_TOOL_CALLS = 64
MAX_MEMORY_UPDATES = 64
MAX_ENTRY_BYTES = 64 << 10
MAX_TAGS = 32
MAX_TAG_CHARS = 100
MAX_TOOL_NAME_CHARS = 200
MAX_PROBLEMS_QUOTED = 8
MAX_PARTS_LEFT_OUT = 256
MAX_REMARKS = 32
MOST_GROWTH = 5  # times, of JSON that is written anew: 1e15 becomes 1000000000000000.0
# A reply goes into entries, the ledger and the journal, where it stands some levels deeper.
MAX_REPLY_DEPTH = MAX_DEPTH - 16

# Keys of a dictionary are a set that has an order.
KEYS = dict.fromkeys(("outbox_entries", "tool_calls", "memory_updates", "notes")).keys()
ENTRY_KEYS = dict.fromkeys(("kind", "payload", "tags")).keys()
CALL_KEYS = dict.fromkeys(("tool", "args", "args_json")).keys()
UPDATE_KEYS = dict.fromkeys(("key", "value", "value_json")).keys()
ENGINE_KEYS = ("id", "agent", "tick", "created_at", "timestamp")
_FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\r?\n(.*?)```", re.DOTALL)
_CANDIDATES = 64

Keep = Literal["all", "some", "any"]


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
    """A reply that is the contract. `remarks`: what was put right; `left_out`: what was wrong."""

    outbox_entries: tuple[NewEntry, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    memory_updates: tuple[MemoryUpdate, ...] = ()
    notes: str = ""
    remarks: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def parse_reply(
    text: str,
    *,
    kinds: Iterable[str],
    max_entries: int = MAX_ENTRIES,
    max_calls: int | None = MAX_TOOL_CALLS,
    keep: Keep = "all",
    fit: Fit | None = None,
) -> TurnReply:
    """Return what a model's reply asks for; raise `ContractError` that lists what is wrong with it.

    With `keep` "some" wrong parts are left out as long as something remains, with "any" even if nothing does.
    `max_calls`: so many tool calls are read; None: all.

    >>> parse_reply('{"notes": "nothing to do"}', kinds=["message"]).notes
    'nothing to do'
    """
    remarks: list[str] = []
    plain = object_in(text, remarks)
    # only a long reply can hold one that is too large: each payload is written anew to measure it
    reader = _Reader(tuple(kinds), remarks, may_be_large=MOST_GROWTH * len(text) > MAX_ENTRY_BYTES)
    reader.drops_wrong_parts = keep != "all"
    reader.keys(plain)
    entries = reader.entries(plain.get("outbox_entries"), fit)
    calls = reader.calls(plain.get("tool_calls"))
    updates = reader.updates(plain.get("memory_updates"))
    notes = reader.notes(plain.get("notes"))
    if reader.problems and (keep == "all" or (keep == "some" and not (entries or calls or updates))):
        raise ContractError("; ".join(reader.problems[:MAX_PROBLEMS_QUOTED]))
    return TurnReply(
        reader.cap(entries, min(max_entries, MAX_ENTRIES), "outbox_entries"),
        tuple(calls) if max_calls is None else reader.cap(calls, max_calls, "tool_calls"),
        reader.cap(updates, MAX_MEMORY_UPDATES, "memory_updates"),
        notes,
        _shortened(remarks),
        tuple(reader.problems),
    )


def brief_reply(kind: str, text: str) -> str:
    """Return the reply that `brief_schema` admits, in the compact form that examples teach."""
    entry = {"kind": kind, "payload": {"text": text}, "tags": []}
    reply = {"outbox_entries": [entry], "tool_calls": [], "memory_updates": [], "notes": ""}
    return json.dumps(reply, ensure_ascii=False, separators=(",", ":"))


class _Reader:
    """Checks the parts of a reply and collects what is wrong, each with its JSON pointer."""

    def __init__(self, kinds: tuple[str, ...], remarks: list[str], *, may_be_large: bool) -> None:
        self.kinds, self.remarks, self.may_be_large = kinds, remarks, may_be_large
        self.problems: list[str] = []
        self.drops_wrong_parts = False

    def keys(self, plain: dict[str, Any]) -> None:
        if plain and plain.keys() <= KEYS:
            return
        for key in plain:
            if key not in KEYS and self._is_worth_saying():
                self.problems.append(f'unknown key "{key[:80]}": {_hint(key, KEYS)}')
        if plain.keys().isdisjoint(KEYS):
            self.problems.append(f"the object has none of the keys {', '.join(KEYS)}")

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
                    found.append(NewEntry(item["kind"], payload, item.get("tags") or []))
        return [*self._fitting(places, fit(found))] if fit and found else found

    def _fitting(self, places: Iterable[str], looked_at: list[NewEntry | list[str]]) -> Iterator[NewEntry]:
        for place, found in zip(places, looked_at, strict=True):
            if isinstance(found, NewEntry):
                yield found
            elif self._is_worth_saying():
                self.problems += [f"{place}/payload{wrong}" for wrong in found]

    def calls(self, value: Any) -> list[ToolCall]:
        calls = []
        for place, item in self._objects(value, "/tool_calls", CALL_KEYS):
            args = item.get("args", {})
            if "args_json" in item:
                args = self._embedded(f"{place}/args_json", item["args_json"])
            tool = item.get("tool")
            if not isinstance(tool, str) or len(tool) > MAX_TOOL_NAME_CHARS:
                self.problems.append(f"{place}/tool: expected the name of a tool")
            elif not isinstance(args, dict):
                self.problems.append(f"{place}/args: expected an object")
            else:
                calls.append(ToolCall(tool, args))
        return calls

    def updates(self, value: Any) -> list[MemoryUpdate]:
        updates = []
        for place, item in self._objects(value, "/memory_updates", UPDATE_KEYS):
            key = item.get("key")
            if not isinstance(key, str) or not MEMORY_KEY.match(key) or key.endswith("."):
                self.problems.append(f"{place}/key: {MEMORY_KEY_RULE}")
            elif "value_json" in item:
                embedded = self._embedded(f"{place}/value_json", item["value_json"])
                # None stands also for a text that is no JSON, which is a problem that has been noted
                if embedded is not None or str(item["value_json"]).strip() == "null":
                    updates.append(MemoryUpdate(key, embedded))
            elif "value" in item:
                updates.append(MemoryUpdate(key, item["value"]))
            else:
                self.problems.append(f"{place}/value: this key is required")
        return updates

    def notes(self, value: Any) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        self.problems.append("/notes: expected text")
        return ""

    def cap(self, items: list[Any], limit: int, name: str) -> tuple[Any, ...]:
        if len(items) <= limit:
            return tuple(items)
        left_out = f"{name}: {len(items) - limit} of {len(items)} were left out, the limit is {limit}"
        self.remarks.insert(0, left_out)
        return tuple(items[:limit])

    def _is_worth_saying(self) -> bool:
        """Whether one more problem would still be quoted; a flood of them must not hold the tick up."""
        return len(self.problems) < (MAX_PARTS_LEFT_OUT if self.drops_wrong_parts else MAX_PROBLEMS_QUOTED)

    def _objects(self, value: Any, place: str, known: KeysView[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        if value is None or value == []:
            return
        if not isinstance(value, list):
            self.problems.append(f"{place}: expected a list")
            return
        for index, item in enumerate(value):
            if self.problems and not self._is_worth_saying():
                return
            here = f"{place}/{index}"
            if not isinstance(item, dict):
                self.problems.append(f"{here}: expected an object")
            elif item.keys() <= known or self._may_have(here, item, known):
                yield here, item

    def _may_have(self, place: str, item: dict[str, Any], known: KeysView[str]) -> bool:
        """Say which keys are not known, and return whether the item is looked at nevertheless."""
        before = len(self.problems)
        for key in item:
            if key in known:
                continue
            if known is ENTRY_KEYS and key in ENGINE_KEYS:
                self.remarks.append(f"{place}/{key}: ignored, the engine sets it")
            elif self._is_worth_saying():
                self.problems.append(f'{place}: unknown key "{key[:80]}", {_hint(key, known)}')
        return not self.drops_wrong_parts or len(self.problems) == before

    def _entry_is_sound(self, place: str, item: dict[str, Any]) -> bool:
        before = len(self.problems)
        kind, tags = item.get("kind"), item.get("tags")
        if kind not in self.kinds or not isinstance(kind, str):
            self.problems.append(f"{place}/kind: expected one of {', '.join(self.kinds)}")
        if not isinstance(item.get("payload"), dict):
            self.problems.append(f'{place}/payload: expected an object such as {{"text": "..."}}')
        elif self.may_be_large and len(to_line(item["payload"]).encode()) > MAX_ENTRY_BYTES:
            self.problems.append(f"{place}/payload: larger than {MAX_ENTRY_BYTES} bytes")
        if tags not in (None, []):
            if not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
                self.problems.append(f"{place}/tags: expected a list of words")
            elif len(tags) > MAX_TAGS or max(map(len, tags)) > MAX_TAG_CHARS:
                self.problems.append(f"{place}/tags: at most {MAX_TAGS} tags of {MAX_TAG_CHARS} characters")
        return len(self.problems) == before

    def _with_embedded(self, place: str, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Undo the wire form of a payload: nulls dropped, `data_json` merged in."""
        # backends that are held to a schema write every key, and null where they have nothing
        plain = {key: value for key, value in payload.items() if value is not None and key != "data_json"}
        if not payload["data_json"]:
            return plain
        more = self._embedded(f"{place}/payload/data_json", payload["data_json"])
        if not isinstance(more, dict):
            self.problems.append(f"{place}/payload/data_json: expected a JSON object inside the text")
            return None
        return {**more, **plain}

    def _embedded(self, place: str, text: Any) -> Any:
        if not isinstance(text, str):
            self.problems.append(f"{place}: expected JSON inside a text")
            return None
        try:
            return parse(text, max_depth=MAX_REPLY_DEPTH)
        except JsonProblem as error:
            self.problems.append(f"{place}: {error.message}")
            return None


def object_in(text: str, remarks: list[str], keys: KeysView[str] = KEYS) -> dict[str, Any]:
    """Return the one JSON object of a reply: bare, or with one of the keys in a code fence or in prose."""
    stripped = text.strip()
    if not stripped:
        raise ContractError("the reply is empty")
    may_be_too_large = 4 * len(stripped) > REPLY_LIMIT_BYTES  # no character takes more than four bytes
    if may_be_too_large and len(stripped.encode("utf-8", "replace")) > REPLY_LIMIT_BYTES:
        raise ContractError(f"the reply is larger than {REPLY_LIMIT_BYTES} bytes")
    try:
        return _require_object(parse(stripped, max_depth=MAX_REPLY_DEPTH))
    except JsonProblem as error:
        fenced = _FENCE.findall(stripped)
        # a fence first: it holds what was meant, and the prose around it may quote other objects
        found = [item for block in fenced for item in _objects_in(block, keys)] or _objects_in(stripped, keys)
        if len(found) == 1:
            remarks.append("the JSON stood in a code fence" if fenced else "the JSON stood in prose")
            return found[0]
        if len(found) > 1:
            raise ContractError(f"the reply holds {len(found)} JSON objects; send exactly one") from error
        where = f" at line {error.line}, column {error.column}" if error.line else ""
        raise ContractError(f"the reply is not one JSON object: {error.message}{where}") from error


def _hint(key: str, known: KeysView[str]) -> str:
    return nearest(key, tuple(known)) or f"the keys are {', '.join(known)}"


def _shortened(remarks: list[str]) -> tuple[str, ...]:
    more = len(remarks) - MAX_REMARKS
    return (*remarks[:MAX_REMARKS], f"and {more} more remarks") if more > 0 else tuple(remarks)


def _require_object(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ContractError("the reply must be a JSON object")


def _objects_in(text: str, keys: KeysView[str]) -> list[dict[str, Any]]:
    """Return the outermost JSON objects in a text that have one of the keys."""
    found: list[dict[str, Any]] = []
    decoder, position = json.JSONDecoder(), text.find("{")
    # a long text of nothing but braces would be read once from each of them
    for _ in range(_CANDIDATES):
        if position < 0:
            break
        try:
            _, end = decoder.raw_decode(text, position)
            value = parse(text[position:end], max_depth=MAX_REPLY_DEPTH)
            if isinstance(value, dict) and any(key in value for key in keys):
                found.append(value)
            position = text.find("{", end)
        except (ValueError, RecursionError):
            position = text.find("{", position + 1)
    return found
