"""Parse a function's docstring in Google, NumPy or reST style: the description and the parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

DESCRIPTION_CHARS = 2000


class ParsedDocstring(NamedTuple):
    """A parsed docstring: the description of the function, and of its parameters by name."""

    text: str
    parameters: dict[str, str]


def parse_docstring(function: Callable[..., Any]) -> ParsedDocstring:
    """Return the parsed docstring of a function, without empty descriptions."""
    from docstring_parser import ParseError, parse

    docstring = inspect.getdoc(function) or ""
    try:
        parsed = parse(docstring)
    except ParseError:
        return ParsedDocstring(_to_one_line(docstring)[:DESCRIPTION_CHARS], {})
    text = "\n".join(part.strip() for part in (parsed.short_description, parsed.long_description) if part)
    descriptions = {
        parameter.arg_name.lstrip("*"): _to_one_line(parameter.description or "") for parameter in parsed.params
    }
    return ParsedDocstring(
        text[:DESCRIPTION_CHARS], {name: description for name, description in descriptions.items() if description}
    )


def _to_one_line(text: str) -> str:
    return " ".join(text.split())
