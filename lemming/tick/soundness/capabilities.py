"""Blocks of capabilities that do not ship: somebody brings each, and its class says what may stand there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import GenericAlias
from typing import Any, Literal

from lemming.base.errors import ConfigError
from lemming.base.jsontext import escaped, nearest
from lemming.files.documents import problems_of, value_of
from lemming.files.unknown import unknown_keys
from lemming.plugins.capabilities import in_order
from lemming.plugins.registry import not_imported
from lemming.plugins.shipped import LISTED
from lemming.tick.soundness.inventory import Fault, Inventory


def wrong_with_blocks(
    blocks: Mapping[str, Any], kind: Literal["settings", "resume_settings"], known: Inventory
) -> Iterator[Fault]:
    """Yield what nobody here understands; where a plugin is not imported, a name may be that of its own."""
    plugins = known.config.org.plugins
    for name, plain in blocks.items():
        at = f"/capabilities/{escaped(name)}"
        if name in LISTED:
            keys = ", ".join(f'"{key}"' for key in LISTED[name].resume)
            hint = f"its keys in a resume: {keys}" if keys else "it has keys of its own"
            yield Fault(at, f'"{name}" ships, and has no block here', hint)
        elif name in known.capabilities:
            yield from _misfits(name, getattr(known.capabilities[name], kind), plain)
        elif not not_imported(plugins):
            hint = "install what brings it, or name its module in plugins of config/org.json"
            meant = nearest(name, [*known.capabilities])
            yield Fault(at, f'no capability "{name}" is installed', meant or hint)


def _misfits(name: str, kind: type[Any], plain: dict[str, Any]) -> Iterator[Fault]:
    at = f"/capabilities/{name}"
    for unknown in unknown_keys({name: plain}, GenericAlias(dict, (str, kind))):
        yield Fault(f"/capabilities{unknown.pointer}", unknown.message, unknown.hint)
    try:
        value_of(kind, plain)
    except TypeError as error:  # somebody's own class
        yield Fault(at, f"its settings cannot come from JSON: {error}", "that is for who wrote it to mend")
    except ValueError:
        for problem in problems_of(kind, plain):
            yield Fault(f"{at}{problem.pointer}", problem.message, problem.hint)


def wrong_with_order(known: Inventory) -> Iterator[Fault]:
    """Yield those that come after each other in a circle."""
    agents = known.survey.agents.values()
    named = {*known.config.org.capabilities, *(name for agent in agents for name in agent.capabilities)}
    try:
        in_order(named & known.capabilities.keys(), known.config.org.plugins)
    except ConfigError as error:
        yield Fault("/capabilities", error.message, "take one of them out")
