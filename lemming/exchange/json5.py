"""JSON with comments, words without quotes and commas at the end, as people write settings."""

from __future__ import annotations

import json
import re
from typing import Any

from lemming.capabilities.skills.front_matter import NotFrontMatter, load_yaml

LIMIT_CHARS = 256 << 10
_STRINGS_AND_COMMENTS = re.compile(
    r""""(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?|//[^\n]*|/\*.*?(?:\*/|\Z)|\t"""
    r"""|(?<=[\w$])\s*:(?=[^\s])""",
    re.DOTALL,
)


def load_json5(text: str) -> Any:
    """Return the value of a text; raise `NotFrontMatter` for what cannot be read.

    >>> load_json5("{a: 'x', /* y */ \\"b\\":[1,2,], // z\\n}")
    {'a': 'x', 'b': [1, 2]}
    """
    if len(text) > LIMIT_CHARS:
        raise NotFrontMatter(f"it has {len(text)} characters; at most {LIMIT_CHARS} are read")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return load_yaml(_STRINGS_AND_COMMENTS.sub(_as_yaml, text), 2 * LIMIT_CHARS)


def _as_yaml(found: re.Match[str]) -> str:
    part = found[0]
    if part[0] in "\"'":
        return part
    return ": " if part.lstrip().startswith(":") else " "
