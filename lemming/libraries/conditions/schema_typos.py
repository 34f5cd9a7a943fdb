"""Typos in JSON schemas of files: unknown keywords, which would check nothing."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from lemming.kernel.base.errors import Problem
from lemming.kernel.base.json_schema.schema_violations import find_unknown_keywords, schema_keywords
from lemming.kernel.base.jsontext import correct_typo, escape_pointer_key


def find_schema_typos(schema: dict[str, Any], location: str) -> Iterator[Problem]:
    """Yield misspelled keywords of JSON Schema, which would check nothing."""
    for pointer, key in find_unknown_keywords(schema):
        keywords = schema_keywords()
        if suggestion := correct_typo(key, keywords) or next(
            iter(get_close_matches(key, keywords, n=1, cutoff=0.8)), ""
        ):
            fault_location = f"{location}{pointer}/{escape_pointer_key(key)}"
            yield Problem(
                f'JSON Schema has no keyword "{key}"; it has no effect',
                pointer=fault_location,
                hint=f'did you mean "{suggestion}"?',
            )
