"""What a function's docstring says of it and of its parameters: Google's, NumPy's or reST's style."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

DESCRIPTION_CHARS = 2000


class Described(NamedTuple):
    """What a docstring says: of the function, and of its parameters by name."""

    text: str
    parameters: dict[str, str]


def described(function: Callable[..., Any]) -> Described:
    """Return what a function's docstring says; what it does not say is left out."""
    from docstring_parser import ParseError, parse

    written = inspect.getdoc(function) or ""
    try:
        read = parse(written)
    except ParseError:
        return Described(_one_line(written)[:DESCRIPTION_CHARS], {})
    text = "\n".join(part.strip() for part in (read.short_description, read.long_description) if part)
    told = {each.arg_name.lstrip("*"): _one_line(each.description or "") for each in read.params}
    return Described(text[:DESCRIPTION_CHARS], {name: said for name, said in told.items() if said})


def _one_line(text: str) -> str:
    return " ".join(text.split())
