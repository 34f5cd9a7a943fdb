"""Context providers of a turn, called hook by hook in their order before the turn begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.files.field_types import Json
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.request_policy import EntryLister, EntryReader, RequestOutcomes
from lemming.kernel.inboxes.turn_agenda import AddressedOnlyAgenda, Agenda, can_accept_requests, has_new_request
from lemming.kernel.inboxes.turn_task import Task
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.memory import Memories
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
from lemming.kernel.plugins.capability_loader import get_capability, missing_reason, sort_capabilities
from lemming.kernel.plugins.capability_table import (
    ORG_KEYS,
    REQUESTS,
    RESUME_KEYS,
    SHIPPED,
    USING_REQUESTS,
    find_asked_capabilities,
    find_key_owners,
)
from lemming.kernel.tools import Tool
from lemming.kernel.turn.context_provider import ContextProvider
from lemming.kernel.turn.guards import ContextCandidates
from lemming.kernel.turn.loop_breaker import select_request_counts
from lemming.kernel.turn.prompt_labels import PLAIN, PromptLabels
from lemming.kernel.turn.reply_schemas import PayloadSchema
from lemming.kernel.turn.turn_context import TurnContext, VisibleContext
from lemming.kernel.turn.turn_hooks import Capability
from lemming.kernel.turn.turn_values import Purpose

if TYPE_CHECKING:
    from lemming.kernel.turn.prompt_input import PromptInput


class ContextProviders:
    """The context providers of a turn, in their order."""

    def __init__(self, by_name: Mapping[str, ContextProvider]) -> None:
        self._by_name = by_name
        self._providers = tuple(by_name.values())
        self.names = by_name.keys()
        self.can_withhold = any(
            type(provider).should_withhold is not ContextProvider.should_withhold for provider in self._providers
        )

    def scan_files(self, memories: Memories) -> dict[str, str]:
        """Return the digests, by path, of the files that decide whether the agent takes a turn."""
        return {file: digest for provider in self._providers for file, digest in provider.scan_files(memories).items()}

    @property
    def can_skip_requests(self) -> bool:
        """True if any request may have to wait."""
        return any(
            type(provider).should_skip_request is not ContextProvider.should_skip_request
            for provider in self._providers
        )

    def should_skip_request(self, open_request: OpenRequest) -> bool:
        """Return True if a request must wait."""
        return any(provider.should_skip_request(open_request) for provider in self._providers)

    def should_continue_request(self, open_request: OpenRequest) -> bool:
        """Return True if a request continues despite open sub-requests."""
        return any(provider.should_continue_request(open_request) for provider in self._providers)

    def skip_reason(self) -> str:
        """Return a description of the agent's wait, or an empty string."""
        return next((reason for provider in self._providers if (reason := provider.skip_reason())), "")

    def next_wake_tick(self, memories: Memories) -> int | None:
        """Return the first tick in which a request's wait can end, or None."""
        ticks = (provider.next_wake_tick(memories) for provider in self._providers)
        return min((tick for tick in ticks if tick is not None), default=None)

    def should_withhold(self, entry: OutboxEntry) -> bool:
        """Return True if an entry must not be shown yet."""
        return any(provider.should_withhold(entry) for provider in self._providers)

    def should_reject(self, entry: OutboxEntry) -> bool:
        """Return True if an entry must never be shown."""
        return any(provider.should_reject(entry) for provider in self._providers)

    def is_preapproved(self, entry: OutboxEntry) -> bool:
        """Return True if a person has approved this entry for gates with "ask"."""
        return any(provider.is_preapproved(entry) for provider in self._providers)

    def should_wake(self, view: ReaderView, *, is_alone: bool) -> bool:
        """Return True if there is a reason to take a turn. Calls every provider."""
        has_reason = False
        for provider in self._providers:
            has_reason |= provider.should_wake(view, is_alone=is_alone)
        return has_reason

    def request_outcomes(
        self, open_request: OpenRequest, read: EntryReader, entries_of: EntryLister, is_heard: Callable[[str], bool]
    ) -> RequestOutcomes:
        """Return the outcomes of sub-requests with pending state."""
        outcomes: RequestOutcomes = {}
        for provider in self._providers:
            outcomes |= provider.request_outcomes(open_request, read, entries_of, is_heard)
        return outcomes

    def render_earlier_results(
        self, task: Task, results: Sequence[Mapping[str, Any]], labels: PromptLabels
    ) -> Sequence[Mapping[str, Any]]:
        """Return the results of earlier calls as the model sees them."""
        for provider in self._providers:
            results = provider.render_earlier_results(task, results, labels)
        return results

    def tools(self) -> list[Tool]:
        """Return the tools that exist for this agent's turns only."""
        return [tool for provider in self._providers for tool in provider.tools()]

    def agenda(self, view: ReaderView, policy: TurnPolicy) -> Agenda | None:
        """Return the agenda of the agent, or None."""
        if not policy.is_asked:
            return None
        for provider in self._providers:
            if (agenda := provider.agenda(view, policy, self)) is not None:
                return agenda
        return AddressedOnlyAgenda(view.reader) if policy.wake == "addressed" else None

    def purpose(self, task: Task) -> Purpose | None:
        """Return the recorded purpose of the turn, or None."""
        return next((purpose for provider in self._providers if (purpose := provider.purpose(task))), None)

    def filter_candidates(self, candidates: ContextCandidates) -> ContextCandidates:
        """Return the candidates that the turn may show."""
        for provider in self._providers:
            candidates = provider.filter_candidates(candidates, self.is_preapproved)
        return candidates

    def adjust_context(self, visible: VisibleContext) -> VisibleContext:
        """Return the adjusted visible context of the turn."""
        for provider in self._providers:
            visible = provider.adjust_context(visible)
        return visible

    def prompt_labels(self) -> PromptLabels:
        """Return the labels of prompt parts."""
        for provider in self._providers:
            if (labels := provider.prompt_labels()) is not PLAIN:
                return labels
        return PLAIN

    def prompt_sections(self) -> tuple[str, ...]:
        """Return the prompt sections after the agent's instructions."""
        return tuple([section for provider in self._providers for section in provider.prompt_sections() if section])

    def payload_schemas(self, task: Task | None, requests: Sequence[OutboxEntry]) -> Sequence[PayloadSchema]:
        """Return the JSON schemas of the turn's entry payloads."""
        return (
            [schema for provider in self._providers for schema in provider.payload_schemas(task, requests)]
            if self._providers
            else ()
        )

    def annotate_prompt(self, prompt_input: PromptInput, visible: VisibleContext) -> None:
        """Let every provider annotate the prompt input."""
        for provider in self._providers:
            provider.annotate_prompt(prompt_input, visible)

    def with_requested(
        self, task: Task | None, requests: Sequence[OutboxEntry], context: TurnContext
    ) -> ContextProviders:
        """Return these providers and the ones that the askers of the turn's requests need."""
        if not (task or requests):
            return self
        names = {REQUESTS, *_requested_capabilities([task.request] if task else requests, context)} - self.names
        if not names:
            return self
        by_name = {**self._by_name, **_make_providers(names, context)}
        return ContextProviders(
            {name: by_name[name] for name in sort_capabilities(by_name, context.tick_context.config.org.plugins)}
        )

    def snapshots(self) -> dict[str, Json]:
        """Return the inputs snapshots of the turn, by capability."""
        return {name: snapshot for name, provider in self._by_name.items() if (snapshot := provider.snapshot())}


NO_PROVIDERS = ContextProviders({})


MAX_CACHED_AGENTS = 10_000


def agent_capabilities(agent: Agent, config: Config) -> Sequence[Capability]:
    """Return the capabilities that may take part in an agent's turns, in order."""
    plugins = config.org.plugins
    return [get_capability(name, plugins) for name in sort_capabilities(find_used_capabilities(agent, config), plugins)]


def active_capabilities(config: Config, survey: Survey) -> list[Capability]:
    """Return the capabilities with keys or blocks in the settings or in a resume, in order."""
    org = config.org
    if not (org.extensions or survey.extension_keys or org.capabilities or survey.has_plugin_capabilities):
        return []
    names = {*org.capabilities, *(name for agent in survey.agents.values() for name in agent.capabilities)}
    names.update(find_key_owners(ORG_KEYS, org.extensions), find_key_owners(RESUME_KEYS, survey.extension_keys))
    return [get_capability(name, org.plugins) for name in sort_capabilities(names, org.plugins)]


def agents_without_requests(survey: Survey, config: Config) -> set[str]:
    """Return the agents that have no requests and read no inbox."""
    groups = ((survey.agents[names[0]], names) for names in survey.by_model.values())
    return {name for agent, names in groups if not resolve_turn_policy(agent, config).is_asked for name in names}


class UsageCache:
    """Cache of the agents' capabilities and turn policies, valid while resume and settings objects are
    identical.
    """

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


def prepare_context(context: TurnContext, view: ReaderView) -> ContextProviders:
    """Return the context providers of a turn. Raises `ConfigError` for a missing capability.

    These are the capabilities of the resume and the settings, of open requests, and shipped capabilities with
    state in the ledger. The state of a plugin stays in the ledger, unused, until a resume or the settings
    name the plugin again.
    """
    names, policy = context.tick_context.org.get_cache(UsageCache).get_usage(context.agent, context.tick_context.config)
    has_asked = context.state.loops and _has_repeated_requests(context)
    if policy.is_asked and (has_asked or _should_load_requests(names, policy, view)):
        names = names | {REQUESTS}
    if context.state.kept:
        names = names | (context.state.kept.keys() & SHIPPED.keys())
    for open_request in context.state.requests:
        names = names.union({REQUESTS}, (name for sub_request in open_request.asked for name in sub_request.held))
    if not names:
        return NO_PROVIDERS
    return ContextProviders(_make_providers(names, context))


def _should_load_requests(names: AbstractSet[str], policy: TurnPolicy, view: ReaderView) -> bool:
    """Return True if the turn may have requests. If the capability is missing, only actual requests count."""
    if not names.isdisjoint(USING_REQUESTS) or policy.take is not None:
        return True
    if missing_reason(REQUESTS):
        return has_new_request(view)
    return policy.wake == "addressed" or can_accept_requests(view, None)


def _has_repeated_requests(context: TurnContext) -> bool:
    """Return True if the agent repeats the same request, so that an answer matters."""
    return bool(select_request_counts(context.state.loops)) and not missing_reason(REQUESTS)


def _make_providers(names: Iterable[str], context: TurnContext) -> dict[str, ContextProvider]:
    config = context.tick_context.config
    plugins, providers = config.org.plugins, dict[str, ContextProvider]()
    for name in sort_capabilities(names, plugins):
        item: Capability = get_capability(name, plugins)
        blocks = {
            "settings": parse_org_settings(item, config),
            "agent_settings": parse_agent_settings(item, context.agent),
        }
        if (provider := item.context_provider(replace(context, **blocks))) is not None:
            providers[name] = provider
    return providers


def _requested_capabilities(requests: Iterable[OutboxEntry | None], context: TurnContext) -> Iterator[str]:
    """Yield the capabilities that the askers of these requests need."""
    resumes = context.tick_context.mail.resumes
    for request in requests:
        if request and (asker := resumes.get(request.agent)):
            yield from find_asked_capabilities(asker, request.payload)


def require_requested_capabilities(inbox: Iterable[OutboxEntry], context: TurnContext) -> None:
    """Raise `ConfigError` if a request in the inbox needs a missing capability: such requests are not
    skipped.
    """
    name = context.agent.name
    requests = (entry for entry in inbox if entry.kind == "request" and name in entry.targets)
    for required in _requested_capabilities(requests, context):
        get_capability(required, context.tick_context.config.org.plugins)
