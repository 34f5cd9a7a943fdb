"""The table of capabilities: where each lives, and which keys of people's files are its own.

A capability is a folder, and the folder can be deleted: nothing imports one by name but this table, and it is
loaded where an organisation uses it. What it may take part in: `lemming.turn.seams`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from lemming.errors import ConfigError
from lemming.plugins.registry import load_installed_plugins, not_imported, offered, register

Load = Callable[[], Any]
REQUESTS = "requests"
NO_KEYS: Mapping[str, str] = {}
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}\Z")


class Listed(NamedTuple):
    """A line of the table. `resume`: the keys of a resume that it reads, each with the class that has it as a
    field; `org`: likewise of `config/org.json`.

    `place`, and each class, are a module and a name in it. `gates`: the words of a gate's `then` that it
    answers, `turn` the keys of a resume's `turn` that are its own, `commands` those that need it.
    `requests`: a path in the payload of a request; who writes there makes a request of its. `needs`: others
    that have to be here too. `begins`: it may ask, or show, before a turn's own first question. `after`:
    those that are asked before it, at every moment at which both take part. `used` says of an agent and the
    settings whether it takes part, beside what keys and words say; `is_asked_for` of who asked, and the
    payload of the request; `takes_part` of what a turn starts from, where it gives nothing of its own.

    `tools` are those that it brings, `source` is where further ones come from (a `ToolSource`), and
    `of_functions` what makes one of a function. `brings` says of the settings and the resumes whether there
    may be any of the source's; names of a server's begin with `prefix`. `carrier` carries messages in and out
    between ticks. `reaches` says of all settings and the agents whether it may do something outside the
    organisation's folder.
    """

    name: str
    place: str
    resume: Mapping[str, str] = NO_KEYS
    org: Mapping[str, str] = NO_KEYS
    gates: frozenset[str] = frozenset()
    turn: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    begins: bool = False
    after: tuple[str, ...] = ()
    used: Callable[[Any, Any], Any] | None = None
    is_asked_for: Callable[[Any, Mapping[str, Any]], Any] | None = None
    takes_part: Callable[[Any], Any] | None = None
    tools: Mapping[str, str] = NO_KEYS
    source: str = ""
    prefix: str = ""
    brings: Callable[[Any, Any], Any] | None = None
    of_functions: str = ""
    carrier: str = ""
    reaches: Callable[[Any, Any], Any] | None = None

    @property
    def folder(self) -> str:
        """The package that holds all of it."""
        return self.place.rpartition(":")[0].rpartition(".")[0]


def _asks_persons(agent: Any, settings: Any) -> bool:
    rules = (rule for it in (settings, agent) for rule in it.further.get("gates", ()))
    return any(rule.then == "ask" for rule in rules)


def names_servers(agent: Any) -> bool:
    """Return whether an agent's resume names tools that servers have."""
    return any(tool.startswith(PREFIXES) for tool in agent.permissions.tools)


SHIPPED: Mapping[str, Listed] = {
    it.name: it
    for it in (
        Listed(
            "approvals",
            "lemming.capabilities.approvals.capability:Approvals",
            gates=frozenset({"ask"}),
            turn=("max_approvals",),
            commands=("approvals", "approve", "deny"),
            requests=("call", "gate"),
            needs=("gates",),
            begins=True,
            used=_asks_persons,
        ),
        Listed(
            "gates",
            "lemming.capabilities.gates.capability:Gates",
            resume={"gates": "lemming.capabilities.gates.keys:OfResume"},
            org={"gates": "lemming.capabilities.gates.keys:OfOrg"},
            commands=("gates",),
        ),
        Listed(
            "mcp",
            "lemming.capabilities.mcp.capability:Mcp",
            commands=("mcp",),
            source="lemming.capabilities.mcp.offered:McpTools",
            prefix="mcp.",
            brings=lambda _, survey: survey.names_servers,
            reaches=lambda _, agents: any(map(names_servers, agents)),
        ),
        Listed(
            "windows",
            "lemming.capabilities.windows.capability:Windows",
            resume={"memory": "lemming.capabilities.windows.settings:OfResume"},
            begins=True,
            # a turn that only makes calls sums up nothing; a strategy may look at what is not shown
            after=("approvals", "strategies"),
        ),
    )
}
"""Those that are a folder each, which may be absent."""


def _has_judges(asker: Any, payload: Mapping[str, Any]) -> bool:
    return "verify" in payload or (asker.team is not None and any(it.verify for it in asker.team.members))


def _may_ask(inputs: Any) -> Any:
    """Return whether a turn is asked for something, was, or may ask: its team, or persons for a part."""
    is_begun = inputs.task or inputs.open_requests or inputs.state.requests
    return is_begun or inputs.agent.team or inputs.given


WITHIN: Mapping[str, Listed] = {
    it.name: it
    for it in (
        Listed(
            "judges",
            "lemming.capabilities.judges.capability:Judges",
            used=lambda agent, _: agent.verify,
            is_asked_for=_has_judges,
        ),
        Listed(
            "forms",
            "lemming.capabilities.answers.capability:Forms",
            takes_part=lambda inputs: inputs.wanted or inputs.agent.output,
        ),
        Listed(REQUESTS, "lemming.capabilities.requests.capability:Requests", takes_part=_may_ask),
        Listed(
            "strategies",
            "lemming.capabilities.strategies.capability:Strategies",
            used=lambda agent, _: agent.turn.strategy,
        ),
        Listed(
            "trust",
            "lemming.capabilities.trust.capability:TrustOfTurns",
            used=lambda _, settings: settings.trust is not None,
        ),
        Listed(
            "channels",
            "lemming.capabilities.channels.capability:ChannelsInUse",
            commands=("channels",),
            carrier="lemming.capabilities.channels.between:Channels",
            reaches=lambda config, _: config.has_channels,
        ),
        Listed(
            "toolbox",
            "lemming.capabilities.toolbox.capability:Toolbox",
            tools={
                "file_read": "lemming.capabilities.toolbox.files:FileRead",
                "file_write": "lemming.capabilities.toolbox.files:FileWrite",
                "file_list": "lemming.capabilities.toolbox.files:FileList",
                "file_edit": "lemming.capabilities.toolbox.edits:FileEdit",
                "file_append": "lemming.capabilities.toolbox.edits:FileAppend",
                "file_move": "lemming.capabilities.toolbox.edits:FileMove",
                "file_search": "lemming.capabilities.toolbox.file_search:FileSearch",
                "search": "lemming.capabilities.toolbox.search:Search",
                "shell": "lemming.capabilities.toolbox.shell:Shell",
                "memory_read": "lemming.capabilities.toolbox.memories:MemoryRead",
                "memory_write": "lemming.capabilities.toolbox.memories:MemoryWrite",
                "store_read": "lemming.capabilities.toolbox.store:StoreRead",
                "store_write": "lemming.capabilities.toolbox.store:StoreWrite",
                "attach": "lemming.capabilities.toolbox.attachments:Attach",
                "read_document": "lemming.capabilities.toolbox.documents:ReadDocument",
                "http_get": "lemming.capabilities.toolbox.web:HttpGet",
                "http_post": "lemming.capabilities.toolbox.web:HttpPost",
                "remind_me": "lemming.capabilities.toolbox.reminders:RemindMe",
                "keep_job": "lemming.capabilities.toolbox.jobs:KeepJob",
                "create_agent": "lemming.capabilities.toolbox.staff:CreateAgent",
                "plan_propose": "lemming.capabilities.toolbox.propose:PlanPropose",
                "list_agents": "lemming.capabilities.toolbox.staff:ListAgents",
                "skill_read": "lemming.capabilities.toolbox.skills:SkillRead",
            },
            source="lemming.capabilities.toolbox.functions.files:ToolFiles",
            brings=lambda settings, _: settings.tool_files,
            reaches=lambda config, _: config.org.tool_files,
            of_functions="lemming.capabilities.toolbox.functions.tool:FunctionTool",
        ),
    )
}
"""Those that take part in turns as the others do, and whose files and keys are still the engine's own."""
LISTED = {**SHIPPED, **WITHIN}
SOURCES = {name: it for name, it in LISTED.items() if it.source}
"""Those from which an organisation may have further tools."""
PREFIXES = tuple(it.prefix for it in SOURCES.values() if it.prefix)
"""How the names of those tools begin of which only a server knows which there are."""
TAKING_PART = {name: it.takes_part for name, it in LISTED.items() if it.takes_part}
ASKED_FOR = {name: it.is_asked_for for name, it in LISTED.items() if it.is_asked_for}

_REQUESTS = tuple((it.name, it.requests) for it in SHIPPED.values() if it.requests)


def register_capability(kind: Any) -> Any:
    """Make a class the capability that it names, for modules that are plugins. Usable as a decorator.

    Raises `ValueError` for the name of one that ships, and for what is no name or has settings of no shape.
    """
    made = kind()
    if not _NAME.match(made.name):
        raise ValueError(f'"{made.name}" is no name of a capability: it is of a-z, 0-9, - and _')
    if wrong := [it for it in (made.settings, made.resume_settings) if not dataclasses.is_dataclass(it)]:
        raise ValueError(f"the settings of {made.name} are a dataclass, and {wrong[0]!r} is none")
    shipped = {name: listed.place for name, listed in LISTED.items()}
    register("capability", made.name, made, defined_by=kind, shipped=shipped)
    return kind


def capability(name: str, plugins: Iterable[str] | None = None) -> Any:
    """Return a capability by its name, made once; raise `ConfigError` where nobody brings it.

    `plugins`: those that the organisation names; None: any of the process.
    """
    if name in LISTED:
        return _shipped(name)
    if (found := brought(plugins).get(name)) is not None:
        return found
    if is_unknown_here(name, plugins):
        raise ConfigError(f'"{name}" is for a module of plugins to say, and a look imports none')
    raise ConfigError(
        f'no capability "{name}" is installed',
        hint="install what brings it, or name its module in plugins of config/org.json",
    )


def capabilities_here() -> Iterator[Any]:
    """Yield all capabilities that ship and are here, for what is done seldom, whoever uses them."""
    yield from (capability(name) for name in LISTED if not why_missing(name))


def is_unknown_here(name: str, plugins: Iterable[str] | None) -> bool:
    """Return whether a capability may be that of a module of the organisation's own that is not imported."""
    return name not in LISTED and name not in brought(plugins) and bool(not_imported([*(plugins or ())]))


def capability_here(name: str, plugins: Iterable[str] | None = None) -> Any:
    """Return a capability by its name; None where nobody brings it. For those who only look."""
    try:
        return capability(name, plugins)
    except ConfigError:
        return None


def may_begin(name: str) -> bool:
    """Return whether a capability may ask, or show, before a turn's own first question."""
    return name not in LISTED or LISTED[name].begins


def made_by(payload: Mapping[str, Any]) -> str:
    """Return the capability whose request a payload is; empty where it is somebody's own.

    >>> made_by({"text": "pay?", "call": {"gate": "config/org.json#/gates/0"}}), made_by({"call": "me"})
    ('approvals', '')
    """
    for name, path in _REQUESTS:
        value: Any = payload
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            return name
    return ""


def missing_for_gate(then: str) -> str:
    """Return in words what is missing that a gate's `then` needs; empty where it is here."""
    return next((why_missing(it.name) for it in SHIPPED.values() if then in it.gates), "")


def missing_for_command(command: str) -> str:
    """Return in words what is missing that a command needs; empty where it is here."""
    return next((why_missing(it.name) for it in SHIPPED.values() if command in it.commands), "")


def missing_for_tool(tool: str) -> str:
    """Return in words what is missing that a tool of this name needs; empty where nothing is."""
    return next((why_missing(it.name) for it in LISTED.values() if _is_tool_of(it, tool)), "")


def _is_tool_of(listed: Listed, tool: str) -> bool:
    return tool in listed.tools or bool(listed.prefix and tool.startswith(listed.prefix))


def tools_here() -> dict[str, str]:
    """Return the tools that capabilities bring which are here, by name, each with its place."""
    here = (it for it in LISTED.values() if it.tools and not why_missing(it.name))
    return {tool: place for it in here for tool, place in it.tools.items()}


def source_of(tool: str) -> str:
    """Return the capability whose servers would have a tool of this name or pattern; empty for none."""
    return next((it.name for it in SOURCES.values() if it.prefix and tool.startswith(it.prefix)), "")


def source_class(name: str) -> Any:
    """Return the class of the further tools of a capability that ships; raise `ConfigError` without it."""
    return _class_of(name, LISTED[name].source)


def carrier_classes() -> list[Any]:
    """Return the classes of those who carry messages in and out, as far as they are here."""
    here = (it for it in LISTED.values() if it.carrier and not why_missing(it.name))
    return [_class_of(it.name, it.carrier) for it in here]


def tool_of_function(function: Any) -> Any:
    """Return a function with `@tool` as a tool; raise `ConfigError` where nobody here makes one of it."""
    name = next(it.name for it in LISTED.values() if it.of_functions)
    return _class_of(name, LISTED[name].of_functions)(function)


def missing_for_turn() -> Mapping[str, str]:
    """Return the keys of a resume's `turn` that nobody here reads, and what is missing."""
    return {key: why for it in SHIPPED.values() if (why := why_missing(it.name)) for key in it.turn}


@cache
def _shipped(name: str) -> Any:
    why = why_missing(name)
    if why:
        raise ConfigError(why, hint="install lemming-engine again")
    return _loaded(LISTED[name].place)()


def brought(plugins: Iterable[str] | None) -> Mapping[str, Any]:
    """Return the capabilities that do not ship, by name: of these plugins, and of installed packages.

    It is the very same value as long as nothing else is registered. Raises as `load_installed_plugins`.
    """
    load_installed_plugins()
    return offered("capability", None if plugins is None else tuple(plugins), _as_registered)


def _as_registered(registered: Mapping[str, Any]) -> Mapping[str, Any]:
    return registered


@cache
def why_missing(name: str) -> str:
    """Return in words that a capability of ours is not here, or one that it needs; empty where it is."""
    folder = LISTED[name].folder
    found = find_spec(folder)
    if found is None or found.origin is None:  # an empty folder has none
        return f'the capability "{name}" is not installed: {folder} is missing'
    return next(filter(None, map(why_missing, LISTED[name].needs)), "")


def in_order(names: Iterable[str], plugins: Iterable[str] | None = None) -> list[str]:
    """Return capabilities so that each comes after those it names in `after`; requests first, others by name.

    Raises `ConfigError` for one that is not here, and for those that come after each other in a circle.

    >>> in_order(["windows", "approvals"])
    ['approvals', 'windows']
    """
    wanted, ordered, under_way = set(names), dict[str, None](), list[str]()

    def visit(name: str) -> None:
        if name in under_way:
            circle = ", ".join(f'"{it}"' for it in under_way)
            raise ConfigError(f"capabilities that come after each other in a circle: {circle}")
        if name in wanted and name not in ordered:
            under_way.append(name)
            for before in LISTED[name].after if name in LISTED else capability(name, plugins).after:
                visit(before)
            under_way.pop()
            ordered[name] = None

    for name in sorted(wanted, key=lambda it: (it != REQUESTS, it)):  # of what is given up, nothing is done
        visit(name)
    return [*ordered]


def resume_keys() -> Mapping[str, Load]:
    """Return the keys of a resume that capabilities read, each with what loads the class that has it.

    That raises `ConfigError` where the capability is not here.
    """
    return {
        key: partial(_class_of, it.name, place) for it in SHIPPED.values() for key, place in it.resume.items()
    }


def org_keys() -> Mapping[str, Load]:
    """Return the keys of `config/org.json` that capabilities read, likewise."""
    return {
        key: partial(_class_of, it.name, place) for it in SHIPPED.values() for key, place in it.org.items()
    }


def of_resume_key(key: str) -> str:
    """Return the capability that reads a key of a resume; raise `LookupError` for none."""
    return next(it.name for it in SHIPPED.values() if key in it.resume)


def _class_of(name: str, place: str) -> Any:
    if why := why_missing(name):
        raise ConfigError(why, hint="install lemming-engine again, or take the key out")
    return _loaded(place)


def _loaded(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
