"""Shapes of tool calls in JSON values, as models write them. Pure.

A value is a call if its shape shows it: a name known to the turn, or a name with arguments. Any other value
is content. Shapes of calls in the text of a reply: `lemming.kernel.turn.forms.reply_shapes`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from lemming.kernel.base.reply_json import CONTRACT_KEYS, parse_whole_object

MAX_TOOL_NAME_CHARS = 200


class RawCall(NamedTuple):
    """A call as written by a model. `args`: an object in nearly all replies, but any JSON is possible."""

    name: str
    args: Any


_NAME_KEYS = ("name", "tool", "function", "tool_name", "action")
"""The keys of a call's name, beside our own `do`."""
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "args_json")
_WRAPPER_KEYS = ("action", "do", "call", "tool_call", "function_call", "tool_use", "function")
"""Keys that hold one call."""
LIST_KEYS = ("tool_calls", "calls", "actions")
"""Keys that hold a list of calls."""
_BESIDE_CALL = frozenset({"id", "type", "call_id", "index"})
_BESIDE_LIST = frozenset({"role", "content", "refusal", "id", "type", "thought", "reasoning"})
_BESIDE_WRAPPER = _BESIDE_CALL | _BESIDE_LIST
_NAME = re.compile(r"[A-Za-z_][\w.:/-]*+\Z")


class CallShapes:
    """Recognises tool calls and separates them from content."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = frozenset(names)

    def parse_calls(self, value: Any) -> list[RawCall]:
        """Return the calls in a value, or an empty list for content."""
        if not isinstance(value, dict) or not value:
            return []
        if value.keys() <= CONTRACT_KEYS and value.keys() != {"tool_calls"}:
            return []  # a reply of four keys
        call = self._parse_do_call(value) or self._parse_named_call(value)
        if call:
            return [call]
        return self._parse_call_list(value) or self._parse_wrapped_call(value) or self._parse_keyed_calls(value)

    def resolve_name(self, name: Any) -> str:
        """Return the turn's name for a tool, or an empty string."""
        if not isinstance(name, str):
            return ""
        short = name.strip().removeprefix("functions.")
        # Small models copy a signature for the name: "weather(city)".
        short = short.partition("(")[0] if short.endswith(")") else short
        return name if name in self.names else short if short in self.names else ""

    def is_name(self, value: Any) -> bool:
        """Return True for a text usable as the name of a tool."""
        is_short = isinstance(value, str) and len(value) <= MAX_TOOL_NAME_CHARS
        return is_short and (value in self.names or _NAME.match(value) is not None)

    def _parse_do_call(self, value: dict[str, Any]) -> RawCall | None:
        """Parse `{"do": NAME, ...ARGUMENTS}`."""
        do = value.get("do")
        name = self.resolve_name(do)
        if not name and not (self.names and next(iter(value)) == "do" and self.is_name(do)):
            return None
        args: Any = {key: item for key, item in value.items() if key != "do"}
        if len(args) == 1 and (inner := _parse_arguments(args, ("arguments", "parameters", "args"))):
            args = inner[0] if isinstance(inner[0], dict) else args
        return RawCall(name or str(do), args)

    def _parse_named_call(self, value: dict[str, Any]) -> RawCall | None:
        """Parse an object with `name` and `arguments`, or with alternative names of these keys."""
        keys = [candidate for candidate in _NAME_KEYS if isinstance(value.get(candidate), str)]
        key = next((candidate for candidate in keys if self.resolve_name(value[candidate])), keys[0] if keys else "")
        name = self.resolve_name(value[key]) if key else ""
        if not key or not (name or self.is_name(value[key].strip())):
            return None
        arguments = _parse_arguments(value, _ARGUMENT_KEYS)
        if arguments is None:
            # The arguments stand beside the name: this may be content unless the name is known.
            is_first = next(iter(value)) == key
            inline_arguments = {
                candidate: item
                for candidate, item in value.items()
                if candidate != key and candidate not in _BESIDE_CALL
            }
            return RawCall(name, inline_arguments) if name and (is_first or not inline_arguments) else None
        args = arguments[0]
        if "description" in value and isinstance(args, dict) and "properties" in args:
            return None  # a tool's definition, copied from the prompt
        if name:
            return RawCall(name, args)
        is_alone = not value.keys() - {key} - _BESIDE_CALL - {*_ARGUMENT_KEYS}
        is_call = isinstance(args, dict) and self._is_unmistakable(key, value)
        return RawCall(value[key].strip(), args) if is_alone and is_call else None

    def _is_unmistakable(self, key: str, value: dict[str, Any]) -> bool:
        """Return True for keys found only in calls; plain content may also have a name and an input."""
        if "input" in value:
            return value.get("type") == "tool_use"
        return not (key == "action" and "parameters" in value)

    def _parse_call_list(self, value: dict[str, Any]) -> list[RawCall]:
        """Parse `{"tool_calls": [...]}`."""
        key = next((candidate for candidate in LIST_KEYS if isinstance(value.get(candidate), list)), "")
        if not key or value.keys() - {key} - _BESIDE_LIST:
            return []
        return [call for item in value[key] for call in self.parse_calls(item)]

    def _parse_wrapped_call(self, value: dict[str, Any]) -> list[RawCall]:
        """Parse `{"action": {...}}`."""
        key = next((candidate for candidate in _WRAPPER_KEYS if isinstance(value.get(candidate), dict)), "")
        return self.parse_calls(value[key]) if key and not value.keys() - {key} - _BESIDE_WRAPPER else []

    def _parse_keyed_calls(self, value: dict[str, Any]) -> list[RawCall]:
        """Parse `{"NAME": {...}}`: all keys are known names, and their values are objects."""
        is_call = all(key in self.names and isinstance(item, dict) for key, item in value.items())
        return [RawCall(key, item) for key, item in value.items()] if is_call else []


def _parse_arguments(value: Mapping[str, Any], keys: Iterable[str]) -> tuple[Any] | None:
    """Return the arguments of a call in a one-tuple, parsed if written as text, or None if there are none."""
    key = next((candidate for candidate in keys if candidate in value), None)
    if key is None:
        return None
    args = value[key]
    if isinstance(args, str):
        args = {} if not args.strip() else args if (inner := parse_whole_object(args)) is None else inner
    return ({} if args is None else args,)
