"""The block of YAML between two lines `---` that Markdown files of agents and skills begin with. Pure.

Values are those of JSON: what YAML takes for dates, octal numbers or `yes` stays text. Aliases, tags and
deep nesting are refused: a small file could stand for gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

LIMIT_CHARS = 64 << 10
DEEPEST = 20

_BEGINS = re.compile(r"---[ \t]*\n")
_ENDS = re.compile(r"^(?:---|\.\.\.)[ \t]*$", re.MULTILINE)
_PLAIN_VALUE = re.compile(r"^([A-Za-z_][\w-]*:[ \t]+)(?![\"'|>\[{&*!#])(.*:(?:[ \t].*|))$")


class NotFrontMatter(ValueError):
    """A file's first block cannot be read; `line` is the file's, 0 where it is not known."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def split(text: str) -> tuple[str | None, str]:
    r"""Return the block that a text begins with, and the rest; None for a text without one.

    Raises `NotFrontMatter` for a block that does not end, or is longer than `LIMIT_CHARS`.

    >>> split("---\nname: pdf\n---\nRead it.\n")
    ('name: pdf\n', 'Read it.\n')
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    begins = _BEGINS.match(text)
    if begins is None:
        return None, text
    ends = _ENDS.search(text, begins.end())
    if ends is None:
        raise NotFrontMatter("the block that begins with --- has no second ---", 1)
    header = text[begins.end() : ends.start()]
    if len(header) > LIMIT_CHARS:
        raise NotFrontMatter(f"the block has {len(header)} characters; at most {LIMIT_CHARS} are read", 1)
    return header, text[ends.end() :].lstrip("\n")


def values_of(header: str) -> dict[str, Any]:
    r"""Return what a block says, as JSON values by key. Raises `NotFrontMatter`.

    A value with a colon in it that is not quoted, which YAML does not take, is read as text.

    >>> values_of("name: pdf\ndescription: Use when: a form is to be filled in\n")
    {'name': 'pdf', 'description': 'Use when: a form is to be filled in'}
    """
    try:
        return _load(header)
    except NotFrontMatter:
        quoted = "\n".join(map(_quoted, header.split("\n")))
        if quoted == header:
            raise
    return _load(quoted)


def load_yaml(text: str, limit_chars: int = LIMIT_CHARS) -> Any:
    """Return the value of a YAML text, under the same rules. Raises `NotFrontMatter`."""
    import yaml  # only where there is any

    if len(text) > limit_chars:
        raise NotFrontMatter(f"it has {len(text)} characters; at most {limit_chars} are read")
    try:
        events = yaml.parse(text, Loader=yaml.SafeLoader)
        found = [_value(event, events, 1) for event in events if isinstance(event, yaml.NodeEvent)]
    except yaml.YAMLError as error:
        message = getattr(error, "problem", None) or str(error).split("\n")[0]
        raise _refused(message, getattr(error, "problem_mark", None)) from error
    if len(found) > 1:
        raise NotFrontMatter("more than one document")
    return found[0] if found else None


def find_yaml_line(text: str, way: Sequence[str]) -> int:
    """Return the line of a key in a YAML text, by the keys that lead to it; 0 if there is none."""
    import yaml

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:  # its events may be sound, and its nodes not
        return 0
    line = 0
    for key in way:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        pair = next(((name, value) for name, value in pairs if name.value == key), None)
        if pair is None:
            return 0
        line, node = pair[0].start_mark.line + 1, pair[1]
    return line


def _value(event: Any, events: Iterator[Any], depth: int) -> Any:
    """Return the value that begins with an event."""
    import yaml

    if isinstance(event, yaml.AliasEvent):
        raise _refused("aliases (*name) are not taken", event.start_mark)
    if event.tag not in (None, "!"):
        raise _refused(f"tags ({event.tag}) are not taken", event.start_mark)
    if depth > DEEPEST:
        raise _refused(f"more than {DEEPEST} levels deep", event.start_mark)
    if isinstance(event, yaml.ScalarEvent):
        if not event.value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in event.value):
            raise _refused("half a character (a lone surrogate)", event.start_mark)
        return _scalar(event.value) if event.style is None else event.value
    if isinstance(event, yaml.SequenceStartEvent):
        return [_value(item, events, depth + 1) for item in _until(events, yaml.SequenceEndEvent)]
    values: dict[str, Any] = {}
    for key in _until(events, yaml.MappingEndEvent):
        if not isinstance(key, yaml.ScalarEvent):
            raise _refused("a key must be a word", key.start_mark)
        if key.value in values:
            raise _refused(f'the key "{key.value}" stands twice', key.start_mark)
        values[key.value] = _value(next(events), events, depth + 1)
    return values


def _until(events: Iterator[Any], end: type) -> Iterator[Any]:
    while not isinstance(event := next(events), end):
        yield event


def _scalar(text: str) -> Any:
    for pattern, value_of in _NOT_TEXT:
        if pattern.fullmatch(text):
            return value_of(text)
    return text


_NOT_TEXT: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile("true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    (re.compile("null|Null|NULL|~|"), lambda _: None),
    (re.compile("-?(?:0|[1-9][0-9]{0,14})"), int),
    (re.compile(r"-?(?:0|[1-9][0-9]{0,14})\.[0-9]{1,15}"), float),
)


def _refused(message: str, mark: Any) -> NotFrontMatter:
    return NotFrontMatter(message, mark.line + 1 if mark else 0)


def _load(header: str) -> dict[str, Any]:
    try:
        values = load_yaml(header)
    except NotFrontMatter as error:  # the first line of the file is ---
        raise NotFrontMatter(str(error), error.line and error.line + 1) from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise NotFrontMatter("the block must be lines of the form `key: value`", 2)
    return values


def _quoted(line: str) -> str:
    found = _PLAIN_VALUE.match(line)
    return f"{found[1]}'{found[2].rstrip().replace(chr(39), chr(39) * 2)}'" if found else line
