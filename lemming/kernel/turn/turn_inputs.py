"""Inputs of a due agent's turn: all content of the turn, gathered once.

They are written to the journal before the first model call, and read when an interrupted tick resumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from lemming.kernel.agents import Agent, OwnFolderCheck
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import Problem
from lemming.kernel.base.jsontext import dump_compact
from lemming.kernel.base.times import format_full_moment
from lemming.kernel.base.turn_numbers import turn_key
from lemming.kernel.inboxes.inbox import NO_INBOX, Inbox
from lemming.kernel.inboxes.turn_agenda import RequestOutcome, Task
from lemming.kernel.journal.journal_file import Journal
from lemming.kernel.journal.journal_parser import (
    load_loop_settings,
    recorded_agent,
    recorded_allocation,
    recorded_model,
)
from lemming.kernel.journal.journal_records import TurnStarted
from lemming.kernel.journal.ledger import AgentState
from lemming.kernel.journal.read_cursor import ReadMark
from lemming.kernel.journal.turn_report import TurnReason
from lemming.kernel.llm.call_cost import has_reached_soft_cap
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.settings_blocks import LoopSettings
from lemming.kernel.tick_context import TickContext
from lemming.kernel.turn.addressing import Readers
from lemming.kernel.turn.dialogue import continue_dialogue, dialogue_style, find_dialogue, split_prompt_input
from lemming.kernel.turn.forms.reply_form import FormFacts, ReplyForm
from lemming.kernel.turn.loop_breaker import loop_warnings
from lemming.kernel.turn.preparation_chain import PreparationChain, require_requested_capabilities
from lemming.kernel.turn.preparation_effects import (
    BuildPrompt,
    EntryPart,
    SelectContext,
    ShowEarlierResult,
    ShowEntry,
    ShowFile,
    ShowMemory,
)
from lemming.kernel.turn.prompt_input import PromptInput, withhold_payload, withhold_value
from lemming.kernel.turn.prompt_prefix import PromptPrefix, PromptPrefixCache
from lemming.kernel.turn.turn_prompt import make_user_message
from lemming.kernel.turn.turn_values import TurnInputs
from lemming.kernel.turn.wake_check import NO_FILES, FurtherTurn, UnwrittenFiles, assemble_inbox, check_wake

if TYPE_CHECKING:
    from lemming.kernel.obligations.current_request import CurrentRequest


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class GatheredInputs:
    """Inputs of a turn, ids of the entries in the prompt, and problems with files.

    `user_message`: lines of the prompt's last message, built from `prompt_input`.
    """

    inputs: TurnInputs
    prefix: PromptPrefix
    user_message: list[str]
    prompt_input: PromptInput
    entry_ids: list[str]
    problems: tuple[Problem, ...] = ()


NO_REQUEST = TurnReason("nothing_new", "no further request is open")


def gather_inputs(
    tick_context: TickContext,
    name: str,
    unwritten_files: UnwrittenFiles = NO_FILES,
    turn: FurtherTurn | None = None,
    *,
    is_preview: bool = False,
) -> GatheredInputs | TurnReason:
    """Gather the inputs of an agent's turn, or return the reason for no turn.

    `unwritten_files`: files of earlier turns that are not on disk yet, by `FileEffect.path_key`. `turn`: set for
    a further turn of the tick, which serves a request or does not happen. `is_preview`: its folders may be read-only.

    Raises a `LemmingError` for a problem of this agent alone: an unknown model key, a forbidden context file,
    a damaged ledger.
    """
    if not is_preview:
        tick_context.org.get_cache(OwnFolderCheck).require_valid(tick_context.agent(name).name)
    check = check_wake(tick_context, name, unwritten_files, turn)
    if isinstance(check, TurnReason):
        return check
    turn_context, chain = check
    agent, entry, state, settings = turn_context.agent, turn_context.model, turn_context.state, tick_context.config.org
    memories, agenda, allocation = turn_context.memories, turn_context.agenda, turn_context.allocation
    task = agenda.next_task(state.serving, turn.served_requests if turn else ()) if agenda else None
    if turn and not task:
        return NO_REQUEST
    inbox, requests = NO_INBOX, list[OutboxEntry]()
    if not task:
        inbox = assemble_inbox(turn_context.view, settings, entry, agenda)
        requests = [*agenda.inbox_requests(inbox.unread)] if agenda else []
    if not (task or requests):
        require_requested_capabilities(inbox.unread, turn_context)
    chain = chain.with_requested(task, requests, turn_context)
    values, context, selected, request = memories.values, turn_context.context_texts, None, None
    results: Sequence[Mapping[str, Any]] = [*state.results, *task.open_request.results] if task else state.results
    if chain.names:
        candidates = SelectContext(
            task=task,
            requests=requests,
            inbox=inbox,
            memories=memories,
            context=context,
            results=results,
            labels=chain.labels,
        )
        selected = select_context(chain, candidates)
        task, requests, inbox, context = selected.task, selected.requests, selected.inbox, selected.context
        values, results = selected.memories.values, selected.results
    get_facts = partial(_collect_facts, tick_context, agent, task, requests, inbox, values)
    prefixes = tick_context.org.get_cache(PromptPrefixCache)
    prefix = prefixes.get_prefix(tick_context, agent, entry, allocation, selected, get_facts)
    dialogue = find_dialogue(task, agent, dialogue_style(prefix.form, prefix.messages)) if task else None
    # Said once, not in every prompt from here on.
    warned = has_reached_soft_cap(allocation, state.credits) and not state.soft_cap_warned
    if hidden_keys := prefix.toolset.for_agent(agent.name).own_memories:  # private memories of tools; mostly none
        values = {key: value for key, value in values.items() if key not in hidden_keys}
    prompt_input = PromptInput(
        agent=agent,
        tick=tick_context.tick,
        inbox=inbox,
        time=[_describe_time(tick_context, agent)] if agent.clock and tick_context.at else [],
        task=task,
        requests=requests,
        memory=values,
        context=context,
        sections=prefix.sections,
        results=results,
        warnings=_collect_warnings(allocation.soft_cap if warned else None, state, prefix.loops),
        memory_chars=settings.memory_chars,
        uses_wire_form=prefix.takes_schema,
        calls_tools=prefix.calls_tools,
        dialogue=dialogue,
    )
    if selected:
        prompt_input, request = _complete_prompt(chain, prompt_input, selected)
        turn_context.prompt = prompt_input
    pending_indexes = selected.pending_indexes if selected else ()
    prompt_input, awaited_results = split_prompt_input(prompt_input, state, pending_indexes)
    user_message = make_user_message(prompt_input, prefix.form, entry)
    prompt = [*map(dict, prefix.messages), {"role": "user", "content": "\n".join(user_message)}]
    inputs = TurnInputs(
        agent=agent,
        tick=tick_context.tick,
        model=entry,
        allocation=allocation,
        max_steps=prefix.fields["max_steps"],
        repairs=prefix.fields["repairs"],
        loops=prefix.loops,
        prompt=prompt,
        schema=prefix.fields["schema"],
        form=prefix.form,
        state=state,
        read=task.mark if task else inbox.mark,
        warned=warned,
        fingerprint=turn_context.fingerprint,
        current_request=request,
        open_requests={request.identity: request.agent for request in requests},
        said_requests={} if task or not inbox.unread else _find_inbox_requests(agent, inbox.unread, requests),
        damaged=frozenset(PurePosixPath(problem.file).name.removesuffix(".json") for problem in memories.problems),
        given=chain.snapshots(),
        memories_seen=memories.digests,
        turn=turn.number if turn else 0,
    )
    if dialogue and awaited_results:
        inputs.dialogue = continue_dialogue(inputs, dialogue, awaited_results, prompt_input.labels)
    new_entries = inbox.unread
    if task:
        new_entries = [outcome.answer for outcome in task.outcomes if outcome.answer]
        new_entries = new_entries or ([task.request] if task.request else [])
    entry_ids = [item.id for item in new_entries]
    return GatheredInputs(inputs, prefix, user_message, prompt_input, entry_ids, (*memories.problems, *inbox.problems))


def _describe_time(tick_context: TickContext, agent: Agent) -> str:
    zone_name = agent.schedule.timezone or tick_context.config.org.timezone or "UTC"
    return f"As the tick began it was {format_full_moment(parse_timestamp(tick_context.at), zone_name)}."


def _complete_prompt(
    chain: PreparationChain, prompt_input: PromptInput, selected: SelectContext
) -> tuple[PromptInput, CurrentRequest | None]:
    """Return the prompt as the capabilities complete it, and the request that the turn serves."""
    prompt_input.labels, prompt_input.omitted_count = selected.labels, selected.omitted_count
    prompt_input.leading_sections = selected.leading_sections
    built = chain.complete(BuildPrompt(prompt=prompt_input, selected=selected))
    return built.prompt, built.request


def _collect_facts(
    tick_context: TickContext,
    agent: Agent,
    task: Task | None,
    requests: Sequence[OutboxEntry],
    inbox: Inbox,
    memories: Mapping[str, Any],
) -> FormFacts:
    """Return the facts that determine the turn's reply form."""
    request = task.request if task else None
    memory_chars = tick_context.config.org.memory_chars
    return FormFacts(
        asker=request.agent if request else "",
        requests=tuple([entry.id for entry in requests]),
        readers=tick_context.org.get_cache(Readers).list_readers(agent.name, tick_context.survey),
        has_memories=bool(memories),
        has_long_memories=bool(memories) and sum(len(str(value)) for value in memories.values()) > memory_chars,
        has_several=len(inbox.unread) > 1,
    )


def _find_inbox_requests(
    agent: Agent, unread: Iterable[OutboxEntry], requests: Sequence[OutboxEntry]
) -> dict[str, str]:
    """Return the authors of requests to the agent that the inbox shows as ordinary entries, by identity."""
    authors: dict[str, str] = {}
    for entry in unread:  # a comprehension would be one more call in every turn
        if entry.kind == "request" and agent.name in entry.targets and entry not in requests:
            authors[entry.identity] = entry.agent
    return authors


def _collect_warnings(soft_cap: float | None, state: AgentState, limits: LoopSettings) -> list[str]:
    """Return warnings for the agent: soft cap reached, entries expired unread, turns without progress."""
    warnings = []
    if soft_cap is not None:
        warnings.append(f"You have spent {state.credits:g} credits; the soft cap is {soft_cap:g}. Be sparing.")
    if count := state.expired_unread:
        entries = f"{count} entr{'y' if count == 1 else 'ies'}"
        warnings.append(f"{entries} expired unread: removed before you were shown them.")
    return warnings + loop_warnings(state.loops, limits) if state.loops else warnings


OPTIONAL_FIELDS = ("warned", "open_requests", "said_requests", "given", "turn", "dialogue")
"""Fields of `TurnInputs` that a record holds if not empty."""
_get_optional_fields = attrgetter(*OPTIONAL_FIELDS)


def begin_turn(journal: Journal, gathered: GatheredInputs) -> None:
    """Write the inputs of a turn to the journal."""
    inputs, opening = gathered.inputs, gathered.prefix
    ledger = inputs.state.written  # where the state stands as it is written here
    state = ledger[1] if ledger else dump_compact(inputs.state.as_json())
    encoded_fields = b'%b,"state":%b' % (dump_compact(_record_fields(gathered))[1:-1], state)
    make_record = partial(to_record, gathered)
    journal.begin_turn(
        turn_key(inputs.agent.name, inputs.turn), make_record, opening.encoded, gathered.user_message, encoded_fields
    )


def to_record(gathered: GatheredInputs) -> TurnStarted:
    """Return the journal record of a turn's inputs."""
    inputs = gathered.inputs
    state = inputs.state.as_json()
    return TurnStarted(prompt=inputs.prompt, **gathered.prefix.fields, **_record_fields(gathered), state=state)


def _record_fields(gathered: GatheredInputs) -> dict[str, Any]:
    """Return the fields of a record besides prompt prefix, prompt and state."""
    inputs = gathered.inputs
    fields = {"agent": inputs.agent.name, "entries": gathered.entry_ids, "read": inputs.read.as_json()}
    if inputs.fingerprint is not None:
        fields["inputs"] = inputs.fingerprint
    if inputs.damaged:
        fields["damaged"] = sorted(inputs.damaged)
    if inputs.current_request:
        fields["task"] = inputs.current_request.as_json()
    for key, value in zip(OPTIONAL_FIELDS, _get_optional_fields(inputs), strict=True):
        if value:
            fields[key] = value
    return fields


def from_record(record: TurnStarted, tick: int, at: str) -> TurnInputs:
    """Return the inputs of an interrupted turn, with the original model and credits. `at`: the reading of its tick."""
    from lemming.kernel.obligations.current_request import CurrentRequest  # most turns have none

    return TurnInputs(
        agent=recorded_agent(record),
        tick=tick,
        model=recorded_model(record),
        allocation=recorded_allocation(record),
        max_steps=record.max_steps,
        repairs=record.repairs,
        prompt=record.prompt,
        loops=load_loop_settings(record),
        schema=record.schema,
        form=ReplyForm.from_json(record.form) if record.form else None,
        state=AgentState.from_json(record.state),
        read=ReadMark.from_json(record.read),
        fingerprint=record.inputs,
        damaged=frozenset(record.damaged),
        current_request=CurrentRequest.from_json({"at": at, **record.task}) if record.task else None,
        **{key: getattr(record, key) for key in OPTIONAL_FIELDS},
    )


def select_context(chain: PreparationChain, selected: SelectContext) -> SelectContext:
    """Return the content of the turn that all capabilities let through, as they changed it.

    Order of the effects: entries of the request, of the inbox, requests, memories, files, results.
    """
    task, memories = selected.task, selected.memories
    if ShowEntry in chain.handled:
        selected = _show_entries(chain, selected)
    if ShowMemory in chain.handled:
        shown_effects = (
            ShowMemory(memory_key=key, value=value, labels=selected.labels) for key, value in memories.values.items()
        )
        decided = {effect.memory_key: chain.decide(effect) for effect in shown_effects}
        values = {key: shown.value for key, shown in decided.items() if isinstance(shown, ShowMemory)}
        selected = replace(selected, memories=memories._replace(values=values))
    if ShowFile in chain.handled:
        effects = (ShowFile(label=label, text=text, index=i) for i, (label, text) in enumerate(selected.context))
        passed = map(chain.decide, effects)
        files = [(shown.label, shown.text) for shown in passed if isinstance(shown, ShowFile)]
        selected = replace(selected, context=files)
    if ShowEarlierResult in chain.handled and selected.results:
        selected = replace(selected, results=_show_results(chain, selected, _outcomes_by_call(task, selected.task)))
    return chain.complete(selected)


def _show_entries(chain: PreparationChain, candidates: SelectContext) -> SelectContext:
    def show(entry: OutboxEntry, part: EntryPart, outcome: RequestOutcome | None = None) -> OutboxEntry | None:
        decision = chain.decide(ShowEntry(entry=entry, part=part, outcome=outcome, labels=candidates.labels))
        if isinstance(decision, ShowEntry):
            return decision.entry
        return withhold_payload(entry, decision.reason) if part in ("request", "answer", "sub-request") else None

    def show_all(entries: Iterable[OutboxEntry], part: EntryPart) -> list[OutboxEntry]:
        return [shown for entry in entries if (shown := show(entry, part)) is not None]

    def show_request(entry: OutboxEntry) -> OutboxEntry | None:
        if (index := next((index for index, other in enumerate(candidates.inbox.unread) if other is entry), -1)) < 0:
            return show(entry, "inbox-request")
        return unread[index]  # the prompt tells the requests from the other entries by the object

    def show_outcome(outcome: RequestOutcome) -> RequestOutcome:
        answer = show(outcome.answer, "answer", outcome) if outcome.answer else None
        entry = show(outcome.entry, "sub-request", outcome) if outcome.entry else None
        return outcome._replace(answer=answer, entry=entry)

    task, inbox = candidates.task, candidates.inbox
    if task:
        request = show(task.request, "request") if task.request else None
        thread = show_all(task.thread, "thread")
        task = task._replace(request=request, thread=thread, outcomes=[*map(show_outcome, task.outcomes)])
    unread = [show(entry, "unread") for entry in inbox.unread]
    inbox = replace(inbox, unread=[*filter(None, unread)], earlier=show_all(inbox.earlier, "earlier"))
    requests = [*filter(None, map(show_request, candidates.requests))]
    return replace(candidates, task=task, inbox=inbox, requests=requests)


def _outcomes_by_call(task: Task | None, shown_task: Task | None) -> Mapping[int, list[RequestOutcome]]:
    """Return the outcomes of calls as shown, by number of the call. Outcomes with pending state are as recorded."""
    by_call: dict[int, list[RequestOutcome]] = {}
    if task and shown_task:
        for recorded, shown in zip(task.outcomes, shown_task.outcomes, strict=True):
            if call := recorded.sub_request.call:
                by_call.setdefault(call, []).append(recorded if recorded.sub_request.held else shown)
    return by_call


def _show_results(
    chain: PreparationChain, candidates: SelectContext, outcomes: Mapping[int, list[RequestOutcome]]
) -> list[Mapping[str, Any]]:
    task, results = candidates.task, []
    first = len(candidates.results) - len(task.open_request.results) if task else 0
    for index, result in enumerate(candidates.results):
        own_outcomes = outcomes.get(index - first + 1, ())
        shown = chain.decide(ShowEarlierResult(result=result, labels=candidates.labels, outcomes=own_outcomes))
        if isinstance(shown, ShowEarlierResult):
            results.append(shown.result)
        else:  # results are counted: each stays in its place
            results.append({**result, "output": withhold_value(shown.reason)})
    return results
