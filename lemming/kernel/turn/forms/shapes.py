"""The shapes in which models write calls and objects into the text of a reply. Pure.

`read_calls` reads the calls of a text and returns the text around them; `first_object` reads the fields of a
form. Both take prose, fences and tags around the JSON, reasoning before it, and the small faults that
`lemming.kernel.base.reply_json` admits. Neither raises, and both are linear in the length of the text.

An object is a call if its shape says so: a name that the turn knows, or a name with its arguments. Any other
object is content, and stays in the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from lemming.kernel.base.contract import KEYS, MAX_TOOL_NAME_CHARS, REPLY_LIMIT_BYTES
from lemming.kernel.base.jsontext import JsonProblem, compact, to_line
from lemming.kernel.base.reply_json import (
    FoundObject,
    drop_thinking,
    find_objects,
    read_literal,
    read_object,
)


class RawCall(NamedTuple):
    """A call as a model wrote it. `args`: an object in nearly all replies, any JSON in the others."""

    name: str
    args: Any


_NAMES = ("name", "tool", "function", "tool_name", "action")
"""The keys of a call's name, beside our own `do`."""
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input", "tool_input", "args_json")
_WRAPPERS = ("action", "do", "call", "tool_call", "function_call", "tool_use", "function")
"""Keys that hold one call."""
_LISTS = ("tool_calls", "calls", "actions")
"""Keys that hold a list of calls."""
_BESIDE_CALL = frozenset({"id", "type", "call_id", "index"})
_BESIDE_LIST = frozenset({"role", "content", "refusal", "id", "type", "thought", "reasoning"})
_BESIDE_WRAPPER = _BESIDE_CALL | _BESIDE_LIST
_NAME = re.compile(r"[A-Za-z_][\w.:/-]*+\Z")
_SIGNATURE = re.compile(r"[\s,;\[]*+([A-Za-z_][\w.-]*+)\(")
_PARAMETER = re.compile(r"[\s,]*+([A-Za-z_]\w*+)\s*+=")
_FENCE = re.compile(r"```[ \t]*+(\w*+)[ \t]*+\r?\n(.*?)(?:```|\Z)", re.DOTALL)
# The name stands before its arguments: Llama, Mistral, and the agents that write "Action Input".
_NAME_BEFORE = re.compile(
    r"(?:<function=|\[TOOL_CALLS\]\s?)([\w.-]{1,200})(?:>|\[ARGS\])?\s?\Z"
    r"|\bAction:[ \t]?([\w.-]{1,200})(?:\([^()\n]{0,100}\))?\s{0,2}Action Input:[ \t]?\Z"
)
_CHARS_BEFORE = 360
_OPENING = (
    "<tool_call>",
    "<|tool_call|>",
    "<|tool_call>",
    "[TOOL_CALLS]",
    "<function_call>",
    "<|python_tag|>",
)
_CLOSING = ("</tool_call>", "<|/tool_call|>", "<tool_call|>", "</function_call>", "</function>", "<|im_end|>")
_BEFORE = " \t\r\n,;[("
_AFTER = " \t\r\n,;])}"


def read_calls(text: str, names: Collection[str], *, is_cut_off: bool = False) -> tuple[list[RawCall], str]:
    """Return the calls of a reply in order, each once, and the text around them.

    `names`: the tools and actions that the turn knows. `is_cut_off`: the reply ended at a limit, so that
    nothing is read whose end is missing. Without a call, the text is all but the reasoning before it.

    >>> read_calls('I look. <tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}', ["weather"])
    ([RawCall(name='weather', args={'city': 'Oslo'})], 'I look.')
    >>> read_calls('{"do": "answer", "text": "It snows."}', ["answer"])
    ([RawCall(name='answer', args={'text': 'It snows.'})], '')
    >>> read_calls('{"name": "Mira", "city": "Oslo"}', ["weather"])
    ([], '{"name": "Mira", "city": "Oslo"}')
    """
    if _is_too_large(text):
        return [], text
    text = drop_thinking(text)
    shapes = _Shapes(names)
    if signatures := _read_signatures(text, shapes):
        return _without_repeats(signatures), ""
    calls: list[RawCall] = []
    around: list[str] = []
    position = 0
    for found in find_objects(text, is_cut_off=is_cut_off):
        begin, of_object, beside = _read_found(text, found, position, shapes)
        if of_object:
            calls += of_object
            around += [_strip_before(text, position, begin), *beside]
            position = _skip_after(text, found.end)
    if not calls:
        return [], text
    around.append(text[position:].strip())
    return _without_repeats(calls), "\n".join(filter(None, around))


def first_object(text: str, *, is_cut_off: bool = False) -> dict[str, Any] | None:
    """Return the one JSON object of a reply, or None for a text with no object or with different ones.

    An object in a fence comes first: the prose around it may quote others.

    >>> first_object("Sure! {'is_urgent': True, 'summary': 'lamp is broken',}")
    {'is_urgent': True, 'summary': 'lamp is broken'}
    """
    if _is_too_large(text):
        return None
    text = drop_thinking(text)
    objects = [*find_objects(text, is_cut_off=is_cut_off)]
    if not (objects and (objects[0].start, objects[0].end) == (0, len(text))):
        fences = (find_objects(match[2], is_cut_off=is_cut_off) for match in _FENCE.finditer(text))
        objects = next(filter(None, map(list, fences)), objects)
    different = {to_line(found.value): found.value for found in objects}
    return next(iter(different.values())) if len(different) == 1 else None


def _is_too_large(text: str) -> bool:
    return len(text) * 4 > REPLY_LIMIT_BYTES and len(text.encode("utf-8", "replace")) > REPLY_LIMIT_BYTES


def _without_repeats(calls: Iterable[RawCall]) -> list[RawCall]:
    """Return each call once: small models write one call two times, as text and in tags."""
    return [*{(call.name, compact(call.args)): call for call in calls}.values()]


class _Shapes:
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
        if not key or not self.is_name(value[key].strip()):
            return None
        name = self.known(value[key])
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
        key = next((it for it in _LISTS if isinstance(value.get(it), list)), "")
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


def _read_found(
    text: str, found: FoundObject, position: int, shapes: _Shapes
) -> tuple[int, list[RawCall], list[str]]:
    """Return where the calls of an object begin, the calls, and the words that the object has beside them."""
    if calls := shapes.read(found.value):
        content = found.value.get("content") if any(key in found.value for key in _LISTS) else None
        return found.start, calls, [content] if isinstance(content, str) else []
    begin = max(position, found.start - _CHARS_BEFORE)
    match = _NAME_BEFORE.search(text[begin : found.start])
    if match and (name := shapes.known(match[1] or match[2])):
        return begin + match.start(), [RawCall(name, found.value)], []
    return found.start, [], []


def _strip_before(text: str, start: int, end: int) -> str:
    """Return a part of a text without the fence, the tag and the brackets that open before a call."""
    while end > start:
        at = end
        while end > start and text[end - 1] in _BEFORE:
            end -= 1
        end = next((end - len(tag) for tag in _OPENING if text.endswith(tag, start, end)), end)
        fence = text.rfind("```", max(start, end - 20), end)
        if fence >= 0 and text[fence + 3 : end].strip(" \t").isidentifier() | (fence + 3 == end):
            end = fence
        if at == end:
            break
    return text[start:end].strip()


def _skip_after(text: str, position: int) -> int:
    """Return the place after the brackets, the tag and the fence that close behind a call."""
    while position < len(text):
        at = position
        while position < len(text) and text[position] in _AFTER:
            position += 1
        position += next((len(tag) for tag in _CLOSING if text.startswith(tag, position)), 0)
        # A fence that opens another block has a language, or a line end and more.
        if text.startswith("```", position) and not text[position + 3 : position + 4].isalpha():
            position += 3
        if at == position:
            break
    return position


def _read_signatures(text: str, shapes: _Shapes) -> list[RawCall]:
    """Return the calls of a text that is nothing but `NAME(argument="x")`, with known names."""
    fence = _FENCE.fullmatch(text)
    text = (fence[2] if fence else text).strip()
    calls: list[RawCall] = []
    position = 0
    try:
        while match := _SIGNATURE.match(text, position):
            name = shapes.known(match[1])
            if not name:
                return []
            args, position = _read_parameters(text, match.end())
            calls.append(RawCall(name, args))
    except JsonProblem:
        return []
    return calls if not text[position:].strip(" \t\r\n,;]") else []


def _read_parameters(text: str, position: int) -> tuple[dict[str, Any], int]:
    """Return the parameters of a call in brackets, all with their names; raise `JsonProblem` for others."""
    args: dict[str, Any] = {}
    while match := _PARAMETER.match(text, position):
        if match[1] in args:
            raise JsonProblem(f"{match[1]} is named twice")
        args[match[1]], position = read_literal(text, match.end(), is_cut_off=True)
    if not args and text.startswith("{", position):
        value, position = read_literal(text, position, is_cut_off=True)
        args = value if isinstance(value, dict) else {}
    end = position + len(text[position : position + 80]) - len(text[position : position + 80].lstrip())
    if not text.startswith(")", end):
        raise JsonProblem("the bracket does not close")
    return args, end + 1
