"""Views of an organisation for the page, `lemming status --watch` and reports: JSON values, built from its files only.

A view is a function `(org, **parameters) -> dict` in a module of this folder. Views write nothing and do not
depend on the web. Texts of agents are returned unchanged: the display must treat them as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.read_model.read_model import ReadModel

VIEWS = (
    "header", "waiting", "agents", "feed", "ticks", "tick", "why", "map", "money", "agent", "past",
    "findings", "settings", "screen",
)  # fmt: skip
"""All views by name; most are named after their module."""
_MODULE_EXCEPTIONS = {"ticks": "tick", "settings": "agent", "past": "changes"}

_NUMBER = re.compile(r"-?[0-9]{1,12}", re.ASCII)


def build_view(org: OrgPath, name: str, parameters: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a view as JSON values; `parameters` are strings. Raises `UsageError` for unknown ones, and its errors."""
    function, org = find_view_function(name), Organisation.from_path(org)
    with org.get_cache(ReadModel).hold():
        return function(org, **_parse_arguments(name, function, parameters or {}))


def find_view_function(name: str) -> Callable[..., dict[str, Any]]:
    """Return the function of a view; raise `UsageError` for an unknown name."""
    if name not in VIEWS:
        raise UsageError(f'view "{name[:80]}" does not exist', hint=did_you_mean(name[:80], VIEWS) or ", ".join(VIEWS))
    module = import_module(f"lemming.queries.views.{_MODULE_EXCEPTIONS.get(name, name)}_view")
    function: Callable[..., dict[str, Any]] = getattr(module, f"build_{name}_view")
    return function


def _parse_arguments(name: str, function: Callable[..., Any], parameters: Mapping[str, str]) -> dict[str, Any]:
    """Convert the strings of an address to the arguments of the view."""
    parameters_of_function = signature(function).parameters.values()
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters_of_function):
        return dict(parameters)  # a declared screen parses the parameters of its query
    parameters_by_name = {
        parameter.name: parameter for parameter in parameters_of_function if parameter.kind is Parameter.KEYWORD_ONLY
    }
    if unknown := [key for key in parameters if key not in parameters_by_name]:
        hint = (
            did_you_mean(unknown[0][:80], list(parameters_by_name))
            or f"use the parameters: {', '.join(parameters_by_name) or 'none'}"
        )
        raise UsageError(f'{name} has no parameter "{unknown[0][:80]}"', hint=hint)
    for parameter in parameters_by_name.values():
        if parameter.default is Parameter.empty and parameter.name not in parameters:
            raise UsageError(f"{name} requires {parameter.name}", hint=f"{parameter.name}=…")
    return {key: _parse_value(key, parameters_by_name[key], text) for key, text in parameters.items()}


def _parse_value(key: str, parameter: Parameter, text: str) -> str | int:
    if "\0" in text:
        raise UsageError(f"{key} must be text without NUL")
    if not str(parameter.annotation).startswith("int"):
        return text
    if not _NUMBER.fullmatch(text):
        raise UsageError(f'{key} must be a number, got "{text[:80]}"', hint=f"{key}=10")
    return int(text)
