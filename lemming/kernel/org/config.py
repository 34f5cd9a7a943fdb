"""The organisation's settings: `config/org.json`, `config/models.json`, `config/credits.json`.

Missing files mean the defaults below, except for a file that existed before and is gone, which counts as
unreadable (`org.settings_files`). A file with a wrong value or an unknown key raises a `ConfigError` that
stops the engine, because it concerns every agent. Formats: docs/formats.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from operator import is_
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lemming.kernel.base import paths
from lemming.kernel.base.aliases import accept_old_fields, accept_old_names, old_names_of
from lemming.kernel.base.errors import ConfigError, Problem, UnknownModel
from lemming.kernel.base.jsontext import DEFAULT_LIMIT_BYTES, did_you_mean, parse
from lemming.kernel.base.redaction.secrets import register_secret_variables
from lemming.kernel.base.times import zone_error
from lemming.kernel.files.fast_decoder import INTERNAL_FIELD, make_field
from lemming.kernel.files.json_documents import NOT_JSON, Document, parse_document, unreadable_error
from lemming.kernel.org.model_entries import DEFAULT_MODELS, ModelEntry, add_option_hint
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import Agent, Allocation
from lemming.kernel.org.settings_blocks import AgentDefaults, FindingSettings, LoopSettings, Quota
from lemming.kernel.org.settings_files import FilesInUse, missing_file
from lemming.kernel.plugins.capability_loader import make_loaders, missing_owner
from lemming.kernel.plugins.capability_table import provided
from lemming.kernel.providers import is_channel, is_person

DEFAULT_PARALLEL = 8
_SCHEDULER = re.compile(r"(tcp|tls|ws|wss)://[^/\s]+\Z")


@accept_old_fields
@dataclass(frozen=True, kw_only=True)
class OrgSettings:
    """Settings for the whole organisation."""

    format: int = make_field(1, "Version of the formats: `lemming upgrade`.", ge=1)
    visibility: Literal["order", "tick"] = make_field(
        "order",
        '"order": a turn sees entries that earlier agents wrote in the same tick. "tick": entries '
        "are visible from the next tick on.",
    )
    durability: Literal["turn", "tick", "off"] = make_field(
        "turn",
        'When files are synced: after each answer ("turn"), once a tick ("tick"), or never ("off").'
        ' "off" survives a killed process, not a power cut.',
    )
    max_parallel: int | None = make_field(
        None,
        "Maximum number of parallel turns of a tick, and of parallel calls of a reply; the files "
        "are the same. null: 8, and as many turns of each model as its `max_concurrent`.",
        ge=1,
        le=10_000,
    )
    executor: Literal["threads", "serial", "dask"] = make_field(
        "threads",
        'How turns run. "threads": each on its own thread. "serial": one after another. "dask": on '
        "threads, with model calls made by a cluster's workers.",
    )
    executor_address: str = make_field("", 'Address of the cluster\'s scheduler, for "dask": tcp://host:8786.')
    tick_interval_s: float = make_field(60.0, "Seconds between the starts of two ticks of run-forever.", ge=0)
    timezone: str | None = make_field(None, "Time zone of schedules without one, such as Europe/Berlin.")
    ticks_in_a_row: int = make_field(100, "Maximum number of ticks without a pause: --burst, `lemming ask`.", ge=1)
    retention_ticks: int = make_field(1000, "Age in ticks at which outbox entries are removed; 0 keeps all.", ge=0)
    plain_journals: int = make_field(
        200,
        "Number of ticks whose journals stay plain files; older ones are packed, a hundred ticks to"
        " a file, in logs/ticks/sealed.",
        ge=0,
    )
    kept_journals: int | None = make_field(
        None, "Age in ticks at which packed journals are removed, a hundred ticks at a time; null keeps all.", ge=0
    )
    inbox_limit: int = make_field(50, "Maximum number of new entries in a prompt.", ge=1, le=1000)
    inbox_chars: int = make_field(24_000, "Maximum characters of entries in a prompt.", ge=1)
    memory_chars: int = make_field(16_000, "Maximum characters of memory in a prompt.", ge=0)
    max_attempts: int = make_field(3, "Number of crashes without progress after which a turn is abandoned.", ge=1)
    history: Literal["off", "git"] = make_field(
        "off", '"git": every tick with changes becomes a commit in .lemming/history.git.'
    )
    create_agent_allowed: list[str] = make_field(lambda: ["hr"], "Agents that may call create_agent.")
    create_agent_models: list[str] = make_field(list, "Model keys that a new agent may have, beside its creator's.")
    create_agent_per_turn: int = make_field(4, "Maximum number of agents that one turn creates.", ge=0, le=64)
    create_agent_max_agents: int = make_field(100, "Maximum number of agents; then create_agent refuses.", ge=0)
    create_agent_max_depth: int | None = make_field(
        None,
        "Maximum generations of created agents: with 1 a created agent cannot create others; null: "
        "no limit. create_agent_allowed must name each creator.",
        ge=0,
    )
    plugins: list[str] = make_field(list, "Python modules to import at the start; they register tools and providers.")
    tool_files: list[str] = make_field(
        list,
        "Files with @tool functions: tools/*.py for all agents, agents/*/tools/*.py for one agent. Their code is run.",
    )
    tool_max_memory_bytes: int = make_field(
        1 << 30, "Maximum memory of a process that runs @tool functions, in bytes.", ge=128 << 20
    )
    tool_timeout_s: float = make_field(
        120.0, "Timeout of a call of your own tools, in seconds; a class may set another.", gt=0, le=86_400
    )
    purpose: str = make_field("", "Purpose of the organisation, in one sentence, for the head of the dashboard.")
    on_failure: list[str] = make_field(
        list,
        "A program and its arguments, run once when an agent or the engine starts to fail. It gets "
        "the facts as JSON on standard input and in LEMMING_... variables, and 30 s.",
    )
    on_waiting: list[str] = make_field(list, "The same, run once when something starts to wait for a person.")
    paused: str = make_field(
        "", "Any text, such as the reason: no agent takes a turn, and ticks are counted. Set by `lemming pause`."
    )
    capabilities: dict[str, dict[str, Any]] = make_field(
        dict, "Settings of third-party capabilities, by name: docs/capabilities.md."
    )
    defaults: AgentDefaults = field(default_factory=AgentDefaults)
    quota: Quota = field(default_factory=Quota)
    loops: LoopSettings = field(default_factory=LoopSettings)
    findings: FindingSettings = field(default_factory=FindingSettings)
    extensions: dict[str, Any] = field(default_factory=dict, metadata=INTERNAL_FIELD)
    """Values of keys read by capabilities, by key, as far as the file has them."""

    FURTHER: ClassVar[Mapping[str, Callable[[], Any]]] = make_loaders("org")

    @property
    def parallel_limit(self) -> int:
        """Number of turns, and calls of a reply, that may run concurrently, apart from limits of a model's entry."""
        return self.max_parallel or DEFAULT_PARALLEL


@accept_old_names
@dataclass(frozen=True)
class Config:
    """All settings, read once; `warnings` are for people, not for the engine."""

    org: OrgSettings
    models: dict[str, ModelEntry]
    allocations: dict[str, Allocation]
    warnings: tuple[Problem, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)  # SHA-256 by file, without empty files

    @cached_property
    def has_channels(self) -> bool:
        """True if a model key belongs to a channel."""
        return bool(self.channel_keys)

    @cached_property
    def channel_keys(self) -> frozenset[str]:
        """The model keys of channels."""
        models, plugins = self.models, self.org.plugins
        return frozenset(key for key, entry in models.items() if is_channel(entry.provider, plugins))

    def find_channels(self, agents: Mapping[str, Agent]) -> frozenset[str]:
        """Return the names of the agents that are channels."""
        return frozenset(name for name, agent in agents.items() if agent.model.key in self.channel_keys)

    def is_person(self, agent: Agent) -> bool:
        """Return True if the agent's entries come from a person, so no model is called."""
        entry = self.models.get(agent.model.key)
        return entry is not None and is_person(entry.provider, self.org.plugins)

    def is_channel(self, agent: Agent) -> bool:
        """Return True if the agent's entries come through a channel, so no model is called."""
        return agent.model.key in self.channel_keys

    def is_program(self, agent: Agent) -> bool:
        """Return True if a program answers for the agent, with values instead of a prompt."""
        entry = self.models.get(agent.model.key)
        return entry is not None and entry.prompt == "values"

    def has_model_turns(self, agent: Agent) -> bool:
        """Return True if a model is called for the agent, instead of a person or a channel."""
        return not (self.is_person(agent) or self.is_channel(agent))

    def model(self, key: str) -> ModelEntry:
        """Return the entry of a model key. Raise `UnknownModel` with the nearest key."""
        if key in self.models:
            return self.models[key]
        hint = did_you_mean(key, list(self.models)) or f"keys there: {', '.join(sorted(self.models))}"
        raise UnknownModel(f'model key "{key}" does not exist', where=paths.MODELS_FILE, hint=hint)


FILE_TYPES: dict[str, Any] = {
    paths.ORG_FILE: OrgSettings,
    paths.MODELS_FILE: dict[str, ModelEntry],
    paths.CREDITS_FILE: dict[str, Allocation],
}
"""The type of each settings file."""


def load_config(base_path: str | os.PathLike[str]) -> Config:
    """Return the organisation's settings. Raise `ConfigError` with every problem of all three files.

    If no file of an `Organisation` has changed, the result is the same value as before. While an engine runs
    with these settings, an unreadable file changes nothing: see `hold_settings`.
    """
    org = Organisation.from_path(base_path)
    cache = org.get_cache(_ConfigCache)
    try:
        return reload_config(org)
    except ConfigError:
        if cache.config is None or not cache.is_held:
            raise
        return cache.config


def reload_config(org: Organisation) -> Config:
    """Return the settings like `load_config`. Raises `ConfigError` even while an engine holds earlier settings."""
    results, cache = [_load_file(org, file) for file in FILE_TYPES], org.get_cache(_ConfigCache)
    # by identity: a file that has not changed gives the same value, and comparing takes longer
    if cache.config is None or not all(map(is_, cache.results, results)):
        cache.config, cache.results = _build_config(results), results
        org.get_cache(FilesInUse).names = cache.config.digests.keys()
    return cache.config


def hold_settings(org: Organisation, *, is_held: bool) -> None:
    """Let `load_config` return the last readable settings, regardless of later changes to the files.

    A running engine reports an invalid file once; code that works for the engine must not fail because of the
    file.
    """
    org.get_cache(_ConfigCache).is_held = is_held


def preview_config(base_path: str | os.PathLike[str], file: str, raw: bytes) -> Config:
    """Return the settings as if a file had the given bytes. Raises `ConfigError` with the problems of all files."""
    org = Organisation.from_path(base_path)
    results = {settings_file: _load_file(org, settings_file) for settings_file in FILE_TYPES}
    try:
        results[file] = _decode(file, raw)
    except ConfigError as error:
        results[file] = error
    return _build_config([*results.values()])


class _ConfigCache:
    """The last settings of an organisation, and the parsed files."""

    def __init__(self, _: Organisation) -> None:
        self.config: Config | None = None
        self.results: list[_FileResult] = []
        self.is_held = False


_FileResult = Document[Any] | ConfigError | None
"""A parsed settings file, the error in the file, or None without the file."""


def _load_file(org: Organisation, file: str) -> _FileResult:
    try:
        reading = org.files.get_reading(file, partial(_decode, file), limit_bytes=DEFAULT_LIMIT_BYTES)
    except FileNotFoundError:
        return missing_file(file) if org.get_cache(FilesInUse).has(file) else None
    except OSError as error:
        return unreadable_error(file, error)
    return reading.outcome


def _decode(file: str, raw: bytes) -> Document[Any]:
    try:
        return parse_document(raw, file, FILE_TYPES[file], limit_bytes=DEFAULT_LIMIT_BYTES, unknown_key_policy="none")
    except ConfigError as error:
        if file != paths.MODELS_FILE or error.problems[0].code == NOT_JSON:  # then there are no lines to look at
            raise
        lines = parse(raw, allow_bom=True)
        problems = tuple(add_option_hint(problem, lines) for problem in error.problems)
        raise ConfigError(str(problems[0]), problems=problems) from error


def _build_config(results: Sequence[_FileResult]) -> Config:
    documents = [document for document in results if isinstance(document, Document)]
    org, models, allocations = (result.value if isinstance(result, Document) else None for result in results)
    org = org or OrgSettings()
    file_problems = [problem for result in results if isinstance(result, ConfigError) for problem in result.problems]
    problems = [*file_problems, *_validate_executor(org)]
    if org.timezone is not None and (error := zone_error(org.timezone)):
        problems.append(Problem(error[0], paths.ORG_FILE, pointer="/timezone", hint=error[1]))
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise ConfigError(str(errors[0]), problems=tuple(problems))
    # at once: whatever the options name is a secret before the first call could tell it
    for entry in (models or {}).values():
        register_secret_variables(entry.options, paths.MODELS_FILE)
    warnings = tuple(warning for document in documents for warning in document.warnings)
    digests = {
        file: sha256(result.raw).hexdigest()
        for file, result in zip(FILE_TYPES, results, strict=True)
        if isinstance(result, Document) and result.value not in (OrgSettings(), {})
    }
    return Config(org, {**DEFAULT_MODELS, **(models or {})}, allocations or {}, warnings, digests)


def _validate_executor(settings: OrgSettings) -> Iterator[Problem]:
    hint = 'add the scheduler\'s address: "executor_address": "tcp://host:8786"'
    if reason := missing_owner(provided("executors"), settings.executor):
        message = f'"executor": "{settings.executor}" needs a capability that is not installed: {reason}'
        yield Problem(message, paths.ORG_FILE, pointer="/executor", hint="remove the key")
    elif settings.executor_address and not _SCHEDULER.match(settings.executor_address):
        yield Problem("must be a scheduler's address", paths.ORG_FILE, pointer="/executor_address", hint=hint)
    elif settings.executor in provided("executors") and not settings.executor_address:
        yield Problem('"executor": "dask" needs a cluster', paths.ORG_FILE, pointer="/executor_address", hint=hint)


if not TYPE_CHECKING:
    __getattr__ = old_names_of(__name__)
