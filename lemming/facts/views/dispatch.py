"""What the page, `lemming watch` and reports show of an organisation: JSON values, from its files alone.

A view is a function of a module of its name in this folder, `(org, **parameters) -> dict`. It looks and
writes nothing, and knows no web. Texts of agents stand in it as they are: who shows them sees to it that they
stay texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.org.organisation import OrgPath

VIEWS = (
    "header", "waiting", "agents", "feed", "ticks", "tick", "why", "map", "money", "agent", "past",
    "findings", "settings",
)  # fmt: skip
"""All views by their names, which are those of their modules, but for a few."""
_BESIDE = {"ticks": "tick", "settings": "agent"}

_NUMBER = re.compile(r"-?[0-9]{1,12}", re.ASCII)


def view(org: OrgPath, name: str, parameters: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what a view shows; `parameters` are texts, as an address has them.

    Raises `UsageError` for a view or a parameter that there is not, and what the view raises.
    """
    shown = function_of(name)
    return shown(org, **_arguments(name, shown, parameters or {}))


def function_of(name: str) -> Callable[..., dict[str, Any]]:
    """Return the function of a view; raise `UsageError` for a name that is none."""
    if name not in VIEWS:
        raise UsageError(
            f'there is no view "{name[:80]}"', hint=nearest(name[:80], VIEWS) or ", ".join(VIEWS)
        )
    module = import_module(f"lemming.facts.views.{_BESIDE.get(name, name)}")
    found: Callable[..., dict[str, Any]] = getattr(module, name)
    return found


def _arguments(name: str, shown: Callable[..., Any], parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the texts of an address as the values that the view takes."""
    known = {it.name: it for it in signature(shown).parameters.values() if it.kind is Parameter.KEYWORD_ONLY}
    if unknown := [key for key in parameters if key not in known]:
        hint = nearest(unknown[0][:80], list(known)) or f"parameters: {', '.join(known) or 'none'}"
        raise UsageError(f'{name} has no parameter "{unknown[0][:80]}"', hint=hint)
    for it in known.values():
        if it.default is Parameter.empty and it.name not in parameters:
            raise UsageError(f"{name} needs {it.name}", hint=f"{it.name}=…")
    return {key: _value(key, known[key], text) for key, text in parameters.items()}


def _value(key: str, parameter: Parameter, text: str) -> str | int:
    if "\0" in text:
        raise UsageError(f"{key}: that is no text: it has a NUL in it")
    if not str(parameter.annotation).startswith("int"):
        return text
    if not _NUMBER.fullmatch(text):
        raise UsageError(f'{key}: "{text[:80]}" is no number', hint=f"{key}=10")
    return int(text)
