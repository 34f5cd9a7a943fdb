"""The capabilities that prepare a turn, called in their order before the turn begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base import paths
from lemming.kernel.base.errors import ConfigError, StoppedByGate
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.turn_agenda import (
    Agenda,
    Reception,
    RequestPolicy,
    Task,
    can_accept_requests,
    has_new_request,
)
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.capability_usage import (
    TurnPolicy,
    find_used_capabilities,
    parse_agent_settings,
    parse_org_settings,
    resolve_turn_policy,
)
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_errors import capability_error, check_json
from lemming.kernel.plugins.capability_loader import get_capability, load_provided, missing_reason, sort_capabilities
from lemming.kernel.plugins.capability_table import (
    LISTED,
    ORG_KEYS,
    REQUEST_RULES,
    RESUME_KEYS,
    SHIPPED,
    USING_REQUESTS,
    find_asked_capabilities,
    find_key_owners,
)
from lemming.kernel.turn.effect_chain import EffectChain, ignore
from lemming.kernel.turn.loop_breaker import select_request_counts
from lemming.kernel.turn.preparation import Block, Continue, Preparation, TurnContext, Wake, Watch
from lemming.kernel.turn.preparation_effects import LabelPrompt, ReceiveEntry
from lemming.kernel.turn.prompt_input import PromptLabels
from lemming.kernel.turn.turn_effects import Deferred, Effect, Rejected, Suspended
from lemming.kernel.turn.turn_hooks import Capability, make_interceptor
from lemming.kernel.turn.turn_values import TurnInputs

T = TypeVar("T", bound=Effect)


class PreparationChain(EffectChain):
    """The capabilities that prepare a turn, in their order. Nothing is recorded yet."""

    def __init__(self, by_name: Mapping[str, tuple[Capability, Preparation]], agent_name: str = "") -> None:
        self._by_name, self._agent_name = by_name, agent_name
        self.names = by_name.keys()
        super().__init__([make_interceptor(capability, turn) for capability, turn in by_name.values()], ignore, ignore)
        self._receives = ReceiveEntry in self.handled
        self.may_change = any(
            name not in LISTED and (type(item).due is not Capability.due or ReceiveEntry in item.handles)
            for name, (item, _) in by_name.items()
        )
        """True if a plugin decides when the agent has news: its reasons are unknown and may change in any tick."""
        self._received: dict[str, Reception] = {}
        self.blocks: dict[str, Block] = {}
        self._continued, self._wakes = set[str](), list[Wake]()
        self.files: dict[str, str] = {}

    # --- before there is a reason for a turn ------------------------------------------------------

    def ask_due(self) -> None:
        """Ask each capability which requests wait or continue, and which files and reasons make the agent due."""
        for capability, turn in self._by_name.values():
            for item in _list_due(capability, turn):
                match item:
                    case Watch(str(), str()):
                        self.files[item.path] = item.digest
                    case Block(str(), str(), None | int()):
                        self.blocks[item.request] = item
                    case Continue(str()):
                        self._continued.add(item.request)
                    case Wake(check) if callable(check):
                        self._wakes.append(item)
                    case _:
                        wrong = f"must yield Wake, Block, Continue or Watch with values of their types, got {item!r}"
                        raise capability_error(capability.name, capability.due, wrong)

    def skip_reason(self) -> str:
        """Return a description of the agent's wait, or an empty string."""
        return next((block.reason for block in self.blocks.values() if block.reason), "")

    def next_wake_tick(self) -> int | None:
        """Return the first tick in which a request's wait can end, or None."""
        return min((block.until for block in self.blocks.values() if block.until is not None), default=None)

    def agenda(self, context: TurnContext, policy: TurnPolicy) -> Agenda | None:
        """Return the agenda of the agent, or None."""
        if not policy.is_asked:
            return None
        has_requests, only_addressed = REQUEST_RULES in self.names, policy.wake == "addressed"
        if not (has_requests or only_addressed or self._receives):
            return None
        request_policy = RequestPolicy(self.blocks.keys(), self._continued, self._receive if self._receives else None)
        if has_requests:
            build_agenda = load_provided("rules", "requests")
            requests = context.state.requests
            agenda: Agenda | None = build_agenda(context.view, context.agent.name, requests, policy, request_policy)
            return agenda
        return Agenda(context.agent.name, request_policy, only_addressed=only_addressed)

    def _receive(self, entry: OutboxEntry) -> Reception:
        """Return the decision about a new entry, made once. The agent's own entries are admitted."""
        if (reception := self._received.get(entry.identity)) is None:
            effect = ReceiveEntry(entry=entry, labels=self.labels)
            decision = None if entry.agent == self._agent_name else self.decide(effect)
            reception = "deferred" if isinstance(decision, Deferred) else "admitted"
            reception = self._received[entry.identity] = "rejected" if isinstance(decision, Rejected) else reception
        return reception

    def should_wake(self, view: ReaderView) -> bool:
        """Return True if a capability has a reason for a turn, once all new entries have been received."""
        if not self._wakes:
            return False
        if self._receives:
            for name in view.iter_unread():
                entry = view.mail.read(name)
                if isinstance(entry, OutboxEntry) and entry.is_news_to_reader(view.reader, view.mail.known_names):
                    self._receive(entry)
        return any(wake.check() for wake in self._wakes)

    # --- the content of the turn ----------------------------------------------------------------------

    @cached_property
    def labels(self) -> PromptLabels:
        """The labels of the prompt's parts."""
        return self.complete(LabelPrompt()).labels

    def decide(self, effect: T) -> T | Rejected | Deferred:
        """Return the effect as passed on, or the decision against it. Raises `StoppedByGate` for a final rejection."""
        if type(effect) not in self.handled:
            return effect
        passed = super().decide(effect)
        if isinstance(passed, Suspended):
            raise TypeError(f"{type(effect).__name__} must be passed on, rejected or deferred, got {passed!r}")
        if isinstance(passed, Rejected) and passed.is_final:
            raise StoppedByGate(passed.reason, where=paths.agent_folder(self._agent_name))
        return passed

    def complete(self, effect: T) -> T:
        """Return an effect as completed by the capabilities, of which none may reject an effect."""
        completed = self.decide(effect)
        if isinstance(completed, Rejected | Deferred):
            raise TypeError(f"{type(effect).__name__} must be passed on by every capability, got {completed!r}")
        return completed

    def with_requested(
        self, task: Task | None, requests: Sequence[OutboxEntry], context: TurnContext
    ) -> PreparationChain:
        """Return this chain with the capabilities that the askers of the turn's requests need."""
        if not (task or requests):
            return self
        names = {REQUEST_RULES, *_requested_capabilities([task.request] if task else requests, context)} - self.names
        if not names:
            return self
        by_name = {**self._by_name, **_make_preparations(names, context)}
        order = sort_capabilities(by_name, context.tick_context.config.org.plugins)
        return PreparationChain({name: by_name[name] for name in order}, self._agent_name or context.agent.name)

    def snapshots(self) -> dict[str, Json]:
        """Return the inputs snapshots of the turn, by capability."""
        snapshots = {}
        for name, (capability, turn) in self._by_name.items():
            snapshot = capability.prepare(turn)
            if snapshot is not None and (name not in LISTED or not isinstance(snapshot, dict)):
                check_json(name, capability.prepare, snapshot, "a JSON object or None")
            if snapshot or (snapshot is not None and name not in LISTED):  # an empty one of ours takes no part
                snapshots[name] = snapshot
        return snapshots


def _list_due(capability: Capability, turn: Preparation) -> Iterable[object]:
    due: object = capability.due(turn)
    if not isinstance(due, Iterable):
        raise capability_error(
            capability.name, capability.due, f"must yield or return a list, got {type(due).__name__}"
        )
    return due


NO_PREPARATION = PreparationChain({})
"""The chain of a turn without capabilities."""


MAX_CACHED_AGENTS = 10_000


def load_capabilities(names: Iterable[str], plugins: Sequence[str] | None) -> list[Capability]:
    """Return capabilities in their order. Raises `ConfigError` for a missing one."""
    return [get_capability(name, plugins) for name in sort_capabilities(names, plugins)]


def active_capabilities(config: Config, survey: Survey) -> list[Capability]:
    """Return the capabilities with keys or blocks in the settings or in a resume, in order."""
    org = config.org
    if not (org.extensions or survey.extension_keys or org.capabilities or survey.has_plugin_capabilities):
        return []
    names = {*org.capabilities, *(name for agent in survey.agents.values() for name in agent.capabilities)}
    names.update(find_key_owners(ORG_KEYS, org.extensions), find_key_owners(RESUME_KEYS, survey.extension_keys))
    return load_capabilities(names, org.plugins)


class UsageCache:
    """Cache of the agents' capabilities and turn policies, valid for the same resume and settings objects."""

    def __init__(self, _: Organisation) -> None:
        self._by_agent: dict[str, tuple[Agent, Config, frozenset[str], TurnPolicy]] = {}

    def get_usage(self, agent: Agent, config: Config) -> tuple[frozenset[str], TurnPolicy]:
        """Return the results of `find_used_capabilities` and `resolve_turn_policy` for an agent."""
        cached = self._by_agent.get(agent.name)
        if cached is None or cached[0] is not agent or cached[1] is not config:
            if len(self._by_agent) >= MAX_CACHED_AGENTS:
                self._by_agent.clear()
            names, policy = (frozenset(find_used_capabilities(agent, config)), resolve_turn_policy(agent, config))
            cached = self._by_agent[agent.name] = agent, config, names, policy
        return cached[2:]


def prepare_context(context: TurnContext) -> PreparationChain:
    """Return the capabilities that prepare a turn. Raises `ConfigError` for a missing capability.

    These are the capabilities of the resume and the settings, of open requests, and shipped capabilities with
    state in the ledger. The state of a plugin stays in the ledger, unused, until a resume or the settings
    name the plugin again.
    """
    names, policy = context.tick_context.org.get_cache(UsageCache).get_usage(context.agent, context.tick_context.config)
    # An agent that repeats the same request: the answer matters.
    loops = context.state.loops
    has_asked = loops and select_request_counts(loops) and not missing_reason(REQUEST_RULES)
    may_have_requests = has_asked or not names.isdisjoint(USING_REQUESTS) or policy.take is not None
    if policy.is_asked and not may_have_requests:
        if missing_reason(REQUEST_RULES):  # only actual requests count
            may_have_requests = has_new_request(context.view)
        else:
            may_have_requests = policy.wake == "addressed" or can_accept_requests(context.view, None)
    if policy.is_asked and may_have_requests:
        names = names | {REQUEST_RULES}
    if context.state.kept:
        names = names | (context.state.kept.keys() & SHIPPED.keys())
    for open_request in context.state.requests:
        names = names.union({REQUEST_RULES}, (name for sub_request in open_request.asked for name in sub_request.held))
    return PreparationChain(_make_preparations(names, context), context.agent.name) if names else NO_PREPARATION


def _make_preparations(names: Iterable[str], context: TurnContext) -> dict[str, tuple[Capability, Preparation]]:
    config, agent = context.tick_context.config, context.agent
    by_name = dict[str, tuple[Capability, Preparation]]()
    for item in load_capabilities(names, config.org.plugins):
        settings, agent_settings = parse_org_settings(item, config), parse_agent_settings(item, agent)
        by_name[item.name] = item, Preparation(item.name, context, settings, agent_settings)
    return by_name


def _requested_capabilities(requests: Iterable[OutboxEntry | None], context: TurnContext) -> Iterator[str]:
    """Yield the capabilities that the askers of these requests need."""
    resumes = context.tick_context.mail.resumes
    for request in requests:
        if request and (asker := resumes.get(request.agent)):
            yield from find_asked_capabilities(asker, request.payload)


def require_requested_capabilities(inbox: Iterable[OutboxEntry], context: TurnContext) -> None:
    """Raise `ConfigError` if a request in the inbox needs a missing capability: none is skipped."""
    name = context.agent.name
    requests = (entry for entry in inbox if entry.kind == "request" and name in entry.targets)
    for required in _requested_capabilities(requests, context):
        get_capability(required, context.tick_context.config.org.plugins)


def starting_capabilities(
    inputs: TurnInputs, plugins: Sequence[str] | None, extra_names: Iterable[str] = ()
) -> list[Capability]:
    """Return the capabilities that a turn began with. Raises `ConfigError` for a missing capability."""
    try:
        return load_capabilities({*inputs.given, *extra_names}, plugins)
    except ConfigError as error:
        turn = f"the turn of {inputs.agent.name} in tick {inputs.tick}"
        message = f"{turn} was begun with {' and '.join(sorted(inputs.given))}: {error.message}"
        raise ConfigError(message, where=error.where, hint=error.hint) from error
