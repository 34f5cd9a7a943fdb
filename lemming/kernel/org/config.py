"""The organisation's settings: `config/org.json`, `config/models.json`, `config/credits.json`.

A file that never was means the defaults below; one that is gone is unreadable (`org.missing_settings`).
A file with a wrong value, or a key that is none, is a `ConfigError` that stops the engine, because it
concerns every agent. Formats: docs/formats.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from operator import is_
from typing import Any, ClassVar, Literal

from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, Problem, UnknownModel
from lemming.kernel.base.jsontext import DEFAULT_LIMIT_BYTES, nearest, parse
from lemming.kernel.base.redaction.secrets import name_variables
from lemming.kernel.base.times.zones import why_no_zone
from lemming.kernel.files.documents import NOT_JSON, Document, read_text, unreadable, value_of
from lemming.kernel.files.fitting import INSIDE, about
from lemming.kernel.org.blocks import AgentDefaults, FindingSettings, LoopSettings, Quota
from lemming.kernel.org.missing_settings import FilesInUse, missing_file
from lemming.kernel.org.models import DEFAULT_MODELS, ModelEntry, with_place_of_option
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent, AgentCredits, Allocation
from lemming.kernel.plugins.capabilities import missing_for_executor, org_keys
from lemming.kernel.plugins.shipped import EXECUTORS
from lemming.kernel.providers import is_channel

ORG_FILE = paths.ORG_FILE
MODELS_FILE = "config/models.json"
CREDITS_FILE = "config/credits.json"
DEFAULT_PARALLEL = 8
_SCHEDULER = re.compile(r"(tcp|tls|ws|wss)://[^/\s]+\Z")


@dataclass(frozen=True, kw_only=True)
class Org:
    """Settings that hold for every agent."""

    format: int = field(default=1, metadata=about("Version of the formats: `lemming upgrade`.", ge=1))
    visibility: Literal["order", "tick"] = field(
        default="order",
        metadata=about(
            '"order": a turn sees what agents before it wrote in the same tick. '
            '"tick": entries written in a tick are seen from the next tick on.'
        ),
    )
    durability: Literal["turn", "tick", "off"] = field(
        default="turn",
        metadata=about(
            'When bytes are forced to the disk: after each answer, once a tick, or never. "off" '
            "survives a killed process, not power loss."
        ),
    )
    max_parallel: int | None = field(
        default=None,
        metadata=about(
            "Turns of a tick, and calls of a reply, that may run at once: they write the same one by one. "
            "null: 8, and as many turns of each model as its `max_concurrent` says.",
            ge=1,
            le=10_000,
        ),
    )
    executor: Literal["threads", "serial", "dask"] = field(
        default="threads",
        metadata=about(
            'How turns are taken. "threads": each on a thread of its own. "serial": one after '
            'another. "dask": on threads, and the calls to models are made by a cluster\'s workers.'
        ),
    )
    executor_address: str = field(
        default="",
        metadata=about('Where the scheduler of the cluster listens, for "dask": tcp://host:8786.'),
    )
    tick_interval_s: float = field(
        default=60.0, metadata=about("Pause between ticks of run-forever, from start to start.", ge=0)
    )
    timezone: str | None = field(
        default=None, metadata=about("Time zone of schedules that name none, such as Europe/Berlin.")
    )
    ticks_in_a_row: int = field(
        default=100, metadata=about("Ticks that may follow each other at once: --eager, `lemming ask`.", ge=1)
    )
    retention_ticks: int = field(
        default=1000,
        metadata=about("Outbox entries older than this many ticks are removed; 0 keeps all.", ge=0),
    )
    plain_journals: int = field(
        default=200,
        metadata=about(
            "Journals of this many ticks stay files of their own; older ones are packed, a "
            "hundred ticks to a file, in logs/ticks/sealed.",
            ge=0,
        ),
    )
    kept_journals: int | None = field(
        default=None,
        metadata=about(
            "Packed journals older than this many ticks are removed, a hundred ticks at a time: what they "
            "told is gone; null keeps all.",
            ge=0,
        ),
    )
    inbox_limit: int = field(default=50, metadata=about("Entries a prompt may show.", ge=1, le=1000))
    inbox_chars: int = field(default=24_000, metadata=about("Characters of entries a prompt may show.", ge=1))
    memory_chars: int = field(default=16_000, metadata=about("Characters of memory a prompt may show.", ge=0))
    max_attempts: int = field(
        default=3,
        metadata=about(
            "A turn in which the engine died this often without getting further is given up.", ge=1
        ),
    )
    history: Literal["off", "git"] = field(
        default="off",
        metadata=about('"git": every tick that changed something is a commit in .lemming/history.git.'),
    )
    create_agent_allowed: list[str] = field(
        default_factory=lambda: ["hr"], metadata=about("Agents that may call create_agent.")
    )
    create_agent_models: list[str] = field(
        default_factory=list,
        metadata=about("Model keys that a new agent may have, beside the key of who creates it."),
    )
    create_agent_per_turn: int = field(
        default=4, metadata=about("Agents that one turn may create.", ge=0, le=64)
    )
    create_agent_max_agents: int = field(
        default=100, metadata=about("Once there are so many agents, create_agent makes no more.", ge=0)
    )
    create_agent_max_depth: int | None = field(
        default=None,
        metadata=about(
            "So many agents may have created one another: 1 lets none that was created create others; null: "
            "no limit but that create_agent_allowed must name each.",
            ge=0,
        ),
    )
    plugins: list[str] = field(
        default_factory=list,
        metadata=about("Python modules imported at start; they register tools and providers."),
    )
    tool_files: list[str] = field(
        default_factory=list,
        metadata=about(
            "Files whose functions with @tool are tools: tools/*.py for all agents, agents/*/tools/*.py for "
            "one each. Their code is run."
        ),
    )
    tool_max_memory_bytes: int = field(
        default=1 << 30,
        metadata=about("Memory that a process which runs functions with @tool may have.", ge=128 << 20),
    )
    tool_timeout_s: float = field(
        default=120.0,
        metadata=about(
            "Longest time a call of a tool of your own may take; a class may say another.",
            gt=0,
            le=86_400,
        ),
    )
    purpose: str = field(
        default="",
        metadata=about("What the organisation is for, in one sentence: it stands in the head of the page."),
    )
    on_failure: list[str] = field(
        default_factory=list,
        metadata=about(
            "A program and its arguments, run once when an agent, or the engine, begins to fail: facts as "
            "JSON on standard input and in LEMMING_... variables; 30 s at most."
        ),
    )
    on_waiting: list[str] = field(
        default_factory=list,
        metadata=about("The same, run once when something begins to wait for a person."),
    )
    paused: str = field(
        default="",
        metadata=about(
            "Any text, such as since when, by whom and why: nobody takes a turn, ticks are counted. "
            "`lemming pause`."
        ),
    )
    capabilities: dict[str, dict[str, Any]] = field(
        default_factory=dict,
        metadata=about(
            "What capabilities that do not ship are told for all, by their names: docs/capabilities.md."
        ),
    )
    defaults: AgentDefaults = field(default_factory=AgentDefaults)
    quota: Quota = field(default_factory=Quota)
    loops: LoopSettings = field(default_factory=LoopSettings)
    findings: FindingSettings = field(default_factory=FindingSettings)
    further: dict[str, Any] = field(default_factory=dict, metadata=INSIDE)
    """The values of keys that capabilities read, by key: those that the file has."""

    FURTHER: ClassVar[Mapping[str, Callable[[], Any]]] = org_keys()

    @property
    def parallel(self) -> int:
        """How many turns, and calls of a reply, may run at once, but for what a model's line allows."""
        return self.max_parallel or DEFAULT_PARALLEL


@dataclass(frozen=True)
class Config:
    """All settings, read once; `warnings` are for the person, not for the engine."""

    org: Org
    models: dict[str, ModelEntry]
    allocations: dict[str, Allocation]
    warnings: tuple[Problem, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)  # SHA-256, by file: those that say something

    @cached_property
    def has_channels(self) -> bool:
        """Whether a model key stands for a channel."""
        return bool(self.channel_keys)

    @cached_property
    def channel_keys(self) -> frozenset[str]:
        """The model keys that stand for channels."""
        models, plugins = self.models, self.org.plugins
        return frozenset(key for key, entry in models.items() if is_channel(entry.provider, plugins))

    def channels_among(self, agents: Mapping[str, Agent]) -> frozenset[str]:
        """Return those of some agents that channels speak for."""
        return frozenset(name for name, agent in agents.items() if agent.model.key in self.channel_keys)

    def model(self, key: str) -> ModelEntry:
        """Return the entry of a model key; raise `UnknownModel` with the nearest key."""
        if key in self.models:
            return self.models[key]
        hint = nearest(key, list(self.models)) or f"keys there: {', '.join(sorted(self.models))}"
        raise UnknownModel(f'no model key "{key}"', where=MODELS_FILE, hint=hint)


KINDS: dict[str, Any] = {
    ORG_FILE: Org,
    MODELS_FILE: dict[str, ModelEntry],
    CREDITS_FILE: dict[str, Allocation],
}
"""What each settings file holds."""


def load_config(base_path: str | os.PathLike[str]) -> Config:
    """Return the organisation's settings; raise `ConfigError` with every problem of all three files.

    When no file of an `Organisation` says anything new, the result is the same value as before. While an
    engine runs with it, what cannot be read changes nothing: `hold_settings`.
    """
    org = Organisation.at(base_path)
    latest = org.own(_Latest)
    try:
        return read_config(org)
    except ConfigError:
        if latest.config is None or not latest.is_held:
            raise
        return latest.config


def read_config(org: Organisation) -> Config:
    """Return the settings as `load_config` does. Raises `ConfigError` also while an engine holds others."""
    found, latest = [_read(org, file) for file in KINDS], org.own(_Latest)
    # by identity: a file that has not changed gives the same value, and comparing takes longer
    if latest.config is None or not all(map(is_, latest.found, found)):
        latest.config, latest.found = _config_of(found), found
        org.own(FilesInUse).names = latest.config.digests.keys()
    return latest.config


def hold_settings(org: Organisation, *, is_held: bool) -> None:
    """Have `load_config` return the last settings that could be read, whatever becomes of the files.

    An engine that runs says what is wrong with a file, once; nobody who works for it may stumble over that.
    """
    org.own(_Latest).is_held = is_held


def config_with(base_path: str | os.PathLike[str], file: str, raw: bytes) -> Config:
    """Return the settings as they would be if these bytes stood in one of their files.

    Raises `ConfigError` with every problem of all three.
    """
    org = Organisation.at(base_path)
    return _config_of([_typed(file, raw) if it == file else _read(org, it) for it in KINDS])


def _typed(file: str, raw: bytes) -> _Found:
    try:
        return _decode(file, raw)
    except ConfigError as error:
        return error


class _Latest:
    """The settings of an organisation as they were last, and what the files said."""

    def __init__(self, _: Organisation) -> None:
        self.config: Config | None = None
        self.found: list[_Found] = []
        self.is_held = False


_Found = Document[Any] | ConfigError | None
"""What a settings file says, or what is wrong with it; None: there is no such file."""


def _read(org: Organisation, file: str) -> _Found:
    try:
        reading = org.files.reading(file, partial(_decode, file), limit_bytes=DEFAULT_LIMIT_BYTES)
    except FileNotFoundError:
        return missing_file(file) if org.own(FilesInUse).has(file) else None
    except OSError as error:
        return unreadable(file, error)
    return reading.outcome


def _decode(file: str, raw: bytes) -> Document[Any]:
    try:
        return read_text(raw, file, KINDS[file], limit_bytes=DEFAULT_LIMIT_BYTES, unknown_keys_are="none")
    except ConfigError as error:
        if file != MODELS_FILE or error.problems[0].code == NOT_JSON:  # then there are no lines to look at
            raise
        lines = parse(raw, allow_bom=True)
        problems = tuple(with_place_of_option(problem, lines) for problem in error.problems)
        raise ConfigError(str(problems[0]), problems=problems) from error


def _config_of(found: Sequence[_Found]) -> Config:
    documents = [document for document in found if isinstance(document, Document)]
    org, models, allocations = (each.value if isinstance(each, Document) else None for each in found)
    org = org or Org()
    mistakes = [problem for each in found if isinstance(each, ConfigError) for problem in each.problems]
    problems = (
        *mistakes,
        *_problems_of_cluster(org),
        *_problems_of_zone(org),
    )
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise ConfigError(str(errors[0]), problems=problems)
    # at once: whatever the options name is a secret before the first call could tell it
    for entry in (models or {}).values():
        name_variables(entry.options, MODELS_FILE)
    warnings = tuple(warning for document in documents for warning in document.warnings)
    digests = {
        file: sha256(each.raw).hexdigest()
        for file, each in zip(KINDS, found, strict=True)
        if isinstance(each, Document) and each.value not in (Org(), {})
    }
    return Config(org, {**DEFAULT_MODELS, **(models or {})}, allocations or {}, warnings, digests)


def _problems_of_cluster(settings: Org) -> Iterator[Problem]:
    hint = 'say where its scheduler listens: "executor_address": "tcp://host:8786"'
    if why := missing_for_executor(settings.executor):
        message = f'nobody here makes the calls of "executor": "{settings.executor}": {why}'
        yield Problem(message, ORG_FILE, pointer="/executor", hint="take the key out")
    elif settings.executor_address and not _SCHEDULER.match(settings.executor_address):
        yield Problem("no address of a scheduler", ORG_FILE, pointer="/executor_address", hint=hint)
    elif settings.executor in EXECUTORS and not settings.executor_address:
        yield Problem('"executor": "dask" needs a cluster', ORG_FILE, pointer="/executor_address", hint=hint)


def _problems_of_zone(settings: Org) -> Iterator[Problem]:
    if settings.timezone is not None and (why := why_no_zone(settings.timezone)):
        yield Problem(why[0], ORG_FILE, pointer="/timezone", hint=why[1])


def is_overridden(config: Config, agent_name: str, resume: AgentCredits) -> bool:
    """Return whether `config/credits.json` lets an agent spend another amount than its resume says."""
    return credits_of(config, agent_name, resume).max_credits != resume.max_credits


def credits_of(config: Config, agent_name: str, resume: AgentCredits) -> AgentCredits:
    """Return an agent's allocation: `config/credits.json` where it speaks, the resume where it does not."""
    override = config.allocations.get(agent_name)
    if override is None:
        return resume
    return AgentCredits(
        max_credits=resume.max_credits if override.max_credits is None else override.max_credits,
        soft_cap=resume.soft_cap if override.soft_cap is None else override.soft_cap,
    )


def block_of(name: str, kind: type[Any], blocks: Mapping[str, dict[str, Any]], file: str) -> Any:
    """Return the block of a capability as a value of its class; None: there is none. Raises `ConfigError`."""
    if name not in blocks:
        return None
    try:
        return value_of(kind, blocks[name])
    except (TypeError, ValueError) as error:
        raise ConfigError(f"capabilities.{name}: {error}", where=file) from error
