"""Views of an organisation for the page, `lemming status --watch` and reports: JSON values, built from its files only.

A view is a function `(org, **parameters) -> dict` in a module of this folder. Views write nothing and do not
depend on the web. Texts of agents are returned unchanged: the display must treat them as plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.queries.screens.screen import parse_texts
from lemming.read_model.read_model import ReadModel

VIEWS = (
    "header", "waiting", "agents", "feed", "ticks", "tick", "why", "map", "money", "agent", "past",
    "findings", "settings", "screen",
)  # fmt: skip
"""All views by name; most are named after their module."""
_MODULE_EXCEPTIONS = {"ticks": "tick", "settings": "agent", "past": "changes"}


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
    declared = signature(function, eval_str=True).parameters.values()
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in declared):
        return dict(parameters)  # a declared screen parses the parameters of its query
    accepted = {parameter.name: parameter for parameter in declared if parameter.kind is Parameter.KEYWORD_ONLY}
    values = parse_texts(name, {key: parameter.annotation for key, parameter in accepted.items()}, parameters)
    for key, parameter in accepted.items():
        if parameter.default is Parameter.empty and key not in values:
            raise UsageError(f"{name} requires {key}", hint=f"{key}=…")
    return values
