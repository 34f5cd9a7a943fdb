"""Values that a turn knows from answers that are trusted less than it is, found again in what it calls. Pure.

A clean turn is shown such an answer as values. What it then sends or pays by them was chosen by whoever
wrote the answer: gates at `call` see that as `args_trust` and `args_lowest`. Rules: docs/trust.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lemming.capabilities.trust.words import TrustOrder
from lemming.kernel.base.jsontext import compact
from lemming.kernel.turn.places import LowValue

SMALLEST_NUMBER = 100
"""Whole numbers nearer to 0 tell too little: a count of 3 in one place says nothing of a 3 in another."""
SHORTEST_TEXT = 4
_WORDS = re.compile(r"[\w.:+-]+")


def telling_values(schema: Any, values: Any) -> Iterator[Any]:
    """Yield the single values of an answer by which it can be known again, as its schema has them.

    Not among them: true, false and null, small whole numbers, and what the schema itself lists (`enum`,
    `const`): these words are those of whoever wrote the schema.

    >>> form = {"properties": {"amount": {"type": "integer"}, "kind": {"enum": ["refund"]}}}
    >>> [*telling_values(form, {"amount": 999999, "kind": "refund"})]
    [999999]
    """
    form = schema if isinstance(schema, dict) else {}
    if "enum" in form or "const" in form:
        return
    if isinstance(values, dict):
        properties = form.get("properties") or {}
        for key, value in values.items():
            yield from telling_values(properties.get(key), value)
    elif isinstance(values, list):
        for item in values:
            yield from telling_values(form.get("items"), item)
    elif _tells_something(values):
        yield values


def _tells_something(value: Any) -> bool:
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, str):
        return len(value) >= SHORTEST_TEXT
    return bool(value != int(value) or abs(value) >= SMALLEST_NUMBER)


def low_values(told: Mapping[str, Any], word: str) -> list[LowValue]:
    """Return the values that are trusted less than a word, the least first, as a turn's record names them."""
    order = TrustOrder(tuple(told["order"]))
    values = [LowValue(each["value"], order.known(each["is"])) for each in told.get("values", ())]
    low = [each for each in values if order.rank(each.word) < order.rank(word)]
    return sorted(low, key=lambda each: order.rank(each.word))


def args_trust(args: Any, word: str, values: Sequence[LowValue]) -> dict[str, Any]:
    """Return the trust labels of a call's arguments for gates, in a turn that is trusted as `word`.

    >>> args_trust({"amount": 999999, "to": "bob"}, "agent", [LowValue(999999, "outside")])
    {'args_trust': {'amount': 'outside', 'to': 'agent'}, 'args_lowest': 'outside'}
    """
    named = args if isinstance(args, dict) else {}
    of_args = {name: _find_label(value, word, values) for name, value in named.items()}
    lowest = next((it.word for it in values if it.word in of_args.values()), word)
    return {"args_trust": of_args, "args_lowest": lowest}


def _find_label(value: Any, word: str, values: Sequence[LowValue]) -> str:
    leaves = [*_leaves(value)] if values else []
    return next((it.word for it in values if any(_is_same(it.value, leaf) for leaf in leaves)), word)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _is_same(value: Any, leaf: Any) -> bool:
    """Return True if an argument is a value, or a text in which the value stands as a word."""
    if isinstance(leaf, bool) or leaf is None:
        return False
    if not isinstance(leaf, str):
        return not isinstance(value, str) and bool(value == leaf)
    text = value if isinstance(value, str) else compact(value).decode()
    return leaf == text or (text in leaf and text in _WORDS.findall(leaf))
