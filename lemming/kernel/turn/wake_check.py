"""The check that decides whether an agent runs in this tick, made before any inputs are gathered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any

from lemming.kernel.access.context_files import expand_context, load_item_text, resolve_item
from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import OutOfCredits, error_name
from lemming.kernel.inboxes.inbox import Inbox, build_inbox, has_unread
from lemming.kernel.inboxes.reader_view import ReaderView
from lemming.kernel.inboxes.turn_agenda import Agenda
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.journal.turn_report import TurnReason
from lemming.kernel.llm.call_cost import check_credits
from lemming.kernel.memory import load_memories
from lemming.kernel.org.capability_usage import resolve_credits, resolve_turn_policy
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.org.resume import ContextFile
from lemming.kernel.org.schedule import Wake
from lemming.kernel.plugins.capability_table import DECISION_RULES
from lemming.kernel.tick_context import TickContext
from lemming.kernel.tools.toolset import Toolset
from lemming.kernel.turn.preparation import TurnContext
from lemming.kernel.turn.preparation_chain import PreparationChain, UsageCache, prepare_context
from lemming.kernel.turn.tool_results import DEFERRED_KEY, WAITS_ALREADY, is_news

UnwrittenFiles = Mapping[str, bytes]


NO_FILES: UnwrittenFiles = {}


@dataclass(frozen=True, kw_only=True)
class FurtherTurn:
    """A further turn of an agent in a tick: number, requests served before, state after the previous turn."""

    number: int
    served_requests: frozenset[str]
    state: AgentState


def is_due_always(tick_context: TickContext, agent: Agent, wake: Wake, state: AgentState) -> bool:
    """Return True if a due agent takes a turn without news; never with open sub-requests, whatever its `wake`."""
    if wake != "always" and agent.name not in tick_context.chosen:
        return False
    return not (state.requests and any(request.open_sub_requests for request in state.requests))


def check_wake(
    tick_context: TickContext,
    name: str,
    unwritten_files: UnwrittenFiles = NO_FILES,
    turn: FurtherTurn | None = None,
) -> tuple[TurnContext, PreparationChain] | TurnReason:
    """Return the turn in preparation, before the inbox is opened, or the reason for none. Raises as `gather_inputs`."""
    org, config, agent = tick_context.org, tick_context.config, tick_context.agent(name)
    entry = config.model(agent.model.key)
    # A power cut may have left the line of this very turn, and taken its record.
    state = turn.state if turn else read_state(org, agent.name, before_tick=tick_context.tick)
    allocation = resolve_credits(config, agent.name, agent.credits)
    try:
        check_credits(entry, allocation, state.consumed_credits)
    except OutOfCredits as error:
        return TurnReason("out_of_credits", str(error), error_name(error))
    memories = load_memories(org, agent.name)
    expanded_agent = expand_context(agent, org.base, unwritten_files)
    texts, context_texts = [], []
    for item in expanded_agent.context:
        text = load_item_text(agent, org.base, item, unwritten_files)
        texts.append(text)
        context_texts.append(_visible_context(item, text, state.turns))
    view = ReaderView(tick_context.mail, agent, state.read)
    context = TurnContext(
        tick_context, expanded_agent, entry, state, view, allocation, unwritten_files, memories, context_texts
    )
    chain = prepare_context(context)
    _, policy = org.get_cache(UsageCache).get_usage(expanded_agent, config)
    chain.ask_due()
    if chain.may_change:
        tick_context.mail.changing.add(agent.name)  # it must not be remembered as an agent without news
    wake, context.agenda = policy.wake, chain.agenda(context, policy)
    if wake == "changed":
        context.fingerprint = _compute_fingerprint(context, texts)
        context.fingerprint["context"] |= chain.files
    is_due = turn is not None or is_due_always(tick_context, agent, wake, state)
    context.has_news = is_due or any(iter_news(context))
    context.has_own_reason = chain.should_wake(view)
    if not (context.has_news or context.has_own_reason):
        return TurnReason("nothing_new", _idle_reason(wake, state, chain))
    return context, chain


def assemble_inbox(view: ReaderView, settings: OrgSettings, model: ModelEntry, agenda: Agenda | None) -> Inbox:
    """Return the inbox of a turn. A small model gets one entry and no distractions."""
    if model.prompt != "brief":
        return build_inbox(view, limit=settings.inbox_limit, chars=settings.inbox_chars, agenda=agenda)
    return replace(build_inbox(view, limit=1, chars=settings.inbox_chars, agenda=agenda), own_entries=(), waiting=0)


def _idle_reason(wake: Wake, state: AgentState, chain: PreparationChain) -> str:
    if reason := chain.skip_reason():
        return reason
    if waiting := [sub_request.to for request in state.requests for sub_request in request.open_sub_requests]:
        return f"waits for {', '.join(sorted(set(waiting)))}"
    if wake == "addressed":
        return f"nothing was addressed to it {f'since tick {state.tick}' if state.tick >= 0 else 'yet'}"
    return f"nothing it reads has changed since tick {state.tick}"


def _visible_context(item: ContextFile, text: str, turns: int) -> tuple[str, str]:
    title = item.label or PurePosixPath(item.file).name
    if item.take == "all":
        return title, text.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return title, lines[turns % len(lines)] if lines else ""


def _compute_fingerprint(context: TurnContext, texts: list[str]) -> dict[str, Any]:
    """Return the fingerprint of the turn's inputs besides the inbox. `texts`: the whole context files."""
    agent, tick_context = context.agent, context.tick_context
    files = {
        resolve_item(agent, tick_context.base, item).path_key: sha256(
            (text if item.take == "all" else line).encode()
        ).hexdigest()
        for item, text, (_, line) in zip(agent.context, texts, context.context_texts, strict=True)
    }
    digest = tick_context.survey.digests[agent.name]
    return {"resume": digest, "memory": dict(sorted(context.memories.digests.items())), "context": files}


def iter_news(context: TurnContext) -> Iterator[str]:
    """Yield descriptions of the news for an agent that wakes only on news."""
    state, view, agenda = context.state, context.view, context.agenda
    if context.fingerprint is not None and context.fingerprint != state.inputs:
        yield from describe_changes(context.fingerprint, state.inputs)
    if state.results and has_news_of_tools(state, context.tick_context.toolset.for_agent(view.reader)):
        yield "what its tools gave"
    if agenda and (task := agenda.next_task("")):
        yield f"a request of {task.request.agent}" if task.request else "answers to what it asked"
    if has_unread(view, agenda):
        yield "entries"


def has_news_of_tools(state: AgentState, tools: Toolset) -> bool:
    """Return True if a result for the agent's next turn justifies a turn now.

    What is deferred or waits already does not while a person has to decide first: a model that asks for the same
    again would be paid for in every tick, for as long as the person takes.
    """
    is_undecided = any(DECISION_RULES in item.held for request in state.requests for item in request.open_sub_requests)
    results = (result for result in state.results if is_news(result, tools.get(result["tool"])))
    return any(
        not (is_undecided and (DEFERRED_KEY in result or result["output"] == WAITS_ALREADY)) for result in results
    )


def describe_changes(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[str]:
    """Return descriptions of the differences between two different fingerprints of an agent's inputs.

    >>> one, other = ({'resume': 'r', 'memory': {'plan': d}, 'context': {}} for d in 'ab')
    >>> describe_changes(one, other), describe_changes(one, None)
    (['memory plan'], ['everything'])
    """
    old = old or {}
    resume = ["its resume"] if new["resume"] != old.get("resume") else []
    memory = [f"memory {key}" for key in _changed_keys(new["memory"], old.get("memory", {}))]
    files = _changed_keys(new["context"], old.get("context", {}))
    return [*resume, *memory, *files] if old and (resume or memory or files) else ["everything"]


def _changed_keys(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    return [key for key in sorted({*new, *old}) if new.get(key) != old.get(key)]


def skip_reason(tick_context: TickContext, name: str) -> TurnReason | None:
    """Return the reason a due agent would take no turn, or None. Raises as `gather_inputs`."""
    check = check_wake(tick_context, name)
    return check if isinstance(check, TurnReason) else None


def turn_reason(tick_context: TickContext, name: str) -> TurnReason:
    """Return the reason for or against a due agent's turn. Raises as `gather_inputs`."""
    check = check_wake(tick_context, name)
    if isinstance(check, TurnReason):
        return check
    context, agent = check[0], tick_context.agent(name)
    if is_due_always(tick_context, agent, resolve_turn_policy(agent, tick_context.config).wake, context.state):
        return TurnReason("due")
    return TurnReason("news", f"new to it: {', '.join(iter_news(context))}")
