"""What the references of a payload name: `reply_to`, `hands_on`, `cancels`, `parent`, `owed_to`. Pure.

A reference is text, an id or `author/TICK_ID`; there may be a list of such. Whatever else stands there names
nothing, for everybody who reads it alike: payloads are written by models, programs and people.
"""

from __future__ import annotations

import re

_TICK = re.compile(r"[0-9]{1,12}")


def named_in(value: object) -> tuple[str, ...]:
    """Return what the value of such a key names, each as `normal` has it.

    >>> named_in("desk/42_3fa9c1d2e0b7"), named_in([" a ", 7]), named_in({"id": "a"})
    (('desk/00000042_3fa9c1d2e0b7',), ('a',), ())
    """
    if isinstance(value, str):
        return (normal(value),)
    if isinstance(value, list):
        return tuple(normal(it) for it in value if isinstance(it, str))
    return ()


def name_in(value: object) -> str:
    """Return the one thing that the value of such a key names; empty where it is none, or several."""
    named = named_in(value)
    return named[0] if len(named) == 1 else ""


def normal(reference: str) -> str:
    """Return a reference without white space around it, its tick as file names have it.

    >>> normal("desk/42_3fa9c1d2e0b7")
    'desk/00000042_3fa9c1d2e0b7'
    """
    reference = reference.strip()
    if "/" not in reference:
        return reference
    author, _, rest = reference.partition("/")
    tick, _, id_ = rest.partition("_")
    return f"{author}/{int(tick):08}_{id_}" if _TICK.fullmatch(tick) else reference
