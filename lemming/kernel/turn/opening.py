"""What every turn of an agent begins with, as long as resume, settings and tools stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import is_
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.errors import ConfigError, Unusable
from lemming.kernel.base.jsontext import compact
from lemming.kernel.base.kinds import MessageKind
from lemming.kernel.journal.report import TurnReport
from lemming.kernel.mail.visibility import Mail
from lemming.kernel.org.blocks import LoopSettings
from lemming.kernel.org.config import MODELS_FILE, Config
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.resume import AgentCredits, TurnLimits
from lemming.kernel.providers import LLMProvider, Message, make_provider, provider_class, providers_of
from lemming.kernel.tools import Tool
from lemming.kernel.tools.listing import describe_tool, list_tools
from lemming.kernel.tools.toolset import FOR_EVERYBODY, Toolset
from lemming.kernel.turn.forms.choosing import SMALL_FORMS, Abilities, FormChoice, choose_form
from lemming.kernel.turn.forms.first_messages import make_first_messages
from lemming.kernel.turn.forms.native_names import name_natively
from lemming.kernel.turn.forms.own_actions import MEMORY_READ, TurnFacts, is_granted
from lemming.kernel.turn.forms.reply_form import ReplyForm
from lemming.kernel.turn.forms.signatures import Action
from lemming.kernel.turn.loop_breaker import loop_limits
from lemming.kernel.turn.prompt import full_opening
from lemming.kernel.turn.reply_schemas import Form, reply_schema

T = TypeVar("T")
IN_THE_OPENING = ("instructions", "examples")
MAY_BE_UNSAID = ("images", "context_tokens", "tools_share")
"""Keys of a model's line that a record leaves out where they say what they would by default."""
OPENINGS_REMEMBERED = 10_000
STEPS_TO_GO_ON = 8
"""Replies that a turn may ask for where nobody says so: with a strategy, or where one reply is not all."""
NATIVE_PROMPTS = (None, "fit", "full")
"""The values of `ModelEntry.prompt` with which a backend may call tools by itself."""


class Surroundings(Protocol):
    """One look at an organisation, in which turns are taken."""

    @property
    def org(self) -> Organisation:
        """The organisation."""
        ...

    @property
    def config(self) -> Config:
        """The settings."""
        ...

    @property
    def toolset(self) -> Toolset:
        """The tools that the organisation has."""
        ...

    @property
    def mail(self) -> Mail:
        """Who can see what."""
        ...

    @property
    def tick(self) -> int:
        """The tick's number."""
        ...

    @property
    def at(self) -> str:
        """The tick's reading of the wall clock."""
        ...

    @property
    def since(self) -> str:
        """The reading up to which the ticks before it went; empty where none is needed."""
        ...

    @property
    def chosen(self) -> Sequence[str]:
        """The agents that somebody named for this tick: they take a turn even if nothing is new to them."""
        ...

    @property
    def reports(self) -> Mapping[str, TurnReport]:
        """What became of the tick's turns that are over, by agent.

        A turn may go by those alone that it waited for: others may be over sooner, by chance.
        """
        ...

    def own(self, kind: Callable[[Surroundings], T]) -> T:
        """Return what somebody keeps of this look, made once."""
        ...

    @property
    def survey(self) -> Survey:
        """The agents."""
        ...


class Opening(NamedTuple):
    """What every turn of an agent starts from, as long as resume, settings and tools stay the same.

    `basis` is what it follows from, beside `added`, the sections after the agent's instructions. `fields` are
    those of a `TurnStarted` from `schema` to `form`, and `messages` the messages that the prompt begins
    with; `written` are both, as JSON. `facts`: those of the turn from which its `form` follows, if any do.
    """

    basis: tuple[object, ...]
    added: tuple[str, ...]
    forms: Sequence[Form]
    facts: TurnFacts | None
    form: ReplyForm | None
    takes_schema: bool
    calls_tools: bool
    fields: dict[str, Any]
    loops: LoopSettings
    messages: list[Message]
    written: bytes
    toolset: Toolset


class Openings:
    """The openings of an organisation's agents, by name, and which models take a schema."""

    def __init__(self, org: Organisation) -> None:
        self._base = org.base
        self._known: dict[str, Opening] = {}
        self._abilities: dict[tuple[object, ...], Abilities] = {}

    def of(
        self,
        now: Surroundings,
        agent: Agent,
        entry: ModelEntry,
        allocation: AgentCredits,
        added: tuple[str, ...],
        forms: Sequence[Form],
        facts_of: Callable[[], TurnFacts],
        turn_tools: Callable[[], Iterable[Tool]],
    ) -> Opening:
        """Return the agent's opening, made anew when anything that it follows from is not the very same.

        `forms`: those of the turn's entries; `turn_tools`: of tools, those that follow from the resume.
        """
        plugins = now.config.org.plugins
        basis = agent, now.config, now.toolset, providers_of(plugins)
        known = self._known.get(agent.name)
        facts: TurnFacts | None = None
        is_same = known and all(map(is_, known.basis, basis)) and (known.added, known.forms) == (added, forms)
        if known and is_same and (known.facts is None or known.facts == (facts := facts_of())):
            return known
        if len(self._known) >= OPENINGS_REMEMBERED:
            self._known.clear()
            self._abilities.clear()
        provider = provider_class(entry.provider, plugins)
        said = entry.tools, entry.prompt, entry.context_tokens, compact(entry.options)
        key = provider, entry.provider, *said, tuple(plugins)
        # A provider is made to find this out; agents of one model share what was found.
        if key not in self._abilities:
            self._abilities[key] = _abilities_of(entry, self._base, plugins)
        if self._abilities[key].prompt in SMALL_FORMS:
            facts = facts or facts_of()
        opening = _make_opening(
            basis, added, forms, facts, turn_tools, now, agent, entry, allocation, self._abilities[key]
        )
        self._known[agent.name] = opening
        return opening


def _make_opening(
    basis: tuple[object, ...],
    added: tuple[str, ...],
    forms: Sequence[Form],
    facts: TurnFacts | None,
    turn_tools: Callable[[], Iterable[Tool]],
    now: Surroundings,
    agent: Agent,
    entry: ModelEntry,
    allocation: AgentCredits,
    can: Abilities,
) -> Opening:
    settings = now.config.org
    allowed = now.toolset.allowed(agent, settings)
    listing = list_tools(allowed, agent, context_tokens=can.context_tokens, share=entry.tools_share)
    tools = (*listing.listed, *turn_tools())
    limits, defaults = agent.turn, settings.defaults.turn
    told = replace(agent, instructions="\n\n".join([agent.instructions, *added])) if added else agent
    limit = entry.max_output_tokens
    choice = choose_form(agent, can, limit, facts, forms, tools) if facts else None
    if not choice:
        tools = tuple(tool for tool in tools if _is_in_contract(tool, agent))
    messages = make_first_messages(told, choice) if choice else _contract_messages(told, tools, can)
    natively = can.calls_tools and (choice.form.style == "native" if choice else can.prompt == "full")
    if natively and (actions := choice.actions if choice else [*map(_action_of, tools)]):
        messages[0]["tools"] = describe_native_tools(actions, choice.form if choice else None)
    if choice:
        schema: Mapping[str, Any] | None = choice.schema
    else:
        schema = (
            _contract_schema(agent, () if can.calls_tools else tools, forms) if can.takes_schema else None
        )
    loops = loop_limits(agent, settings.loops)
    steps = limits.max_steps or defaults.max_steps or _steps(limits, choice, goes_on=can.calls_tools)
    fields = {
        "schema": schema,
        "resume": {key: value for key, value in agent.plain.items() if key not in IN_THE_OPENING},
        "model": _recorded_line(entry),
        "allocation": vars(allocation),
        "max_steps": steps,
        "repairs": defaults.repairs if limits.repairs is None else limits.repairs,
        "loops": vars(loops),
        **({"form": choice.form.to_json()} if choice else {}),
    }
    return Opening(
        basis=basis,
        added=added,
        forms=forms,
        facts=facts,
        form=choice.form if choice else None,
        takes_schema=can.takes_schema,
        calls_tools=can.calls_tools,
        fields=fields,
        loops=loops,
        messages=messages,
        written=compact({"prompt": messages, **fields}),
        toolset=now.toolset,
    )


def _is_in_contract(tool: Tool, agent: Agent) -> bool:
    """Return True if a prompt of the whole contract tells of a tool: of one for everybody, if it is granted.

    `memory_read` is told of in any case: what is too long to show is read with it.
    """
    return tool.name not in FOR_EVERYBODY or tool.name == MEMORY_READ or is_granted(agent, tool.name)


def _recorded_line(entry: ModelEntry) -> dict[str, Any]:
    """Return a model's line as the record of a turn has it."""
    unsaid = {key for key in MAY_BE_UNSAID if getattr(entry, key) == getattr(ModelEntry, key)}
    return {key: value for key, value in vars(entry).items() if key not in unsaid}


def _contract_messages(agent: Agent, tools: Iterable[Tool], can: Abilities) -> list[Message]:
    """Return the first messages for a model that is asked for the whole contract; a program needs none."""
    return [] if can.prompt == "values" else full_opening(agent, None if can.calls_tools else tools)


def _contract_schema(agent: Agent, tools: Sequence[Tool], forms: Sequence[Form]) -> Mapping[str, Any]:
    if not forms:
        return _schema(tuple(agent.turn.kinds), tuple(tools), agent.turn.max_entries)
    further = {kind for form in forms for kind in form.kinds}.difference(agent.turn.kinds)
    arguments = {tool.name: tool.parameters for tool in tools}
    kinds = [*agent.turn.kinds, *further]
    return reply_schema(kinds=kinds, tools=arguments, max_entries=agent.turn.max_entries, forms=forms)


def _abilities_of(entry: ModelEntry, base: Path, plugins: list[str]) -> Abilities:
    """Return what an entry's backend can do; raise `Unusable` where it cannot be made."""
    try:
        provider = make_provider(entry.provider, entry.options, base=base, plugins=plugins)
    except ConfigError as error:
        raise Unusable(error.message, where=error.where, hint=error.hint) from error
    if entry.tools == "native" and not (provider.takes_tools and entry.prompt in NATIVE_PROMPTS):
        why = (
            "its provider takes none" if entry.prompt in NATIVE_PROMPTS else f'its prompt is "{entry.prompt}"'
        )
        what = f'{entry.provider} {entry.model}: "tools": "native" is not possible: {why}'
        raise Unusable(what, where=MODELS_FILE)
    prompt = entry.prompt or ("full" if provider.writes_contract else "fit")
    context_tokens = entry.context_tokens or provider.context_tokens
    return Abilities(provider.takes_schema, calls_natively(entry, provider), prompt, context_tokens)


def calls_natively(entry: ModelEntry, provider: LLMProvider) -> bool:
    """Return whether a model calls tools by its backend, not by the JSON of its reply."""
    prefers = entry.tools is None and provider.prefers_tools and entry.prompt in NATIVE_PROMPTS
    return entry.tools == "native" or prefers


def _action_of(tool: Tool) -> Action:
    return Action(tool.name, tool.description, describe_tool(tool)["parameters"])


def describe_native_tools(actions: Iterable[Action], form: ReplyForm | None) -> list[dict[str, Any]]:
    """Return how a backend is told of tools; `tool` is the real name of one whose name is another here."""
    by_name = {action.name: action for action in actions}
    names = name_natively(by_name)
    return [
        {
            "name": names[name],
            **({} if names[name] == real else {"tool": real}),
            "description": action.about,
            "parameters": action.arguments,
        }
        for name, action in by_name.items()
        for real in [form.tool_name(name) if form else name]
    ]


def _steps(limits: TurnLimits, choice: FormChoice | None, *, goes_on: bool) -> int:
    """Return how many replies a turn may ask for where nobody says so."""
    if limits.strategy or (goes_on if choice is None else choice.form.style in ("actions", "native")):
        return STEPS_TO_GO_ON
    return 1


@lru_cache(maxsize=4096)
def _schema(kinds: tuple[MessageKind, ...], tools: tuple[Tool, ...], max_entries: int) -> Mapping[str, Any]:
    return reply_schema(
        kinds=kinds, tools={tool.name: tool.parameters for tool in tools}, max_entries=max_entries
    )
