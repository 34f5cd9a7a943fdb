"""Prompt prefix of an agent: the part of every turn's inputs that depends only on resume, settings and tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lemming.kernel.agents import Agent
from lemming.kernel.base import paths
from lemming.kernel.base.entry_kinds import MessageKind
from lemming.kernel.base.errors import ConfigError, Unusable
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import AgentCredits
from lemming.kernel.org.settings_blocks import LoopSettings
from lemming.kernel.plugins.capability_table import provided
from lemming.kernel.providers import LLMProvider, Message, available_providers, get_provider_class, make_provider
from lemming.kernel.tick_context import TickContext
from lemming.kernel.tools import Tool
from lemming.kernel.tools.listing import describe_tool, list_tools
from lemming.kernel.tools.toolset import Toolset
from lemming.kernel.turn.forms.form_choice import FORM_PROMPTS, ModelFeatures, choose_form, make_first_messages
from lemming.kernel.turn.forms.reply_form import FormFacts, ReplyForm, is_described
from lemming.kernel.turn.loop_breaker import loop_limits
from lemming.kernel.turn.reply_schemas import Action, PayloadSchema, make_native_names, reply_schema
from lemming.kernel.turn.turn_prompt import full_prefix

if TYPE_CHECKING:
    from lemming.kernel.turn.preparation_effects import SelectContext

PREFIX_KEYS = ("instructions", "examples")
OMITTED_DEFAULTS = ("images", "context_tokens", "tools_share")
"""Keys of a model entry that a record leaves out at their defaults."""
MAX_CACHED_PREFIXES = 10_000
DEFAULT_MAX_STEPS = 8
"""Default maximum of replies in a turn that may take several: with a strategy, or with tools."""
NATIVE_TOOL_PROMPTS = (None, "fit", "full")
"""The values of `ModelEntry.prompt` with which a backend may call tools by itself."""


class PromptPrefix(NamedTuple):
    """Prompt prefix of an agent, valid as long as resume, settings and tools stay the same.

    `basis`: the objects from which the prefix is built, besides `sections`, the sections after the agent's
    instructions. `fields`: fields of `TurnStarted` from `schema` to `form`. `messages`: first messages of the
    prompt. `encoded`: both as JSON. `facts`: facts of the turn that determine `form`, if any.
    """

    basis: tuple[object, ...]
    sections: tuple[str, ...]
    payload_schemas: Sequence[PayloadSchema]
    facts: FormFacts | None
    form: ReplyForm | None
    takes_schema: bool
    calls_tools: bool
    fields: dict[str, Any]
    loops: LoopSettings
    messages: list[Message]
    encoded: bytes
    toolset: Toolset


class PromptPrefixCache:
    """Prompt prefixes by agent, and features by model."""

    def __init__(self, org: Organisation) -> None:
        self._base = org.base
        self._by_agent: dict[str, PromptPrefix] = {}
        self._features: dict[tuple[object, ...], ModelFeatures] = {}

    def get_prefix(
        self,
        tick_context: TickContext,
        agent: Agent,
        entry: ModelEntry,
        allocation: AgentCredits,
        selected: SelectContext | None,
        get_facts: Callable[[], FormFacts],
    ) -> PromptPrefix:
        """Return the agent's prompt prefix, rebuilt if any object of the basis has changed.

        `selected`: sections, schemas of the turn's entries, and tools that depend on the resume alone.
        """
        plugins = tick_context.config.org.plugins
        basis = agent, tick_context.config, tick_context.toolset, available_providers(plugins)
        sections, payload_schemas = (selected.sections, selected.payload_schemas) if selected else ((), ())
        cached = self._by_agent.get(agent.name)
        facts: FormFacts | None = None
        is_same = (
            cached
            and all(map(is_, cached.basis, basis))
            and (cached.sections, cached.payload_schemas) == (sections, payload_schemas)
        )
        if cached and is_same and (cached.facts is None or cached.facts == (facts := get_facts())):
            return cached
        if len(self._by_agent) >= MAX_CACHED_PREFIXES:
            self._by_agent.clear()
            self._features.clear()
        provider = get_provider_class(entry.provider, plugins)
        settings = entry.tools, entry.prompt, entry.context_tokens, dump_compact(entry.options)
        key = provider, entry.provider, *settings, tuple(plugins)
        # Finding this out creates a provider: agents with the same model share the result.
        if key not in self._features:
            self._features[key] = _probe_features(entry, self._base, plugins)
        features = self._features[key]
        facts = facts or get_facts() if features.prompt in FORM_PROMPTS else facts
        prefix = _build_prefix(tick_context, agent, entry, allocation, selected, facts, features, basis)
        self._by_agent[agent.name] = prefix
        return prefix


def _build_prefix(
    tick_context: TickContext,
    agent: Agent,
    entry: ModelEntry,
    allocation: AgentCredits,
    selected: SelectContext | None,
    facts: FormFacts | None,
    features: ModelFeatures,
    basis: tuple[object, ...],
) -> PromptPrefix:
    settings, sections = tick_context.config.org, selected.sections if selected else ()
    payload_schemas = selected.payload_schemas if selected else ()
    allowed = tick_context.toolset.allowed_tools(agent, settings)
    listing = list_tools(allowed, agent, context_tokens=features.context_tokens, share=entry.tools_share)
    tools = (*listing.listed, *(selected.tools if selected else ()))
    limits, defaults = agent.turn, settings.defaults.turn
    instructed_agent = replace(agent, instructions="\n\n".join([agent.instructions, *sections])) if sections else agent
    choice = choose_form(agent, features, entry.max_output_tokens, facts, payload_schemas, tools) if facts else None
    schema: Mapping[str, Any] | None = choice.schema if choice else None
    if choice:
        messages = make_first_messages(instructed_agent, choice)
        is_native, actions = choice.form.style == "native", choice.actions
    else:
        tools = tuple(tool for tool in tools if is_described(tool.name, agent, needs_memory_read=True))
        is_program, is_native = features.prompt == "values", features.prompt == "full"
        messages = [] if is_program else full_prefix(instructed_agent, None if features.calls_tools else tools)
        actions = [Action(tool.name, tool.description, describe_tool(tool)["parameters"]) for tool in tools]
        if features.takes_schema:
            schema = _contract_schema(agent, () if features.calls_tools else tools, payload_schemas)
    if features.calls_tools and is_native and actions:
        messages[0]["tools"] = describe_native_tools(actions, choice.form if choice else None)
    loops = loop_limits(agent, settings.loops)
    may_go_on = choice.form.style in ("actions", "native") if choice else features.calls_tools
    default_steps = DEFAULT_MAX_STEPS if limits.strategy or may_go_on else 1
    omitted_keys = {key for key in OMITTED_DEFAULTS if getattr(entry, key) == getattr(ModelEntry, key)}
    fields = {
        "schema": schema,
        "resume": {key: value for key, value in agent.as_json.items() if key not in PREFIX_KEYS},
        "model": {key: value for key, value in vars(entry).items() if key not in omitted_keys},
        "allocation": vars(allocation),
        "max_steps": limits.max_steps or defaults.max_steps or default_steps,
        "repairs": defaults.repairs if limits.repairs is None else limits.repairs,
        "loops": vars(loops),
        **({"form": choice.form.to_json()} if choice else {}),
    }
    return PromptPrefix(
        basis=basis,
        sections=sections,
        payload_schemas=payload_schemas,
        facts=facts,
        form=choice.form if choice else None,
        takes_schema=features.takes_schema,
        calls_tools=features.calls_tools,
        fields=fields,
        loops=loops,
        messages=messages,
        encoded=dump_compact({"prompt": messages, **fields}),
        toolset=tick_context.toolset,
    )


def _contract_schema(agent: Agent, tools: Sequence[Tool], schemas: Sequence[PayloadSchema]) -> Mapping[str, Any]:
    kinds, max_entries = tuple(agent.turn.kinds), agent.turn.max_entries
    if not schemas:
        return _schema(kinds, tuple(tools), max_entries)
    extra_kinds = {kind for schema in schemas for kind in schema.kinds}.difference(kinds)
    arguments = {tool.name: tool.parameters for tool in tools}
    return reply_schema(kinds=[*kinds, *extra_kinds], tools=arguments, max_entries=max_entries, payload_schemas=schemas)


def _probe_features(entry: ModelEntry, base: Path, plugins: list[str]) -> ModelFeatures:
    """Return the features of an entry's backend. Raises `Unusable` if the provider cannot be created."""
    try:
        provider = make_provider(entry.provider, entry.options, base=base, plugins=plugins)
    except ConfigError as error:
        raise Unusable(error.message, where=error.where, hint=error.hint) from error
    if entry.tools == "native" and not (provider.takes_tools and entry.prompt in NATIVE_TOOL_PROMPTS):
        is_possible = entry.prompt in NATIVE_TOOL_PROMPTS
        reason = "the provider has no tools of its own" if is_possible else f'prompt is "{entry.prompt}"'
        message = f'{entry.provider} {entry.model} cannot use "tools": "native": {reason}'
        raise Unusable(message, where=paths.MODELS_FILE)
    prompt = entry.prompt or ("full" if provider.writes_contract else "fit")
    context_tokens = entry.context_tokens or provider.context_tokens
    is_native = has_native_tools(entry, provider)
    return ModelFeatures(
        provider.takes_schema, is_native, prompt, context_tokens, entry.provider in provided("harness_providers")
    )


def has_native_tools(entry: ModelEntry, provider: LLMProvider) -> bool:
    """Return True if a model calls tools through the backend rather than in the JSON of the reply."""
    prefers = entry.tools is None and provider.prefers_tools and entry.prompt in NATIVE_TOOL_PROMPTS
    return entry.tools == "native" or prefers


def describe_native_tools(actions: Iterable[Action], form: ReplyForm | None) -> list[dict[str, Any]]:
    """Return the tool descriptions for a backend. `tool` is the real name of a renamed tool."""
    by_name = {action.name: action for action in actions}
    names = make_native_names(by_name)
    return [
        {
            "name": names[name],
            **({} if names[name] == real_name else {"tool": real_name}),
            "description": action.about,
            "parameters": action.arguments,
        }
        for name, action in by_name.items()
        for real_name in [form.tool_name(name) if form else name]
    ]


@lru_cache(maxsize=4096)
def _schema(kinds: tuple[MessageKind, ...], tools: tuple[Tool, ...], max_entries: int) -> Mapping[str, Any]:
    return reply_schema(kinds=kinds, tools={tool.name: tool.parameters for tool in tools}, max_entries=max_entries)
