"""What `lemming.kernel.line` takes for plain, and where it leaves a tick to the engine.

A setting or a capability beyond a plain organisation is refused by its key, before a tick begins. What shows later is
left to `lemming run-once`, which finishes the same tick from the same journal.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from hashlib import blake2b
from typing import Any

from lemming.kernel.agents import Agent, Survey, survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.contract import MemoryUpdate, ToolCall
from lemming.kernel.base.errors import ConfigError, LemmingError, NotAnOrg, NotTrusted, ProviderError, error_name
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.files.stat_cache import is_folder
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.memory import Memories
from lemming.kernel.messages import list_outbox
from lemming.kernel.org.config import Config, OrgSettings, load_config
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import Organisation, require_known_format
from lemming.kernel.org.settings_blocks import LoopSettings
from lemming.kernel.plugins.capability_table import SPEAKING_PROVIDERS, provided
from lemming.kernel.providers import get_provider_class, is_person
from lemming.kernel.tools import EngineTool, get_toolset

ENGINE = "run `lemming run-once`"
PLAIN_TOOLS = ("read", "write")
ORG_KEYS = """format visibility executor max_parallel tick_interval_s ticks_in_a_row retention_ticks plain_journals
    kept_journals inbox_limit inbox_chars memory_chars max_attempts purpose paused defaults.turn.repairs quota loops
    findings"""
RESUME_KEYS = """name title instructions model.key model.temperature permissions.read_outboxes permissions.tools
    permissions.file_access permissions.may_be_absent schedule.run_every_n_ticks schedule.phase_offset
    credits.max_credits turn.repairs turn.max_entries turn.max_tool_calls turn.max_approvals turn.kinds paused"""
MODEL_KEYS = """provider model options temperature max_output_tokens deadline_s batch_deadline_s batch_price_factor
    attempts max_concurrent max_concurrency prompt per_call per_1k_input_tokens per_1k_output_tokens"""
"""The keys whose values may differ from their defaults; a block stands for all its keys."""
MAX_COUNTS, MAX_LOOPS, EXTRA_TURNS, MAX_RETENTIONS = 64, 8, 2, 10


class LeftToEngine(LemmingError):
    """`lemming.kernel.line` cannot go on; the engine can, from the same journal."""

    exit_status = ConfigError.exit_status

    def __init__(self, reason: str) -> None:
        super().__init__(reason, hint="run `lemming run-once`: it finishes the tick from the same journal")


def load(org: Organisation) -> tuple[Config, Survey]:
    """Return the settings and the agents.

    Raises `NotAnOrg` without `agents/`, and `ConfigError`, naming file and key, for a setting or a capability beyond
    a plain organisation.
    """
    if not is_folder(f"{org.base}/agents"):
        raise NotAnOrg("the folder agents/ does not exist", where=str(org.base), hint="create it with `lemming init`")
    require_known_format(org)
    config, survey = load_config(org), survey_agents(org)
    for file, key in _iter_other(org, config, survey):
        raise ConfigError(f"{key} is more than a plain organisation has", where=file, hint=ENGINE)
    return config, survey


def require_trusted(base_path: str | os.PathLike[str], *, is_trusted: bool) -> None:
    """Raise `NotTrusted` without a person's trust if a model is a program, which has the rights of this process."""
    for key, model in load_config(base_path).models.items():
        if "command" in model.options and not is_trusted:
            hint = f"read {paths.MODELS_FILE}, then add --trust"
            raise NotTrusted(f"options.command of {key} starts a program", where=paths.MODELS_FILE, hint=hint)


def _iter_other(org: Organisation, config: Config, survey: Survey) -> Iterator[tuple[str, str]]:
    """Yield file and key of each setting beyond a plain organisation."""
    settings = asdict(config.org)
    settings |= settings.pop("extensions")
    yield from ((paths.ORG_FILE, key) for key in _find_other(settings, asdict(OrgSettings()), ORG_KEYS))
    yield from (
        (paths.CREDITS_FILE, f"{name}.soft_cap")
        for name, allocation in config.allocations.items()
        if allocation.soft_cap is not None
    )
    for name, agent in survey.agents.items():
        file, bare = paths.resume_file(name), Agent(name=name, instructions=agent.instructions)
        yield from ((file, key) for key in _find_other(agent.as_json, bare.as_json, RESUME_KEYS))
        for tool in get_toolset(config.org, org).allowed_tools(agent, config.org).values():
            if not (isinstance(tool, EngineTool) and tool.tool_class in PLAIN_TOOLS):
                yield file, f"permissions.tools: {tool.name}"
        key = agent.model.key
        if key not in config.models:
            yield file, f"model.key: {key}"
            continue
        model = config.models[key]
        is_special = is_person(model.provider) or model.provider in {*SPEAKING_PROVIDERS, *provided("pricing")}
        acts_outside = "command" in model.options and model.options.get("effects") != "none"
        reasons = {
            f"provider: {model.provider}": is_special or get_provider_class(model.provider, ()).takes_schema,
            **dict.fromkeys(_find_other(vars(model), vars(ModelEntry(provider=model.provider)), MODEL_KEYS), True),
            'prompt other than "values"': model.prompt != "values",
            "attempts other than 1": model.attempts != 1,
            'options.effects other than "none"': acts_outside,
        }
        yield from ((paths.MODELS_FILE, f"{key}.{reason}") for reason, is_so in reasons.items() if is_so)


def _find_other(plain: Mapping[str, Any], defaults: Mapping[str, Any], keys: str) -> Iterator[str]:
    """Yield the keys that differ from their defaults and are none of `keys`."""
    usual, known_keys = dict(_flatten(defaults)), tuple(f"{key}." for key in keys.split())
    for key, value in _flatten(plain):
        if usual.get(key, ...) != value and not f"{key}.".startswith(known_keys):
            yield key


def _flatten(plain: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in plain.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def require_plain_state(name: str, state: AgentState, memories: Memories, loops: LoopSettings) -> None:
    """Raise `LeftToEngine` for an agent whose turn starts from what a capability keeps, or with a warning."""
    if state.requests or state.kept or state.expired_unread or state.passed_on or memories.problems:
        raise LeftToEngine(f"{name} starts from more than a ledger and sound memories")
    if max(state.loops.values(), default=0) >= loops.warn_after:
        raise LeftToEngine(f"{name} goes round in a circle, of which it is to be warned")


def require_plain_entry(kind: str, payload: Mapping[str, Any], where: str) -> None:
    """Raise `LeftToEngine` for a request, and for an entry that is shown at a later time."""
    if kind == "request" or "not_before" in payload:
        raise LeftToEngine(f"{where}: {'payload.not_before' if 'not_before' in payload else 'a request'}")


def find_old_entries(org: Organisation, survey: Survey, tick: int, retention: int) -> list[str]:
    """Return the files of entries past their retention that every reader was shown.

    Raises `LeftToEngine` for one that a reader has missed for too long: the reader is to be told.
    """
    files, readers = list[str](), survey.agents.values()
    marks = {agent.name: read_state(org, agent.name).read for agent in readers}
    folders = sorted(org.base.glob("agents/*/outbox")) if 0 < retention < tick else []
    for entry in [entry for folder in folders for entry in list_outbox(org.base, folder.parent.name)]:
        late_readers = [
            agent for agent in readers
            if agent.may_read(entry.author) and not marks[agent.name].has_seen(entry)
            and not marks[agent.name].is_unreadable(entry)
        ]  # fmt: skip
        holds = [retention + EXTRA_TURNS * agent.schedule.run_every_n_ticks for agent in late_readers]
        if tick - entry.tick <= min(max([retention, *holds]), MAX_RETENTIONS * retention):
            continue
        if late_readers:
            raise LeftToEngine(f"{entry.file} expires before {late_readers[0].name} was shown it")
        files.append(entry.file)
    return files


class ProgressCounts:
    """Counts of an agent's repeated actions, as in the ledger (`in_vain` and `loops`).

    The engine warns an agent in a loop, and pauses the agent in the end. Here `LeftToEngine` is raised instead.
    `counts`: equal calls with equal results, and equal memories, by key, while results wait.
    """

    def __init__(self, name: str, before: AgentState, settings: LoopSettings) -> None:
        self._name, self._loops, self._settings = name, before.loops, settings
        self._has_failed: dict[str, bool] = {}
        self.counts = {**before.in_vain}

    def count_call(self, call: ToolCall, *, output: str, success: bool) -> None:
        """Count a call with its result. Equal calls of one reply count once: the model had seen no result."""
        key = _digest([call.tool, call.args, success, output])
        if key not in self._has_failed:
            self._has_failed[key] = not success
            if self._count(key) >= self._settings.warn_after:
                raise LeftToEngine(f"{call.tool} has given {self._name} the same again and again")

    def count_turn(
        self, error: LemmingError | None, updates: Iterable[MemoryUpdate], has_answer: bool, has_entries: bool
    ) -> dict[str, int]:
        """Return the counts of paid turns that came to nothing; empty after one that came to something."""
        has_learned = 1 in {self._count(_digest([update.key, update.value])) for update in updates}
        if not has_answer or isinstance(error, ProviderError):
            return self._loops
        if error:
            key = _digest([f"failed in the same way ({error_name(error)})", ""])
        elif self._has_failed and all(self._has_failed.values()) and not (has_entries or has_learned):
            key = _digest(["did nothing but what was refused or failed as before", sorted(self._has_failed)])
        else:
            return {}
        if (count := self._loops.get(key, 0) + 1) >= self._settings.stop_after:
            raise LeftToEngine(f"{self._name} goes round in a circle and is to be paused")
        other_counts = [(other, earlier) for other, earlier in self._loops.items() if other != key]
        return dict([*other_counts, (key, count)][-MAX_LOOPS:])

    def _count(self, key: str) -> int:
        self.counts[key] = count = self.counts.pop(key, 0) + 1  # the newest comes last
        if len(self.counts) > MAX_COUNTS:
            del self.counts[next(iter(self.counts))]
        return count


def _digest(parts: list[Any]) -> str:
    return blake2b(dump_compact(parts), digest_size=16).hexdigest()
