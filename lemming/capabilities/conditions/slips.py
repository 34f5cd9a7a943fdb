"""Slips in the schemas that files say: keywords that are none, and would check nothing."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from lemming.kernel.base.json_schema.violations import WORDS, other_words
from lemming.kernel.base.jsontext import escaped, meant
from lemming.kernel.tick.soundness.inventory import Fault


def slips_in(schema: dict[str, Any], at: str) -> Iterator[Fault]:
    """Yield the keywords of a schema that are some of JSON Schema with a slip, and would check nothing."""
    for pointer, key in other_words(schema):
        words = sorted(WORDS)
        if other := meant(key, words) or next(iter(get_close_matches(key, words, n=1, cutoff=0.8)), ""):
            place = f"{at}{pointer}/{escaped(key)}"
            yield Fault(
                place, f'JSON Schema has no "{key}", and it checks nothing', f'did you mean "{other}"?'
            )
