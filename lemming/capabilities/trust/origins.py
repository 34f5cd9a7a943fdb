"""Trace untrusted values into arguments of tool calls, and into what a turn writes. Pure.

A clean turn sees an untrusted answer as values. Anything sent or paid by these values was chosen by the
author of the answer: gates at `call` see this as `args_trust` and `args_lowest`. Rules: docs/security.md.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from lemming.capabilities.trust.trust_settings import TrustOrder

MIN_DIGITS = 3
"""Numbers with fewer digits are no evidence: a count of 3 says nothing about another 3."""
MIN_TEXT_CHARS = 4
MIN_CHARS_IN_TEXT = 8
"""Shorter texts count only as a whole argument."""
MAX_SCAN_CHARS = 1 << 18
"""Maximum number of characters compared for one call, or one text: a larger one counts as holding every value."""
MAX_VALUES = 256
"""Maximum number of values traced in one turn. Each further value lowers the turn instead."""
VALUE_TAG = "trust-value:"
"""Prefix of an entry's tags for the untrusted values inside: `trust-value:outside:4900`."""
_MAX_TAG_VALUE_CHARS = 64
_MAX_NUMBER_CHARS = 64
_LARGEST_NUMBER = 10**_MAX_NUMBER_CHARS
_EXACT_FLOATS = 2.0**53
_TOKEN = re.compile(r"[\w.,:'+-]+")
_SPACED_NUMBER = re.compile(r"(?<![\w.,])\d{1,3}(?: \d{3})+(?:[.,]\d+)?(?!\w)")
_EDGES = ".,:'+-"
_SEPARATOR = re.compile(r"[,:']|\.(?!\d)")
_AMOUNT = re.compile(r"(?:[a-z]{3})?[+-]?(\d[\d.,'_]*(?:e[+-]?\d{1,3})?)(?:[a-z]{3})?")
_ENGLISH_NUMBER = re.compile(r"(?:\d{1,3}(?:[,'_]\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?")
_GERMAN_NUMBER = re.compile(r"(?:\d{1,3}(?:[.']\d{3})+|\d+)(?:,\d+)?")
_JSON_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\"\\/]))")
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)(?:[t ].+)?")


class UntrustedValue(NamedTuple):
    """A value of a less trusted text shown to a turn, with the label and the source."""

    value: Any
    label: str
    source: str

    def as_json(self) -> dict[str, Any]:
        """Return the value as in a turn's record."""
        return {"value": self.value, "is": self.label, "of": self.source}

    @classmethod
    def from_json(cls, recorded: Mapping[str, Any]) -> UntrustedValue:
        """Return the value from a turn's record."""
        return cls(recorded["value"], recorded["is"], recorded["of"])


def iter_recognizable_values(schema: Any, values: Any) -> Iterator[Any]:
    """Yield the recognizable single values of an answer, by the answer's schema.

    Excluded are true, false and null, numbers with less than three digits, and values listed in the schema
    (`enum`, `const`), because these values come from the author of the schema.

    >>> form = dict(properties=dict(amount={"type": "integer"}, kind={"enum": ["refund"]}))
    >>> [*iter_recognizable_values(form, dict(amount=999999, kind="refund"))]
    [999999]
    """
    schema_object = schema if isinstance(schema, dict) else {}
    if "enum" in schema_object or "const" in schema_object:
        return
    if isinstance(values, dict):
        properties = schema_object.get("properties") or {}
        for key, value in values.items():
            yield from iter_recognizable_values(properties.get(key), value)
    elif isinstance(values, list):
        for item in values:
            yield from iter_recognizable_values(schema_object.get("items"), item)
    elif isinstance(values, str):
        if len(values) >= MIN_TEXT_CHARS:
            yield values
    elif values is not None and not isinstance(values, bool):
        digits = _number_key(values).lstrip("0.")
        if sum(map(str.isdigit, digits)) >= MIN_DIGITS:
            yield values


def find_untrusted_values(record: Mapping[str, Any], label: str) -> list[UntrustedValue]:
    """Return the values below a trust label in a turn's record, the least trusted first."""
    if not (values := record.get("values")):
        return []
    order = TrustOrder(tuple(record["order"]))
    named = [UntrustedValue(item["value"], order.normalize(item["is"]), item["of"]) for item in values]
    low = [value for value in named if order.rank(value.label) < order.rank(label)]
    return sorted(low, key=lambda value: order.rank(value.label))


def label_arguments(args: Any, label: str, values: Sequence[UntrustedValue]) -> dict[str, Any]:
    """Return the trust labels of a call's arguments for gates, in a turn with a label.

    `values` are the least trusted first. Time is linear in the size of the arguments: below a second, and 10 MiB
    of memory, for `MAX_SCAN_CHARS` characters. Beyond, an argument has the lowest label of the values.

    >>> label_arguments(dict(amount=999999, to="bob"), "agent", [UntrustedValue(999999, "outside", "")])
    {'args_trust': {'amount': 'outside', 'to': 'agent'}, 'args_lowest': 'outside'}
    """
    named = args if isinstance(args, dict) else {}
    if not values:
        return {"args_trust": dict.fromkeys(named, label), "args_lowest": label}
    finder = ValueFinder([item.value for item in values])
    positions = {name: min(finder.find({name: value}), default=None) for name, value in named.items()}
    # A call without named arguments has no `args_trust`, but its values have an origin all the same.
    used = [position for position in positions.values() if position is not None]
    used += finder.find(args) if named is not args else ()
    return {
        "args_trust": {
            name: label if position is None else values[position].label for name, position in positions.items()
        },
        "args_lowest": values[min(used)].label if used else label,
    }


class ValueFinder:
    """Finds known values in JSON content and texts, in all forms usual with models.

    Numbers equal their texts, with separators of thousands, a sign, or the code of a currency; dates equal the
    date of a time; texts are compared without case and surrounding spaces.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self._count = len(values)
        self._chars_left = MAX_SCAN_CHARS
        self._whole_forms: dict[str, list[int]] = {}  # positions by the form of a whole argument
        self._text_forms: dict[str, list[int]] = {}  # positions by the form of a word in a longer text
        self._phrases: list[tuple[str, int]] = []
        for position, value in enumerate(values):
            self._add(position, value)

    def find(self, content: Any) -> set[int]:
        """Return the positions of the values in JSON content, keys included.

        All positions once more than `MAX_SCAN_CHARS` characters have been compared.
        """
        positions: set[int] = set()
        stack = [content]  # no recursion: arguments may be nested deeply
        while stack and self._chars_left >= 0:
            item = stack.pop()
            if isinstance(item, dict):
                self._chars_left -= len(item)
                stack += item.values()
                stack += map(str, item)  # a value may be passed on as the key of an object
            elif isinstance(item, (list, tuple)):
                self._chars_left -= len(item)
                stack += item
            elif isinstance(item, str):
                self._chars_left -= len(item)
                if self._chars_left >= 0:
                    positions.update(self._find_in_text(item))
                if (plain := _unescape(item)) != item:
                    stack.append(plain)
            elif isinstance(item, (int, float)) and not isinstance(item, bool):
                positions.update(self._whole_forms.get(_number_key(item), ()))
        return positions if self._chars_left >= 0 else {*range(self._count)}

    def has_room(self) -> bool:
        """Return True if further content can be compared."""
        return self._chars_left >= 0

    def _add(self, position: int, value: Any) -> None:
        text = _number_key(value) if isinstance(value, (int, float)) else _normalize(str(value))
        forms = {text, *(_token_forms(text) if _TOKEN.fullmatch(text) else ())}
        date = _DATE.fullmatch(text)
        forms |= {date[1], _time_key(text)} if date else set()
        for form in forms:
            self._whole_forms.setdefault(form, []).append(position)
            is_number = form.replace(".", "", 1).isdigit()
            if is_number or len(form) >= MIN_CHARS_IN_TEXT:
                self._text_forms.setdefault(form, []).append(position)
        if not _TOKEN.fullmatch(text) and len(text) >= MIN_CHARS_IN_TEXT:
            self._phrases.append((text, position))

    def _find_in_text(self, raw: str) -> Iterator[int]:
        text = _normalize(raw)
        yield from self._whole_forms.get(text, ())
        yield from self._whole_forms.get(_time_key(text), ())
        for match in _TOKEN.finditer(text):
            for form in _token_forms(match[0]):
                yield from self._text_forms.get(form, ())
        for match in _SPACED_NUMBER.finditer(text):
            for form in _number_forms(match[0].replace(" ", "")):
                yield from self._text_forms.get(form, ())
        for phrase, position in self._phrases:
            if _has_phrase(text, phrase):
                yield position


def _unescape(text: str) -> str:
    """Return a text without the escapes of addresses and of JSON."""
    plain = unquote_plus(text) if "%" in text else text
    return _JSON_ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else match[2], plain)


def _normalize(text: str) -> str:
    """Return a text for comparison: compatible letters, no case, single spaces, no slash at the end."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return " ".join(plain.casefold().split()).removesuffix("/")


def _has_phrase(text: str, phrase: str) -> bool:
    """Return True if a text contains a phrase without letters or digits around."""
    start = text.find(phrase)
    while start >= 0:
        end = start + len(phrase)
        if not (text[start - 1 : start].isalnum() or text[end : end + 1].isalnum()):
            return True
        start = text.find(phrase, start + 1)
    return False


def _token_forms(token: str) -> Iterator[str]:
    """Yield the forms of a word for comparison: the word, its numbers, its date and its parts."""
    bare = token.strip(_EDGES)
    yield bare
    yield from _number_forms(bare)
    if date := _DATE.fullmatch(bare):
        yield date[1]
        yield _time_key(bare)
    if _SEPARATOR.search(bare):
        for part in _SEPARATOR.split(bare):
            yield part.strip(_EDGES)
            yield from _number_forms(part)


def _number_forms(bare: str) -> Iterator[str]:
    """Yield the possible numbers of a word: 4.900 is 4900 to some and 4.9 to others."""
    amount = _AMOUNT.fullmatch(bare) if len(bare) <= _MAX_NUMBER_CHARS else None
    if amount is None:
        return
    digits = amount[1]
    if _ENGLISH_NUMBER.fullmatch(digits):
        yield _text_number_key(re.sub("[,'_]", "", digits))
    if _GERMAN_NUMBER.fullmatch(digits) and ("," in digits or "." in digits):
        yield _text_number_key(re.sub("[.']", "", digits).replace(",", "."))


def _text_number_key(digits: str) -> str:
    return _number_key(int(digits) if digits.isdigit() else float(digits))


def _number_key(number: float) -> str:
    """Return a number's form for comparison, the same for 3000, 3000.0 and -3000."""
    size = abs(number)
    if isinstance(size, int) or (size.is_integer() and size < _EXACT_FLOATS):
        # A longer number is refused as text by Python, and no value is as long.
        return str(int(size)) if size < _LARGEST_NUMBER else ""
    return repr(size)


def _time_key(text: str) -> str:
    """Return a point in time in UTC, and any other text unchanged."""
    if _DATE.fullmatch(text) and len(text) > 10:
        with suppress(ValueError, OverflowError):  # a zone may lead out of the calendar
            moment = datetime.fromisoformat(text.upper())
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    return text


def make_value_tags(values: Iterable[UntrustedValue]) -> list[str]:
    """Return the tags of an entry with untrusted values.

    >>> make_value_tags([UntrustedValue(4900, "outside", "reader/00000001_a")])
    ['trust-value:outside:4900']
    """
    return [*dict.fromkeys(f"{VALUE_TAG}{item.label}:{item.value}" for item in values)]


def parse_value_tags(tags: Iterable[str], source: str) -> Iterator[UntrustedValue]:
    """Yield the untrusted values named in the tags of an entry.

    >>> [*parse_value_tags(["trust-value:outside:4900", "news"], "ada/00000001_a")]
    [UntrustedValue(value='4900', label='outside', source='ada/00000001_a')]
    """
    for tag in tags:
        if tag.startswith(VALUE_TAG):
            label, _, value = tag.removeprefix(VALUE_TAG).partition(":")
            if value and len(value) <= _MAX_TAG_VALUE_CHARS:
                yield UntrustedValue(value, label, source)


def strip_value_tags(tags: Iterable[str]) -> list[str]:
    """Return tags without the tags for untrusted values: only the engine's count."""
    return [tag for tag in tags if not tag.strip().lower().startswith(VALUE_TAG)]
