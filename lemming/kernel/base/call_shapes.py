"""The shapes of one value that is a call, as models write calls. Pure.

A value is a call if its shape says so: a name that the turn knows, or a name with its arguments. Any other
value is content. How calls stand in the text of a reply: `lemming.kernel.turn.forms.shapes`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from lemming.kernel.base.reply_json import read_object

MAX_TOOL_NAME_CHARS = 200
# Keys of a dictionary are a set that has an order.
KEYS = dict.fromkeys(("outbox_entries", "tool_calls", "memory_updates", "notes")).keys()
"""The four keys of a reply by the contract."""


class RawCall(NamedTuple):
    """A call as a model wrote it. `args`: an object in nearly all replies, any JSON in the others."""

    name: str
    args: Any


_NAMES = ("name", "tool", "function", "tool_name", "action")
"""The keys of a call's name, beside our own `do`."""
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "args_json")
_WRAPPERS = ("action", "do", "call", "tool_call", "function_call", "tool_use", "function")
"""Keys that hold one call."""
LISTS = ("tool_calls", "calls", "actions")
"""Keys that hold a list of calls."""
_BESIDE_CALL = frozenset({"id", "type", "call_id", "index"})
_BESIDE_LIST = frozenset({"role", "content", "refusal", "id", "type", "thought", "reasoning"})
_BESIDE_WRAPPER = _BESIDE_CALL | _BESIDE_LIST
_NAME = re.compile(r"[A-Za-z_][\w.:/-]*+\Z")


class CallShapes:
    """Tells calls from content."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = frozenset(names)

    def read(self, value: Any) -> list[RawCall]:
        """Return the calls that a value is; none where it is content."""
        if not isinstance(value, dict) or not value:
            return []
        if value.keys() <= KEYS and value.keys() != {"tool_calls"}:
            return []  # a reply of four keys
        one = self._read_own(value) or self._read_named(value)
        if one:
            return [one]
        return self._read_list(value) or self._read_wrapped(value) or self._read_keyed(value)

    def known(self, name: Any) -> str:
        """Return the name by which the turn knows a tool, or an empty string."""
        if not isinstance(name, str):
            return ""
        short = name.strip().removeprefix("functions.")
        # Small models copy a signature for the name: "weather(city)".
        short = short.partition("(")[0] if short.endswith(")") else short
        return name if name in self.names else short if short in self.names else ""

    def is_name(self, value: Any) -> bool:
        """Return True for a text that can be the name of a tool."""
        is_short = isinstance(value, str) and len(value) <= MAX_TOOL_NAME_CHARS
        return is_short and (value in self.names or _NAME.match(value) is not None)

    def _read_own(self, value: dict[str, Any]) -> RawCall | None:
        """Read `{"do": NAME, ...ARGUMENTS}`."""
        do = value.get("do")
        name = self.known(do)
        if not name and not (self.names and next(iter(value)) == "do" and self.is_name(do)):
            return None
        args: Any = {key: item for key, item in value.items() if key != "do"}
        if len(args) == 1 and (inner := _read_arguments(args, ("arguments", "parameters", "args"))):
            args = inner[0] if isinstance(inner[0], dict) else args
        return RawCall(name or str(do), args)

    def _read_named(self, value: dict[str, Any]) -> RawCall | None:
        """Read `{"name": NAME, "arguments": {...}}` and the other names of these keys."""
        keys = [it for it in _NAMES if isinstance(value.get(it), str)]
        key = next((it for it in keys if self.known(value[it])), keys[0] if keys else "")
        name = self.known(value[key]) if key else ""
        if not key or not (name or self.is_name(value[key].strip())):
            return None
        arguments = _read_arguments(value, _ARGUMENTS)
        if arguments is None:
            # The arguments stand beside the name: this may be content unless the name is known.
            is_first = next(iter(value)) == key
            others = {it: item for it, item in value.items() if it != key and it not in _BESIDE_CALL}
            return RawCall(name, others) if name and (is_first or not others) else None
        args = arguments[0]
        if "description" in value and isinstance(args, dict) and "properties" in args:
            return None  # a tool's definition, copied from the prompt
        if name:
            return RawCall(name, args)
        is_alone = not value.keys() - {key} - _BESIDE_CALL - {*_ARGUMENTS}
        is_call = isinstance(args, dict) and self._is_unmistakable(key, value)
        return RawCall(value[key].strip(), args) if is_alone and is_call else None

    def _is_unmistakable(self, key: str, value: dict[str, Any]) -> bool:
        """Return True for keys that nothing but a call has; a content may well have a name and an input."""
        if "input" in value:
            return value.get("type") == "tool_use"
        return not (key == "action" and "parameters" in value)

    def _read_list(self, value: dict[str, Any]) -> list[RawCall]:
        """Read `{"tool_calls": [...]}`."""
        key = next((it for it in LISTS if isinstance(value.get(it), list)), "")
        if not key or value.keys() - {key} - _BESIDE_LIST:
            return []
        return [call for item in value[key] for call in self.read(item)]

    def _read_wrapped(self, value: dict[str, Any]) -> list[RawCall]:
        """Read `{"action": {...}}`."""
        key = next((it for it in _WRAPPERS if isinstance(value.get(it), dict)), "")
        return self.read(value[key]) if key and not value.keys() - {key} - _BESIDE_WRAPPER else []

    def _read_keyed(self, value: dict[str, Any]) -> list[RawCall]:
        """Read `{"NAME": {...}}`: all keys are known names, and their values are objects."""
        is_call = all(key in self.names and isinstance(item, dict) for key, item in value.items())
        return [RawCall(key, item) for key, item in value.items()] if is_call else []


def _read_arguments(value: Mapping[str, Any], keys: Iterable[str]) -> tuple[Any] | None:
    """Return the arguments of a call, as an object where they are the text of one; None without any."""
    key = next((it for it in keys if it in value), None)
    if key is None:
        return None
    args = value[key]
    if isinstance(args, str):
        args = {} if not args.strip() else args if (inner := read_object(args)) is None else inner
    return ({} if args is None else args,)
