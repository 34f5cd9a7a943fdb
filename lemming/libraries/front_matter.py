"""Parse front matter: the YAML block between two lines `---` at the start of Markdown files. Pure.

Values are limited to JSON values: text resembling dates, octal numbers or `yes` stays text. Aliases, tags and
deep nesting are rejected, because a small file could expand to gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

LIMIT_CHARS = 64 << 10
MAX_DEPTH = 20

_START = re.compile(r"---[ \t]*\n")
_END = re.compile(r"^(?:---|\.\.\.)[ \t]*$", re.MULTILINE)
_PLAIN_VALUE = re.compile(r"^([A-Za-z_][\w-]*:[ \t]+)(?![\"'|>\[{&*!#])(.*:(?:[ \t].*|))$")


class InvalidFrontMatter(ValueError):
    """Raised for unreadable front matter. `line` is a line of the file, 0 if unknown."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def split_front_matter(text: str) -> tuple[str | None, str]:
    r"""Return the front matter and the remaining text; the front matter is None if missing.

    Raises `InvalidFrontMatter` for a block without an end, or longer than `LIMIT_CHARS`.

    >>> split_front_matter("---\nname: pdf\n---\nRead it.\n")
    ('name: pdf\n', 'Read it.\n')
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    start = _START.match(text)
    if start is None:
        return None, text
    end = _END.search(text, start.end())
    if end is None:
        raise InvalidFrontMatter("the block must end with a second line ---", 1)
    header = text[start.end() : end.start()]
    if len(header) > LIMIT_CHARS:
        raise InvalidFrontMatter(f"the block must have at most {LIMIT_CHARS} characters, got {len(header)}", 1)
    return header, text[end.end() :].lstrip("\n")


def parse_front_matter(header: str) -> dict[str, Any]:
    r"""Return the values of front matter as JSON values by key. Raises `InvalidFrontMatter`.

    An unquoted value with a colon, which is invalid YAML, is read as text.

    >>> parse_front_matter("name: pdf\ndescription: Use when: a form is to be filled in\n")
    {'name': 'pdf', 'description': 'Use when: a form is to be filled in'}
    """
    try:
        return _load_mapping(header)
    except InvalidFrontMatter:
        quoted = "\n".join(map(_quote_plain_value, header.split("\n")))
        if quoted == header:
            raise
    return _load_mapping(quoted)


def parse_yaml(text: str, limit_chars: int = LIMIT_CHARS) -> Any:
    """Return the value of a YAML text, under the same rules. Raises `InvalidFrontMatter`."""
    import yaml  # only imported for an export

    if len(text) > limit_chars:
        raise InvalidFrontMatter(f"it must have at most {limit_chars} characters, got {len(text)}")
    try:
        events = yaml.parse(text, Loader=yaml.SafeLoader)
        documents = [_parse_value(event, events, 1) for event in events if isinstance(event, yaml.NodeEvent)]
    except yaml.YAMLError as error:
        message = getattr(error, "problem", None) or str(error).split("\n")[0]
        raise _make_error(message, getattr(error, "problem_mark", None)) from error
    if len(documents) > 1:
        raise InvalidFrontMatter("expected one YAML document, got more")
    return documents[0] if documents else None


def find_yaml_line(text: str, key_path: Sequence[str]) -> int:
    """Return the line of a key in a YAML text by its path of keys, or 0."""
    import yaml

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:  # its events may be sound, and its nodes not
        return 0
    line = 0
    for key in key_path:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        pair = next(((name, value) for name, value in pairs if name.value == key), None)
        if pair is None:
            return 0
        line, node = pair[0].start_mark.line + 1, pair[1]
    return line


def _parse_value(event: Any, events: Iterator[Any], depth: int) -> Any:
    """Return the value beginning with an event."""
    import yaml

    if isinstance(event, yaml.AliasEvent):
        raise _make_error("aliases (*name) are not allowed", event.start_mark)
    if event.tag not in (None, "!"):
        raise _make_error(f"tags ({event.tag}) are not allowed", event.start_mark)
    if depth > MAX_DEPTH:
        raise _make_error(f"the block must be nested at most {MAX_DEPTH} levels deep, got more", event.start_mark)
    if isinstance(event, yaml.ScalarEvent):
        if not event.value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in event.value):
            raise _make_error("expected Unicode text, got a lone surrogate", event.start_mark)
        return _parse_scalar(event.value) if event.style is None else event.value
    if isinstance(event, yaml.SequenceStartEvent):
        return [_parse_value(item, events, depth + 1) for item in _iter_children(events, yaml.SequenceEndEvent)]
    values: dict[str, Any] = {}
    for key in _iter_children(events, yaml.MappingEndEvent):
        if not isinstance(key, yaml.ScalarEvent):
            raise _make_error("a key must be a text", key.start_mark)
        if key.value in values:
            raise _make_error(f'the key "{key.value}" appears twice', key.start_mark)
        values[key.value] = _parse_value(next(events), events, depth + 1)
    return values


def _iter_children(events: Iterator[Any], end: type) -> Iterator[Any]:
    while not isinstance(event := next(events), end):
        yield event


def _parse_scalar(text: str) -> Any:
    for pattern, value_of in _SCALAR_PARSERS:
        if pattern.fullmatch(text):
            return value_of(text)
    return text


_SCALAR_PARSERS: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile("true|True|TRUE|false|False|FALSE"), lambda text: text.lower() == "true"),
    (re.compile("null|Null|NULL|~|"), lambda _: None),
    (re.compile("-?(?:0|[1-9][0-9]{0,14})"), int),
    (re.compile(r"-?(?:0|[1-9][0-9]{0,14})\.[0-9]{1,15}"), float),
)


def _make_error(message: str, mark: Any) -> InvalidFrontMatter:
    return InvalidFrontMatter(message, mark.line + 1 if mark else 0)


def _load_mapping(header: str) -> dict[str, Any]:
    try:
        values = parse_yaml(header)
    except InvalidFrontMatter as error:  # the first line of the file is ---
        raise InvalidFrontMatter(str(error), error.line and error.line + 1) from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InvalidFrontMatter("the block must be lines of the form `key: value`", 2)
    return values


def _quote_plain_value(line: str) -> str:
    match = _PLAIN_VALUE.match(line)
    return f"{match[1]}'{match[2].rstrip().replace(chr(39), chr(39) * 2)}'" if match else line
