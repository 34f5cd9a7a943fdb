"""The patterns of JSON Schemas: searched without backtracking, by an engine that is not asked for too much.

Their language is that of Rust's `regex`, which has no look-around and no references back, and so takes a time
that is known before: the pattern's weight times the length of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lemming.kernel.base.patterns import NoExpression

LONGEST = 4000
HEAVIEST = 60_000
_CLASS_WEIGHT = 300  # a class of Unicode: some hundred ranges, each of some bytes
_TOKEN = re.compile(
    r"\\[pP](?:\{[^}]*\}|.)|\\u(?:\{[0-9A-Fa-f]+\}|[0-9A-Fa-f]{4})|\\x(?:\{[0-9A-Fa-f]+\}|[0-9A-Fa-f]{2})"
    r"|\\.|\{(?P<least>\d+)(?P<more>,(?P<most>\d*))?\}|.",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class SchemaPattern:
    """A pattern that can be used. `weight`: how many times longer it takes than a single letter."""

    weight: int
    _engine: Any

    def finds(self, text: str) -> bool:
        """Return whether it finds something in a text; in one that is no Unicode it finds nothing."""
        return bool(self._engine.isinstance_python(text))


def schema_pattern(pattern: str) -> SchemaPattern:
    """Return a pattern ready to search. Raises `NoExpression` that says why it cannot be used."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    if len(pattern) > LONGEST:
        raise NoExpression(f"it is longer than {LONGEST} characters")
    weight = _weight(pattern)
    if weight > HEAVIEST:
        raise NoExpression("its repetitions multiply to too much")
    try:
        engine = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except (SchemaError, UnicodeError) as error:
        raise NoExpression(str(error).rpartition("error: ")[2].strip()[:200]) from None
    return SchemaPattern(weight, engine)


def _weight(pattern: str) -> int:
    """Return about how many states an engine needs for a pattern: what is repeated counts as often.

    >>> _weight("ab"), _weight("(?:a{10}){10}"), _weight("[a-f]{3}")
    (2, 110, 12)
    """
    sums, last, in_class = [0], 0, False
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if in_class:
            in_class = text != "]"
            more = max(_weight_of(text) - last, 0)
            sums[-1], last = sums[-1] + more, last + more
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
            last = 4 if in_class else _weight_of(text)
            sums[-1] += last
    return sum(sums)


def _weight_of(token: str) -> int:
    return _CLASS_WEIGHT if token[0] == "\\" and token[1:2] in ("p", "P", "w", "W", "d", "D") else 1
