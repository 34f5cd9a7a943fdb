"""References in a payload: `reply_to`, `hands_on`, `cancels`, `parent`, `owed_to`. Pure.

A reference is text, an id or `author/TICK_ID`; a list of references is allowed. Any other value refers to
nothing, for all readers alike: payloads are written by models, programs and people.
"""

from __future__ import annotations

import re

_TICK = re.compile(r"[0-9]{1,12}")


def parse_references(value: object) -> tuple[str, ...]:
    """Return the normalized references in the value of a reference key.

    >>> parse_references("desk/42_3fa9c1d2e0b7"), parse_references([" a ", 7]), parse_references({"id": "a"})
    (('desk/00000042_3fa9c1d2e0b7',), ('a',), ())
    """
    if isinstance(value, str):
        return (normalize_reference(value),)
    if isinstance(value, list):
        return tuple(normalize_reference(item) for item in value if isinstance(item, str))
    return ()


def parse_reference(value: object) -> str:
    """Return the single reference in a value, or an empty string if there is none or more than one."""
    references = parse_references(value)
    return references[0] if len(references) == 1 else ""


def normalize_reference(reference: str) -> str:
    """Return a reference without surrounding white space, with its tick padded as in file names.

    >>> normalize_reference("desk/42_3fa9c1d2e0b7")
    'desk/00000042_3fa9c1d2e0b7'
    """
    reference = reference.strip()
    if "/" not in reference:
        return reference
    author, _, name = reference.partition("/")
    tick, _, id_ = name.partition("_")
    return f"{author}/{int(tick):08}_{id_}" if _TICK.fullmatch(tick) else reference
