"""From an agent that is due to the inputs of its turn: everything it will see, gathered once.

They are written to the journal before the model is asked: `lemming.kernel.turn.on_record`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from lemming.kernel.access.context_files import place_of_item, text_of_item, with_context_found
from lemming.kernel.agents import Agent, OwnFolders
from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.base.errors import OutOfCredits, Problem, name_of
from lemming.kernel.base.times.words import full_moment_text
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.journal.report import Reason
from lemming.kernel.llm.credits import check_credits, has_reached_soft_cap
from lemming.kernel.mail.agenda import Agenda
from lemming.kernel.mail.inbox import NO_INBOX, Inbox, assemble, has_unread
from lemming.kernel.mail.task import Task
from lemming.kernel.mail.visibility import View
from lemming.kernel.memory import Memories, read_memories
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import Org, credits_of
from lemming.kernel.org.models import ModelEntry
from lemming.kernel.org.resume import AgentCredits, ContextFile
from lemming.kernel.org.schedule import Wake
from lemming.kernel.org.uses import habits_of
from lemming.kernel.tools.toolset import Toolset
from lemming.kernel.turn.dialogue import continue_dialogue, dialogue_style, find_dialogue, split_seen
from lemming.kernel.turn.forms.own_actions import TurnFacts
from lemming.kernel.turn.labels import Labels
from lemming.kernel.turn.loop_breaker import loop_warnings
from lemming.kernel.turn.moments import Moment, Showing
from lemming.kernel.turn.news import changed, is_news
from lemming.kernel.turn.opening import Opening, Openings, Surroundings
from lemming.kernel.turn.places import ToShow
from lemming.kernel.turn.prepared import Prepared, Uses, prepared_for, require_asked_for
from lemming.kernel.turn.readers import Readers
from lemming.kernel.turn.seen import Seen
from lemming.kernel.turn.user_message import make_situation
from lemming.kernel.turn.values import TurnInputs

Held = Mapping[str, bytes]
Tell = Callable[[Task | None], Sequence[Mapping[str, Any]]]
NOTHING: Held = {}


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class Gathered:
    """The inputs of a turn, the ids of the entries its prompt shows, and what was wrong with files.

    `situation`: the lines of the prompt's last message, made of what is `seen`.
    """

    inputs: TurnInputs
    opening: Opening
    situation: list[str]
    seen: Seen
    entries: list[str]
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FurtherTurn:
    """A further turn of an agent in a tick: its number, the requests of those before, the state they left."""

    number: int
    taken: frozenset[str]
    state: AgentState


NO_REQUEST = Reason("nothing_new", "no further request is open")


def gather(
    now: Surroundings, agent: Agent, digest: str, held: Held = NOTHING, turn: FurtherTurn | None = None
) -> Gathered | Reason:
    """Gather what an agent's turn starts from, or say why it takes none.

    `held` are files that earlier turns wrote and that are not on the disk yet, by `FileEffect.place`. `turn`:
    where it is not the agent's first in the tick; then it is for a request, or there is none.

    Raises a `LemmingError` when something that only concerns this agent is wrong: an unknown model key, a
    context file it may not read, a damaged ledger.
    """
    now.org.own(OwnFolders).require(agent.name)
    found = find(now, agent, digest, held, turn)
    if isinstance(found, Reason):
        return found
    moment, allocation, memories, context = found.moment, found.allocation, found.memories, found.context
    view, agenda, prepared = found.view, found.agenda, found.prepared
    agent, entry, state, settings = moment.agent, moment.model, moment.state, now.config.org
    task = agenda.next(state.serving, turn.taken if turn else ()) if agenda else None
    if turn and not task:
        return NO_REQUEST
    inbox, asked = NO_INBOX, list[OutboxEntry]()
    if not task:
        inbox = _assemble_inbox(view, settings, entry, agenda)
        asked = [*agenda.beside(inbox.unread)] if agenda else []
    if not (task or asked):
        require_asked_for(inbox.unread, moment)
    prepared = prepared.and_for(task, asked, moment)
    labels = prepared.labels()
    tell: Callable[[Task | None], Sequence[Mapping[str, Any]]] = partial(
        _earlier_results, state.results, prepared, labels
    )
    offered = ToShow(task, inbox, asked, memories, context, tell)
    # First what may be shown at all: what shortens and sums up must not see what is held back.
    offered = prepared.looks(offered)
    task, asked, memories, context = offered.task, offered.asked, offered.memories, offered.context
    results = offered.tell(task)
    shown = prepared.shows(Showing(task, offered.inbox, memories, results, labels))
    task, inbox = shown.task, shown.inbox
    added = prepared.sections()
    forms = prepared.forms(task, asked)
    facts_of = partial(_facts_of, now, agent, task, asked, inbox, shown.memories.values)
    opening = now.org.own(Openings).of(now, agent, entry, allocation, added, forms, facts_of, prepared.tools)
    dialogue = find_dialogue(task, agent, dialogue_style(opening.form, opening.messages)) if task else None
    # Said once, not in every prompt from here on.
    warned = has_reached_soft_cap(allocation, state.credits) and not state.soft_cap_warned
    seen = Seen(
        agent=agent,
        tick=now.tick,
        inbox=inbox,
        time=[*_time_lines(now, agent)],
        task=task,
        asked=asked,
        memory=_memory_shown(opening.toolset.of(agent.name), shown.memories.values),
        context=context,
        added=added,
        results=results,
        warnings=[
            *_warnings_of(allocation.soft_cap if warned else None, state),
            *(loop_warnings(state.loops, opening.loops) if state.loops else ()),
        ],
        memory_chars=settings.memory_chars,
        uses_wire_form=opening.takes_schema,
        calls_tools=opening.calls_tools,
        left_out=shown.left_out,
        before=shown.before,
        labels=labels,
        dialogue=dialogue,
    )
    prepared.annotates(seen, shown)
    seen, waited = split_seen(seen, state, shown.to_come)
    situation = make_situation(seen, opening.form, entry)
    prompt = [*map(dict, opening.messages), {"role": "user", "content": "\n".join(situation)}]
    inputs = TurnInputs(
        agent=agent,
        tick=now.tick,
        model=entry,
        allocation=allocation,
        max_steps=opening.fields["max_steps"],
        repairs=opening.fields["repairs"],
        loops=opening.loops,
        prompt=prompt,
        schema=opening.fields["schema"],
        form=opening.form,
        state=state,
        read=task.mark if task else inbox.mark,
        warned=warned,
        fingerprint=found.fingerprint,
        task=prepared.purpose(task) if task else None,
        open_requests={request.identity: request.agent for request in asked},
        said_requests={} if task or not inbox.unread else _said_requests(agent, inbox.unread, asked),
        damaged=frozenset(PurePosixPath(p.file).name.removesuffix(".json") for p in memories.problems),
        given=prepared.given(),
        memories_seen=found.memories.digests,
        turn=turn.number if turn else 0,
    )
    if dialogue and waited:
        inputs.dialogue = continue_dialogue(inputs, dialogue, waited, labels)
    ids = [item.id for item in inbox.unread] if task is None else _entries_of(task)
    return Gathered(inputs, opening, situation, seen, ids, (*memories.problems, *inbox.problems))


def _facts_of(
    now: Surroundings,
    agent: Agent,
    task: Task | None,
    asked: Sequence[OutboxEntry],
    inbox: Inbox,
    memories: Mapping[str, Any],
) -> TurnFacts:
    """Return the facts from which the turn's reply form follows."""
    request = task.request if task else None
    room = now.config.org.memory_chars
    return TurnFacts(
        asker=request.agent if request else "",
        asked=tuple([entry.id for entry in asked]),
        readers=now.org.own(Readers).list_of(agent.name, now.survey),
        has_memories=bool(memories),
        has_long_memories=bool(memories) and sum(len(str(value)) for value in memories.values()) > room,
        has_several=len(inbox.unread) > 1,
    )


def _earlier_results(
    earlier: Sequence[Mapping[str, Any]], prepared: Prepared, labels: Labels, task: Task | None
) -> Sequence[Mapping[str, Any]]:
    """Return the results of earlier calls that a turn's prompt shows."""
    if task is None:
        return earlier
    return prepared.earlier_results(task, [*earlier, *task.begun.results], labels)


def _said_requests(
    agent: Agent, unread: Iterable[OutboxEntry], asked: Sequence[OutboxEntry]
) -> dict[str, str]:
    """Return the authors of the requests to the agent that its inbox shows as it shows any entry."""
    found: dict[str, str] = {}
    for entry in unread:  # a comprehension would be one more call in every turn
        if entry.kind == "request" and agent.name in entry.targets and entry not in asked:
            found[entry.identity] = entry.agent
    return found


def _entries_of(task: Task) -> list[str]:
    """Return the ids of the entries that a turn for a request is shown as new."""
    answers = [ended.answer.id for ended in task.asked if ended.answer]
    return [task.request.id, *answers] if task.request and not answers else answers


def _memory_shown(toolset: Toolset, values: dict[str, Any]) -> dict[str, Any]:
    """Return the memories that a prompt shows: not those that are a tool's own."""
    if toolset.own_memories:
        # Most agents have none, and this is done for every turn.
        return {key: value for key, value in values.items() if key not in toolset.own_memories}
    return values


def _warnings_of(soft_cap: float | None, state: AgentState) -> list[str]:
    """Return what an agent is warned of: that it has reached its soft cap, that entries expired unread."""
    warnings = []
    if soft_cap is not None:
        warnings.append(
            f"You have spent {state.credits:g} credits; the soft cap is {soft_cap:g}. Be sparing."
        )
    if count := state.expired_unread:
        entries = f"{count} entr{'y' if count == 1 else 'ies'}"
        warnings.append(f"{entries} expired unread: removed before you were shown them.")
    return warnings


def _time_lines(now: Surroundings, agent: Agent) -> Iterator[str]:
    """Yield what the prompt says of the wall clock: nothing, for an agent that does not go by it."""
    if agent.clock and now.at:
        zone_name = agent.schedule.timezone or now.config.org.timezone or "UTC"
        text = full_moment_text(parse_timestamp(now.at), zone_name)
        yield f"As the tick began it was {text}."


def why_not(now: Surroundings, agent: Agent, digest: str) -> Reason | None:
    """Return why an agent that is due would take no turn now; None when it would. Raises as `gather`."""
    found = find(now, agent, digest)
    return found if isinstance(found, Reason) else None


def reason_of(now: Surroundings, agent: Agent, digest: str) -> Reason:
    """Return why an agent that is due would take a turn now, or none. Raises as `gather`."""
    found = find(now, agent, digest)
    if isinstance(found, Reason):
        return found
    state = found.moment.state
    if _is_due_always(now, agent, habits_of(agent, now.config).wake, state):
        return Reason("due")
    news = _news(now, state, found.fingerprint, found.view, found.agenda)
    return Reason("news", f"new to it: {', '.join(news)}")


def _is_due_always(now: Surroundings, agent: Agent, wake: Wake, state: AgentState) -> bool:
    """Return True if an agent takes its turn without news; one that waits for answers takes none."""
    if wake != "always" and agent.name not in now.chosen:
        return False
    return not (state.requests and any(begun.open for begun in state.requests))


@dataclass(slots=True)  # made for every turn, and a named tuple takes twice as long
class FoundFirst:
    """What an agent finds before it opens its inbox."""

    moment: Moment
    allocation: AgentCredits
    memories: Memories
    context: list[tuple[str, str]]
    fingerprint: dict[str, Any] | None
    view: View
    agenda: Agenda | None
    prepared: Prepared
    asks: bool


def find(
    now: Surroundings, agent: Agent, digest: str, held: Held = NOTHING, turn: FurtherTurn | None = None
) -> FoundFirst | Reason:
    """Return what an agent finds before it opens its inbox, or why it takes no turn. Raises as `gather`."""
    org, config = now.org, now.config
    entry = config.model(agent.model.key)
    # A power cut may have left the line of this very turn, and taken its record.
    state = turn.state if turn else read_state(org, agent.name, before=now.tick)
    allocation = credits_of(config, agent.name, agent.credits)
    try:
        check_credits(entry, allocation, state.used_up)
    except OutOfCredits as error:
        return Reason("out_of_credits", str(error), name_of(error))
    memories = read_memories(org, agent.name)
    there = with_context_found(agent, org.base, held)
    texts, shown = [], []
    for item in there.context:
        text = text_of_item(agent, org.base, item, held)
        texts.append(text)
        shown.append(_shown(item, text, state.turns))
    moment = Moment(now, there, entry, state, held)
    view = now.mail.view(agent, state.read)
    prepared, (_, habits) = prepared_for(moment, view), org.own(Uses).of(there, config)
    files, wake = prepared.finds(memories), habits.wake
    agenda = prepared.agenda(view, habits)
    fingerprint = None
    if wake == "changed":
        fingerprint = _fingerprint(there, org.base, digest, memories, texts, shown)
        fingerprint["context"] |= files
    is_due = turn is not None or _is_due_always(now, agent, wake, state)
    is_news = is_due or any(_news(now, state, fingerprint, view, agenda))
    asks = prepared.wakes(view, is_alone=not is_news)
    if not (is_news or asks):
        return Reason("nothing_new", _why_nothing(wake, state, prepared))
    return FoundFirst(moment, allocation, memories, shown, fingerprint, view, agenda, prepared, asks)


def _assemble_inbox(view: View, settings: Org, model: ModelEntry, agenda: Agenda | None) -> Inbox:
    """Return the entries of a turn; a small model gets one, and nothing that takes its mind off it."""
    if model.prompt != "brief":
        return assemble(view, limit=settings.inbox_limit, chars=settings.inbox_chars, agenda=agenda)
    return replace(assemble(view, limit=1, chars=settings.inbox_chars, agenda=agenda), own=(), waiting=0)


def _why_nothing(wake: Wake, state: AgentState, prepared: Prepared) -> str:
    if why := prepared.why_resting():
        return why
    if waiting := [asked.to for begun in state.requests for asked in begun.open]:
        return f"waits for {', '.join(sorted(set(waiting)))}"
    if wake == "addressed":
        return f"nothing was addressed to it {f'since tick {state.tick}' if state.tick >= 0 else 'yet'}"
    return f"nothing it reads has changed since tick {state.tick}"


def _shown(item: ContextFile, text: str, turns: int) -> tuple[str, str]:
    label = item.label or PurePosixPath(item.file).name
    if item.take == "all":
        return label, text.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return label, lines[turns % len(lines)] if lines else ""


def _fingerprint(
    agent: Agent,
    base: Path,
    digest: str,
    memories: Memories,
    texts: list[str],
    shown: list[tuple[str, str]],
) -> dict[str, Any]:
    """Return the fingerprint of what the turn reads beside its inbox."""
    context = {
        place_of_item(agent, base, item).key: sha256(
            (text if item.take == "all" else line).encode()
        ).hexdigest()
        for item, text, (_, line) in zip(agent.context, texts, shown, strict=True)
    }
    return {"resume": digest, "memory": dict(sorted(memories.digests.items())), "context": context}


def _news(
    now: Surroundings,
    state: AgentState,
    fingerprint: Mapping[str, Any] | None,
    view: View,
    agenda: Agenda | None,
) -> Iterator[str]:
    """Yield in words what is new to an agent that wakes for nothing else."""
    if fingerprint is not None and fingerprint != state.inputs:
        yield from changed(fingerprint, state.inputs)
    if any(is_news(result, now.toolset.of(view.reader).get(result["tool"])) for result in state.results):
        yield "what its tools gave"
    if agenda and (task := agenda.next("")):
        yield f"a request of {task.request.agent}" if task.request else "answers to what it asked"
    if has_unread(view, agenda):
        yield "entries"
