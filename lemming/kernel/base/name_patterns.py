"""Untrusted patterns, searched within a bounded time. Pure.

Patterns of names, in which `*` stands for any text; and the regular expressions of JSON Schemas, gates, conditions and
searches, in the language of Rust's `regex`, without look-around and back-references: their search time is known in
advance, the pattern's weight times the length of the text. No other module searches by a foreign pattern
(tests/test_house.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MAX_PATTERN_CHARS = 4000
MAX_WEIGHT = 60_000
_CLASS_WEIGHT = 300  # a class of Unicode: some hundred ranges, each of some bytes
_TOKEN = re.compile(
    r"\\[pP](?:\{[^}]*\}|.)|\\u(?:\{[0-9A-Fa-f]+\}|[0-9A-Fa-f]{4})|\\x(?:\{[0-9A-Fa-f]+\}|[0-9A-Fa-f]{2})"
    r"|\\.|\{(?P<least>\d+)(?P<more>,(?P<most>\d*))?\}|.",
    re.DOTALL,
)


class InvalidPattern(ValueError):
    """Raised for an unusable pattern; the message has the reason."""


def is_match(name: str, pattern: str) -> bool:
    """Return True if a name matches a pattern, in which `*` stands for any text.

    >>> is_match("weather_now", "weather_*"), is_match("mcp.files.read", "mcp.files"), is_match("a", "a")
    (True, False, True)
    """
    first, *between = pattern.split("*")
    if not between:
        return name == pattern
    last = between.pop()
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    # The first match is the best for each part: whatever matches after a later one matches after it too.
    at, end = len(first), len(name) - len(last)
    for part in between:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def is_any_match(name: str, patterns: Iterable[str]) -> bool:
    """Return True if a name matches at least one pattern."""
    return any(name == pattern or ("*" in pattern and is_match(name, pattern)) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class SchemaPattern:
    """A compiled pattern. `weight`: search cost relative to a single letter."""

    weight: int
    _engine: Any

    def has_match(self, text: str) -> bool:
        """Return True if the pattern matches somewhere in a text; never for invalid Unicode."""
        return bool(self._engine.isinstance_python(text))


def compile_schema_pattern(pattern: str) -> SchemaPattern:
    """Compile a pattern for searching. Raises `InvalidPattern` with the reason."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    if len(pattern) > MAX_PATTERN_CHARS:
        raise InvalidPattern(f"it is longer than {MAX_PATTERN_CHARS} characters")
    weight = estimate_states(pattern)
    if weight > MAX_WEIGHT:
        raise InvalidPattern("its repetitions multiply to too much")
    try:
        engine = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except (SchemaError, UnicodeError) as error:
        raise InvalidPattern(str(error).rpartition("error: ")[2].strip()[:200]) from None
    return SchemaPattern(weight, engine)


def estimate_states(pattern: str, class_weight: int = _CLASS_WEIGHT) -> int:
    """Return the approximate number of states of a pattern; repeated parts count repeatedly.

    >>> estimate_states("ab"), estimate_states("(?:a{10}){10}"), estimate_states("[a-f]{3}")
    (2, 110, 12)
    """
    sums, last, in_class = [0], 0, False
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if in_class:
            in_class = text != "]"
            extra_weight = max(_token_states(text, class_weight) - last, 0)
            sums[-1], last = sums[-1] + extra_weight, last + extra_weight
        elif token["least"] is not None:
            times = int((token["most"] or token["least"])[:9])  # more digits are too much in any case
            sums[-1] += last * (max(times, 1) - 1)
            last *= max(times, 1)
        elif text == "(":
            sums.append(0)
        elif text == ")" and len(sums) > 1:
            last = max(sums.pop(), 1)
            sums[-1] += last
        elif text not in "*+?|":
            in_class = text == "["
            last = 4 if in_class else _token_states(text, class_weight)
            sums[-1] += last
    return sum(sums)


def _token_states(token: str, class_weight: int) -> int:
    return class_weight if token[0] == "\\" and token[1:2] in ("p", "P", "w", "W", "d", "D") else 1
