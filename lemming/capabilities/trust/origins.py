"""Trace untrusted values into the arguments of tool calls. Pure.

A clean turn sees an untrusted answer as values. Anything sent or paid by these values was chosen by the
author of the answer: gates at `call` see this as `args_trust` and `args_lowest`. Rules: docs/trust.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lemming.capabilities.trust.trust_levels import TrustOrder
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.turn.guards import LowTrustValue

MIN_NUMBER = 100
"""Smaller whole numbers are no evidence: a count of 3 says nothing about another 3."""
MIN_TEXT_CHARS = 4
_WORDS = re.compile(r"[\w.:+-]+")


def iter_recognizable_values(schema: Any, values: Any) -> Iterator[Any]:
    """Yield the recognizable single values of an answer, by the answer's schema.

    Excluded are true, false and null, small whole numbers, and values listed in the schema (`enum`, `const`),
    because these values come from the author of the schema.

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
    elif _is_recognizable(values):
        yield values


def _is_recognizable(value: Any) -> bool:
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, str):
        return len(value) >= MIN_TEXT_CHARS
    return bool(value != int(value) or abs(value) >= MIN_NUMBER)


def find_untrusted_values(record: Mapping[str, Any], label: str) -> list[LowTrustValue]:
    """Return the values below a trust label in a turn's record, the least trusted first."""
    order = TrustOrder(tuple(record["order"]))
    values = [LowTrustValue(item["value"], order.normalize(item["is"])) for item in record.get("values", ())]
    low = [item for item in values if order.rank(item.label) < order.rank(label)]
    return sorted(low, key=lambda item: order.rank(item.label))


def label_arguments(args: Any, label: str, values: Sequence[LowTrustValue]) -> dict[str, Any]:
    """Return the trust labels of a call's arguments for gates, in a turn with a label.

    >>> label_arguments(dict(amount=999999, to="bob"), "agent", [LowTrustValue(999999, "outside")])
    {'args_trust': {'amount': 'outside', 'to': 'agent'}, 'args_lowest': 'outside'}
    """
    named = args if isinstance(args, dict) else {}
    arg_labels = {name: _find_label(value, label, values) for name, value in named.items()}
    lowest = next((low_value.label for low_value in values if low_value.label in arg_labels.values()), label)
    return {"args_trust": arg_labels, "args_lowest": lowest}


def _find_label(value: Any, label: str, values: Sequence[LowTrustValue]) -> str:
    leaves = [*_iter_leaves(value)] if values else []
    return next(
        (low_value.label for low_value in values if any(_matches_value(low_value.value, leaf) for leaf in leaves)),
        label,
    )


def _iter_leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, item in value.items():
            # Keys too: a value may be passed on as the key of an object.
            yield str(key)
            yield from _iter_leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _iter_leaves(item)
    else:
        yield value


def _matches_value(value: Any, leaf: Any) -> bool:
    """Return True if an argument equals a value, or contains the value as a word."""
    if isinstance(leaf, bool) or leaf is None:
        return False
    if not isinstance(leaf, str):
        return not isinstance(value, str) and bool(value == leaf)
    text = value if isinstance(value, str) else dump_compact(value).decode()
    # Only as a whole word: a part of another word or number is no match.
    return leaf == text or (text in leaf and text in _WORDS.findall(leaf))
