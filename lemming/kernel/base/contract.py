"""The contract between engine and model: four keys of JSON, and nothing else. Pure.

Format: architecture guide, "Engine↔LLM JSON Contract". A reply may be in a code fence or in prose, which is
accepted with a remark. An error in an optional part (a memory, tags, a call, an extra key) costs this part
only, if another part is valid. All other errors of a reply are reported in one `ContractError`.

Backends with schema-constrained output cannot express free-form objects and therefore receive a *wire* form
in which free-form parts are JSON inside a string (`data_json`, `value_json`, `args_json`). `parse_reply`
converts both forms into the same values; `lemming.kernel.turn.reply_schemas` holds the schemas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from lemming.kernel.base import paths
from lemming.kernel.base.call_shapes import MAX_TOOL_NAME_CHARS, CallShapes
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import ContractError
from lemming.kernel.base.jsontext import JsonProblem, did_you_mean, parse, to_line
from lemming.kernel.base.reply_json import CONTRACT_KEYS, MAX_REPLY_DEPTH, extract_object
from lemming.kernel.base.reply_json import REPLY_LIMIT_BYTES as REPLY_LIMIT_BYTES

MAX_ENTRIES = 64
MAX_TOOL_CALLS = 64
MAX_MEMORY_UPDATES = 64
MAX_ENTRY_BYTES = 64 << 10
MAX_TAGS = 32
MAX_TAG_CHARS = 100
MAX_PROBLEMS_QUOTED = 8
MAX_DROPPED_PARTS = 256
MAX_REMARKS = 32
MAX_GROWTH = 5  # times, of JSON that is written anew: 1e15 becomes 1000000000000000.0
ENTRY_KEYS = dict.fromkeys(("kind", "payload", "tags")).keys()
CALL_KEYS = dict.fromkeys(("tool", "args", "args_json")).keys()
UPDATE_KEYS = dict.fromkeys(("key", "value", "value_json")).keys()
ENGINE_KEYS = ("id", "agent", "tick", "created_at", "timestamp")
# Beside the payload these change the recipients or the time: an invalid one rejects the entry.
PAYLOAD_KEYS = frozenset(
    ("to", "target", "targets", "recipient", "recipients", "reply_to", "not_before", "deadline", "status")
)
_POINTER = re.compile(r"/(\w+)(?:/(\d+))?(?:/(.*))?", re.DOTALL)
_SHAPES = CallShapes(())

Keep = Literal["all", "sound", "some", "any"]
"""The wrong parts that are left out: none; optional ones beside a sound part; any beside one; any."""


class NewEntry(NamedTuple):
    """An entry as written by the model; the engine adds the remaining keys."""

    kind: MessageKind
    payload: dict[str, Any]
    tags: list[str]


class ToolCall(NamedTuple):
    """A tool call as requested by the model, with the backend's id for the call, if any.

    `approved`: the approval of this pending call. `judged`: the objections of judges, by the configuration
    line of the gate. Empty if a judge passed the call.
    """

    tool: str
    args: Any
    id: str = ""
    approved: Mapping[str, Any] | None = None
    judged: Mapping[str, str] | None = None


Fit = Callable[[list[NewEntry]], list[NewEntry | list[str]]]
"""Validates entries: returns each entry, or the problems in the payload."""


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class MemoryUpdate:
    """A memory to be stored for the model."""

    key: str
    value: Any


class TurnReply(NamedTuple):
    """A reply in the contract's form. `remarks`: corrections made while reading. `left_out`: dropped parts.

    `goes_on`: True if the turn needs more than the reply asks for, and the model is called again.
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
    validate_entries: Fit | None = None,
    has_calls: bool = False,
) -> TurnReply:
    """Parse a model's reply. Raise a `ContractError` listing all errors.

    `max_calls`: maximum number of tool calls to read, or None for all. Parts dropped under `keep` are listed
    in `left_out`. `has_calls`: True if the reply has valid calls beside the text.

    >>> parse_reply('{"notes": "nothing to do"}', kinds=["message"]).notes
    'nothing to do'
    >>> memories = [dict(key="a b", value=1), dict(key="town", value="Oslo")]
    >>> parse_reply(json.dumps({"memory_updates": memories}), kinds=["message"]).memory_updates
    (MemoryUpdate(key='town', value='Oslo'),)
    """
    remarks: list[str] = []
    reply_object = extract_object(text, remarks, is_strict=keep == "all")
    # only a long reply can contain an oversized payload: measuring serialises each payload
    may_be_large = MAX_GROWTH * len(text) > MAX_ENTRY_BYTES
    reader = _ReplyValidator(tuple(kinds), remarks, may_be_large=may_be_large, keep=keep)
    reader.check_keys(reply_object)
    entries = reader.parse_entries(reply_object.get("outbox_entries"), validate_entries)
    calls = reader.parse_calls(reply_object.get("tool_calls"))
    updates = reader.parse_updates(reply_object.get("memory_updates"))
    notes = reader.parse_notes(reply_object.get("notes"))
    if reader.problems and not reader.may_go_without(has_sound_part=bool(entries or calls or updates or has_calls)):
        raise ContractError("; ".join(map(str, reader.problems[:MAX_PROBLEMS_QUOTED])))
    return TurnReply(
        reader.limit_items(entries, min(max_entries, MAX_ENTRIES), "outbox_entries"),
        tuple(calls) if max_calls is None else reader.limit_items(calls, max_calls, "tool_calls"),
        reader.limit_items(updates, MAX_MEMORY_UPDATES, "memory_updates"),
        notes,
        _truncate_remarks(remarks),
        tuple(problem.as_remark() for problem in reader.problems),
    )


def brief_reply(kind: str, text: str) -> str:
    """Return a reply with one text entry, in the compact form used by examples."""
    entry = {"kind": kind, "payload": {"text": text}, "tags": []}
    reply = {"outbox_entries": [entry], "tool_calls": [], "memory_updates": [], "notes": ""}
    return json.dumps(reply, ensure_ascii=False, separators=(",", ":"))


class _Problem(NamedTuple):
    """An error at a JSON pointer. `is_optional`: True if the reply is usable without the part."""

    pointer: str
    message: str
    is_optional: bool = False

    def __str__(self) -> str:
        return f"{self.pointer}: {self.message}" if self.pointer else self.message

    def as_remark(self) -> str:
        """Return the error as a remark for a model, with names of parts instead of pointers."""
        match = _POINTER.fullmatch(self.pointer)
        part, number, subpath = match.groups() if match else ("", None, None)
        part_name = f"{part} {int(number) + 1}" if number and number != "0" else part
        location = ": ".join(filter(None, (part_name, (subpath or "").replace("/", "."))))
        return f"{location}: {self.message}; it was not kept" if location else f"{self.message}; it was not kept"


class _ReplyValidator:
    """Validates the parts of a reply and collects the errors, each with its JSON pointer."""

    def __init__(self, kinds: tuple[str, ...], remarks: list[str], *, may_be_large: bool, keep: Keep) -> None:
        self.kinds, self.remarks, self.may_be_large, self.keep = kinds, remarks, may_be_large, keep
        self.problems: list[_Problem] = []

    def may_go_without(self, *, has_sound_part: bool) -> bool:
        """Return True if the reply is usable without the invalid parts."""
        if self.keep == "sound":
            return has_sound_part and all(problem.is_optional for problem in self.problems)
        return self.keep == "any" or (self.keep == "some" and has_sound_part)

    def check_keys(self, plain: dict[str, Any]) -> None:
        if plain and plain.keys() <= CONTRACT_KEYS:
            return
        for key in plain:
            if key not in CONTRACT_KEYS and self._has_room_for_problem():
                self._add_optional_error("", f'unknown key "{key[:80]}": {_hint(key, CONTRACT_KEYS)}')
        if plain.keys().isdisjoint(CONTRACT_KEYS):
            self._add_error("", f"the object has none of the keys {', '.join(CONTRACT_KEYS)}")

    def parse_entries(self, value: Any, fit: Fit | None) -> list[NewEntry]:
        pointers: list[str] = []
        entries: list[NewEntry] = []
        for pointer, item in self._iter_objects(value, "/outbox_entries", ENTRY_KEYS):
            if self._is_valid_entry(pointer, item):
                payload = item["payload"]
                if "data_json" in payload:
                    payload = self._merge_data_json(pointer, payload)
                if payload is not None:
                    pointers.append(pointer)
                    entries.append(NewEntry(item["kind"], payload, self._parse_tags(pointer, item.get("tags"))))
        return [*self._accept_fitting(pointers, fit(entries))] if fit and entries else entries

    def _accept_fitting(self, pointers: Iterable[str], results: list[NewEntry | list[str]]) -> Iterator[NewEntry]:
        for entry_pointer, result in zip(pointers, results, strict=True):
            if isinstance(result, NewEntry):
                yield result
            elif self._has_room_for_problem():
                for violation in result:
                    pointer, _, message = violation.partition(": ")
                    self._add_error(f"{entry_pointer}/payload{pointer}", message)

    def parse_calls(self, value: Any) -> list[ToolCall]:
        calls = []
        for pointer, item in self._iter_objects(value, "/tool_calls", CALL_KEYS):
            args = item.get("args", {})
            if "args_json" in item:
                args = self._parse_embedded(f"{pointer}/args_json", item["args_json"], is_optional=True)
            tool = item.get("tool")
            if not isinstance(tool, str) or len(tool) > MAX_TOOL_NAME_CHARS:
                self._add_optional_error(f"{pointer}/tool", "expected the name of a tool")
            elif not isinstance(args, dict):
                self._add_optional_error(f"{pointer}/args", "expected an object")
            else:
                calls.append(ToolCall(tool, args))
        return calls

    def parse_updates(self, value: Any) -> list[MemoryUpdate]:
        updates = []
        for pointer, item in self._iter_objects(value, "/memory_updates", UPDATE_KEYS):
            key = item.get("key")
            if not isinstance(key, str) or not paths.MEMORY_KEY.match(key) or key.endswith("."):
                got = f", got {to_line(key)[:80]}" if "key" in item else ""
                self._add_optional_error(f"{pointer}/key", f"{paths.MEMORY_KEY_RULE}{got}")
            elif "value_json" in item:
                embedded = self._parse_embedded(f"{pointer}/value_json", item["value_json"], is_optional=True)
                # None stands also for a text that is no JSON, which is a problem that has been noted
                if embedded is not None or str(item["value_json"]).strip() == "null":
                    updates.append(MemoryUpdate(key, embedded))
            elif "value" in item:
                updates.append(MemoryUpdate(key, item["value"]))
            else:
                self._add_optional_error(f"{pointer}/value", "this key is required")
        return updates

    def parse_notes(self, value: Any) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        self._add_optional_error("/notes", "expected text")
        return ""

    def limit_items(self, items: list[Any], limit: int, name: str) -> tuple[Any, ...]:
        if len(items) <= limit:
            return tuple(items)
        remark = f"{name}: {len(items) - limit} of {len(items)} were left out, the limit is {limit}"
        self.remarks.insert(0, remark)
        return tuple(items[:limit])

    def _add_error(self, pointer: str, message: str, is_optional: bool = False) -> None:
        self.problems.append(_Problem(pointer, message, is_optional))

    def _add_optional_error(self, pointer: str, message: str) -> None:
        self._add_error(pointer, message, is_optional=True)

    def _has_room_for_problem(self) -> bool:
        """Return True if one more error would be quoted; a flood of errors must not delay the tick."""
        return len(self.problems) < (MAX_PROBLEMS_QUOTED if self.keep == "all" else MAX_DROPPED_PARTS)

    def _iter_objects(
        self, value: Any, pointer: str, known_keys: KeysView[str]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        if value is None or value == []:
            return
        is_optional = known_keys is not ENTRY_KEYS
        if not isinstance(value, list):
            self._add_error(pointer, "expected a list", is_optional)
            return
        for index, item in enumerate(value):
            if self.problems and not self._has_room_for_problem():
                return
            item_pointer = f"{pointer}/{index}"
            if not isinstance(item, dict):
                self._add_error(item_pointer, "expected an object", is_optional)
            elif item.keys() <= known_keys:
                yield item_pointer, item
            elif known_keys is CALL_KEYS and self.keep != "all" and len(calls := _SHAPES.parse_calls(item)) == 1:
                yield item_pointer, {"tool": calls[0].name, "args": calls[0].args}
            elif self._check_item_keys(item_pointer, item, known_keys):
                yield item_pointer, item

    def _check_item_keys(self, pointer: str, item: dict[str, Any], known_keys: KeysView[str]) -> bool:
        """Report the unknown keys of an item, and return True if the item is still read."""
        # Without its arguments a call is another one.
        is_needed = known_keys is CALL_KEYS and item.keys().isdisjoint(("args", "args_json"))
        is_sound = True
        for key in item:
            if key in known_keys:
                continue
            if known_keys is ENTRY_KEYS and key in ENGINE_KEYS:
                self.remarks.append(f"{pointer}/{key}: ignored, the engine sets it")
            elif self._has_room_for_problem():
                is_payload_key = known_keys is ENTRY_KEYS and key in PAYLOAD_KEYS
                hint = f'"{key}" belongs into the payload' if is_payload_key else _hint(key, known_keys)
                message = f'unknown key "{key[:80]}", {hint}'
                self._add_error(pointer, message, is_optional=not is_payload_key)
                is_sound = is_sound and not is_payload_key and not is_needed
        return is_sound or (not is_needed and self.keep in ("all", "sound"))

    def _is_valid_entry(self, pointer: str, item: dict[str, Any]) -> bool:
        old_count = len(self.problems)
        kind = item.get("kind")
        if kind not in self.kinds or not isinstance(kind, str):
            got = f", got {to_line(kind)[:80]}" if "kind" in item else ""
            self._add_error(f"{pointer}/kind", f"expected one of {', '.join(self.kinds)}{got}")
        if not isinstance(item.get("payload"), dict):
            self._add_error(f"{pointer}/payload", 'expected an object such as {"text": "..."}')
        elif self.may_be_large and len(to_line(item["payload"]).encode()) > MAX_ENTRY_BYTES:
            self._add_error(f"{pointer}/payload", f"larger than {MAX_ENTRY_BYTES} bytes")
        return len(self.problems) == old_count

    def _parse_tags(self, pointer: str, tags: Any) -> list[str]:
        if tags in (None, []):
            return []
        if not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
            self._add_optional_error(f"{pointer}/tags", "expected a list of words")
        elif len(tags) > MAX_TAGS or max(map(len, tags)) > MAX_TAG_CHARS:
            self._add_optional_error(f"{pointer}/tags", f"at most {MAX_TAGS} tags of {MAX_TAG_CHARS} characters")
        else:
            return tags
        return []

    def _merge_data_json(self, pointer: str, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Undo the wire form of a payload: drop nulls, merge `data_json`."""
        # backends that are held to a schema write every key, and null where they have nothing
        values = {key: value for key, value in payload.items() if value is not None and key != "data_json"}
        if not payload["data_json"]:
            return values
        embedded = self._parse_embedded(f"{pointer}/payload/data_json", payload["data_json"])
        if not isinstance(embedded, dict):
            self._add_error(f"{pointer}/payload/data_json", "expected a JSON object inside the text")
            return None
        return {**embedded, **values}

    def _parse_embedded(self, pointer: str, text: Any, *, is_optional: bool = False) -> Any:
        if not isinstance(text, str):
            self._add_error(pointer, "expected JSON inside a text", is_optional)
            return None
        try:
            return parse(text, max_depth=MAX_REPLY_DEPTH)
        except JsonProblem as error:
            self._add_error(pointer, error.message, is_optional)
            return None


def _hint(key: str, known_keys: KeysView[str]) -> str:
    return did_you_mean(key, tuple(known_keys)) or f"the keys are {', '.join(known_keys)}"


def _truncate_remarks(remarks: list[str]) -> tuple[str, ...]:
    omitted = len(remarks) - MAX_REMARKS
    return (*remarks[:MAX_REMARKS], f"and {omitted} more remarks") if omitted > 0 else tuple(remarks)
