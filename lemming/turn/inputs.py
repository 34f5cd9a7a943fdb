"""From an agent that is due to the inputs of its turn: everything it will see, gathered once.

They are written to the journal (`turn_started`) before the model is asked, and read back from there when
an interrupted tick goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from operator import is_
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol

from lemming.access.grants import resolve
from lemming.access.open import read_text
from lemming.agents import Agent, AgentCredits, ContextFile, require_own_folders
from lemming.clock import parse_timestamp
from lemming.config import Config, ModelEntry, credits_of
from lemming.contract import brief_schema, reply_schema
from lemming.errors import ConfigError, OutOfCredits, Problem, Unusable, name_of
from lemming.files.jsontext import compact
from lemming.journal.ledger import AgentState, read_state
from lemming.journal.read_mark import ReadMark
from lemming.journal.records import TurnStarted
from lemming.journal.starts import agent_of, allocation_of, model_of
from lemming.kinds import MessageKind
from lemming.llm.pricing import check_credits, has_reached_soft_cap
from lemming.mail.inbox import assemble, has_unread
from lemming.mail.visibility import Mail
from lemming.memory import Memories, read_memories
from lemming.organisation import Organisation
from lemming.providers import Message, make_provider, provider_class
from lemming.report import Reason
from lemming.schedule import due_by_clock
from lemming.times.words import said_in_full, said_of_due
from lemming.tools import Tool, Toolset
from lemming.turn.news import changed, is_news
from lemming.turn.prompt import Seen, brief_opening, brief_situation, full_opening, full_situation
from lemming.turn.values import TurnInputs

NOTHING: Mapping[str, bytes] = {}
IN_THE_OPENING = ("instructions", "examples")
OPENINGS_REMEMBERED = 10_000


class Gathered(NamedTuple):
    """The inputs of a turn, the ids of the entries its prompt shows, and what was wrong with files."""

    inputs: TurnInputs
    opening: Opening
    entries: list[str]
    problems: tuple[Problem, ...] = ()


class Opening(NamedTuple):
    """What every turn of an agent starts from, as long as resume, settings and tools stay the same.

    `basis` is what it follows from. `fields` are those of a `TurnStarted` from `schema` to `repairs`, and
    `messages` the messages that the prompt begins with; `written` are both, as JSON.
    """

    basis: tuple[object, ...]
    takes_schema: bool
    fields: dict[str, Any]
    messages: list[Message]
    written: bytes


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


def gather(
    now: Surroundings, agent: Agent, digest: str, held: Mapping[str, bytes] = NOTHING
) -> Gathered | Reason:
    """Gather what an agent's turn starts from, or say why it takes none.

    `held` are files that earlier turns wrote and that are not on the disk yet, by `FileEffect.place`.

    Raises a `LemmingError` when something that only concerns this agent is wrong: an unknown model key, a
    context file it may not read, a damaged ledger.
    """
    require_own_folders(now.org.base, agent.name)
    found = _look(now, agent, digest, held)
    if isinstance(found, Reason):
        return found
    entry, state, allocation, memories, context, fingerprint = found
    settings = now.config.org
    view = now.mail.view(agent, state.read)
    inbox = assemble(view, limit=settings.inbox_limit, chars=settings.inbox_chars)
    opening = now.org.own(_Openings).of(now, agent, entry, allocation)
    warned = has_reached_soft_cap(allocation, state.credits) and not state.soft_cap_warned
    seen = Seen(
        agent=agent,
        tick=now.tick,
        inbox=inbox,
        time=[*_time_lines(now, agent)],
        memory=memories.values,
        context=context,
        results=state.results,
        warnings=[
            *([_soft_cap_warning(allocation.soft_cap, state.credits)] if warned else []),
            *([_expired_warning(state.expired_unread)] if state.expired_unread else []),
        ],
        memory_chars=settings.memory_chars,
        uses_wire_form=opening.takes_schema,
    )
    situation = brief_situation(seen) if entry.prompt == "brief" else full_situation(seen)
    inputs = TurnInputs(
        agent=agent,
        tick=now.tick,
        model=entry,
        allocation=allocation,
        max_steps=opening.fields["max_steps"],
        repairs=opening.fields["repairs"],
        prompt=[*map(dict, opening.messages), situation],
        schema=opening.fields["schema"],
        state=state,
        read=inbox.mark,
        warned=warned,
        fingerprint=fingerprint,
        damaged=frozenset(PurePosixPath(p.file).name.removesuffix(".json") for p in memories.problems),
    )
    return Gathered(
        inputs, opening, [item.id for item in inbox.unread], (*memories.problems, *inbox.problems)
    )


def why_not(now: Surroundings, agent: Agent, digest: str) -> Reason | None:
    """Return why an agent that is due would take no turn now; None when it would. Raises as `gather`."""
    found = _look(now, agent, digest, NOTHING)
    return found if isinstance(found, Reason) else None


def reason_of(now: Surroundings, agent: Agent, digest: str) -> Reason:
    """Return why an agent that is due would take a turn now, or none. Raises as `gather`."""
    found = _look(now, agent, digest, NOTHING)
    if isinstance(found, Reason):
        return found
    if found.fingerprint is None:
        return Reason("due")
    return Reason("news", f"new to it: {', '.join(_news(now, agent, found.state, found.fingerprint))}")


class _BeforeInbox(NamedTuple):
    """What an agent finds before it opens its inbox."""

    model: ModelEntry
    state: AgentState
    allocation: AgentCredits
    memories: Memories
    context: list[tuple[str, str]]
    fingerprint: dict[str, Any] | None


def _look(now: Surroundings, agent: Agent, digest: str, held: Mapping[str, bytes]) -> _BeforeInbox | Reason:
    org, config = now.org, now.config
    entry = config.model(agent.model.key)
    state = read_state(org, agent.name, before=now.tick)
    allocation = credits_of(config, agent.name, agent.credits)
    try:
        check_credits(entry, allocation, state.used_up)
    except OutOfCredits as error:
        return Reason("out_of_credits", str(error), name_of(error))
    memories = read_memories(org, agent.name)
    texts, shown = [], []
    for item in agent.context:
        text = read_text(resolve(agent, org.base, item.file, "read", caller="context"), held)
        texts.append(text)
        shown.append(_shown(item, text, state.turns))
    fingerprint = _fingerprint(agent, org.base, config, digest, memories, texts, shown)
    if fingerprint is not None and next(_news(now, agent, state, fingerprint), None) is None:
        return Reason("nothing_new", f"nothing it reads has changed since tick {state.tick}")
    return _BeforeInbox(entry, state, allocation, memories, shown, fingerprint)


def as_record(gathered: Gathered) -> tuple[TurnStarted, bytes]:
    """Return what the journal says of the inputs, and, as JSON, what all turns of the agent begin with."""
    inputs, opening = gathered.inputs, gathered.opening
    record = TurnStarted(
        agent=inputs.agent.name,
        entries=gathered.entries,
        prompt=inputs.prompt,
        **opening.fields,
        state=inputs.state.as_json(),
        read=inputs.read.as_json(),
        warned=inputs.warned,
        inputs=inputs.fingerprint,
        damaged=sorted(inputs.damaged),
    )
    return record, opening.written


def from_record(record: TurnStarted, tick: int) -> TurnInputs:
    """Return the inputs of an interrupted turn, with the model and the credits it had when it began."""
    return TurnInputs(
        agent=agent_of(record),
        tick=tick,
        model=model_of(record),
        allocation=allocation_of(record),
        max_steps=record.max_steps,
        repairs=record.repairs,
        prompt=record.prompt,
        schema=record.schema,
        state=AgentState.from_json(record.state),
        read=ReadMark.from_json(record.read),
        warned=record.warned,
        fingerprint=record.inputs,
        damaged=frozenset(record.damaged),
    )


class _Openings:
    """The openings of an organisation's agents, by name, and which models take a schema."""

    def __init__(self, org: Organisation) -> None:
        self._base = org.base
        self._known: dict[str, Opening] = {}
        self._takes_schema: dict[tuple[object, ...], bool] = {}

    def of(self, now: Surroundings, agent: Agent, entry: ModelEntry, allocation: AgentCredits) -> Opening:
        """Return the agent's opening, made anew when anything that it follows from is not the very same."""
        plugins = now.config.org.plugins
        provider = provider_class(entry.provider, plugins)
        basis = agent, now.config, now.toolset, provider
        known = self._known.get(agent.name)
        if known and all(map(is_, known.basis, basis)):
            return known
        if len(self._known) >= OPENINGS_REMEMBERED:
            self._known.clear()
            self._takes_schema.clear()
        key = provider, entry.provider, compact(entry.options), tuple(plugins)
        if key not in self._takes_schema:
            self._takes_schema[key] = _takes_schema(entry, self._base, plugins)
        opening = _make_opening(basis, now, agent, entry, allocation, self._takes_schema[key])
        self._known[agent.name] = opening
        return opening


def _make_opening(
    basis: tuple[object, ...],
    now: Surroundings,
    agent: Agent,
    entry: ModelEntry,
    allocation: AgentCredits,
    takes_schema: bool,
) -> Opening:
    settings = now.config.org
    tools = tuple(now.toolset.allowed(agent, settings).values())
    limits, defaults = agent.turn, settings.defaults.turn
    messages = brief_opening(agent) if entry.prompt == "brief" else full_opening(agent, tools)
    schema = _schema(entry.prompt, tuple(limits.kinds), tools, limits.max_entries) if takes_schema else None
    fields = {
        "schema": schema,
        "resume": {key: value for key, value in agent.plain.items() if key not in IN_THE_OPENING},
        "model": vars(entry),
        "allocation": vars(allocation),
        "max_steps": limits.max_steps or defaults.max_steps,
        "repairs": defaults.repairs if limits.repairs is None else limits.repairs,
    }
    return Opening(
        basis=basis,
        takes_schema=takes_schema,
        fields=fields,
        messages=messages,
        written=compact({"prompt": messages, **fields}),
    )


def _takes_schema(entry: ModelEntry, base: Path, plugins: list[str]) -> bool:
    try:
        return make_provider(entry.provider, entry.options, base=base, plugins=plugins).takes_schema
    except ConfigError as error:
        raise Unusable(error.message, where=error.where, hint=error.hint) from error


@lru_cache(maxsize=4096)
def _schema(
    prompt: str, kinds: tuple[MessageKind, ...], tools: tuple[Tool, ...], max_entries: int
) -> dict[str, Any]:
    if prompt == "brief":
        return brief_schema(kinds=kinds)
    arguments = {tool.name: tool.parameters for tool in tools}
    return reply_schema(kinds=kinds, tools=arguments, max_entries=max_entries)


def _shown(item: ContextFile, text: str, turns: int) -> tuple[str, str]:
    label = item.label or PurePosixPath(item.file).name
    if item.take == "all":
        return label, text.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return label, lines[turns % len(lines)] if lines else ""


def _fingerprint(
    agent: Agent,
    base: Path,
    config: Config,
    digest: str,
    memories: Memories,
    texts: list[str],
    shown: list[tuple[str, str]],
) -> dict[str, Any] | None:
    """Return the fingerprint of what the turn reads beside its inbox; None when the agent always wakes."""
    if (agent.schedule.wake or config.org.defaults.wake) == "always":
        return None
    context = {
        resolve(agent, base, item.file, "read", caller="context").key: sha256(
            (text if item.take == "all" else line).encode()
        ).hexdigest()
        for item, text, (_, line) in zip(agent.context, texts, shown, strict=True)
    }
    return {"resume": digest, "memory": dict(sorted(memories.digests.items())), "context": context}


def _news(
    now: Surroundings, agent: Agent, state: AgentState, fingerprint: Mapping[str, Any]
) -> Iterator[str]:
    """Yield in words what is new to an agent that wakes for nothing else."""
    if fingerprint != state.inputs:
        yield from changed(fingerprint, state.inputs)
    if any(is_news(result, now.toolset.get(result["tool"])) for result in state.results):
        yield "what its tools gave"
    if has_unread(now.mail.view(agent, state.read)):
        yield "entries"


def _time_lines(now: Surroundings, agent: Agent) -> Iterator[str]:
    """Yield what the prompt says of the wall clock: nothing, for an agent that does not go by it."""
    zone_name, schedule = now.config.org.timezone, agent.schedule
    if agent.clock and now.at:
        text = said_in_full(parse_timestamp(now.at), schedule.timezone or zone_name or "UTC")
        yield f"As the tick began it was {text}."
    if schedule.cron is not None and (due := due_by_clock(schedule, zone_name, now.since, now.at)):
        yield said_of_due(due)


def _soft_cap_warning(soft_cap: float | None, spent: float) -> str:
    return f"You have spent {spent:g} credits; the soft cap is {soft_cap:g}. Be sparing."


def _expired_warning(count: int) -> str:
    return f"{count} entr{'y' if count == 1 else 'ies'} expired unread: removed before you were shown them."
