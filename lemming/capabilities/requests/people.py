"""For which person something is written, and whether a request reaches whom it is for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lemming.capabilities.requests.now import RequestsNow
from lemming.capabilities.requests.view import RequestView
from lemming.kernel.agents import nearest_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files.stamps import is_there
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.messages import OutboxEntry, names_of
from lemming.kernel.org.organisation import OrgPath

USUAL_PERSON = "human"


def person_for(now: RequestsNow, given: str | None, *, of: Iterable[str] | None = None) -> str:
    """Return the person who writes: the one given, else `human`, else the only one there is.

    With `of`, only those. Raises `UsageError` when there is none, or it is not clear who is meant.
    """
    if given is not None:
        require_person(now, given)
        return given
    people = sorted(now.people if of is None else now.people.intersection(of))
    if USUAL_PERSON in people:
        return USUAL_PERSON
    if not people:
        raise UsageError("there is no person here", hint="an agent with the model key human is one")
    if len(people) > 1:
        raise UsageError("there are several people here", hint=f"say who you are: --as {' or '.join(people)}")
    return people[0]


def require_person(now: RequestsNow, name: str) -> None:
    """Raise `UsageError` for a name that is no person's."""
    if name in now.people:
        return
    if name not in now.names:
        raise UsageError(f'there is no agent "{name}"', hint=nearest_agent(name, sorted(now.names)))
    people = ", ".join(sorted(now.people))
    hint = f"people here: {people or 'none; an agent with the model key human is one'}"
    raise UsageError(f"{name} speaks for itself: a model answers for it", hint=hint)


def require_reach(now: RequestsNow, asker: str, target: str) -> None:
    """Raise `UsageError` unless a request of `asker` reaches `target` and the answer comes back.

    The hint is the line of a resume that is missing.
    """
    if target not in now.names:
        raise UsageError(f'there is no agent "{target}"', hint=nearest_agent(target, sorted(now.names)))
    if target in paths.RESERVED_NAMES:
        hint = f"give it another name: lemming agents rename {target} NEW"
        raise UsageError(paths.why_no_new_agent(target), hint=hint)
    if target == asker:
        raise UsageError(f"{asker} cannot ask itself", hint="name another agent")
    if target in now.broken:
        raise now.broken[target]
    for reader, author, what in ((target, asker, "be asked by"), (asker, target, "be answered by")):
        if not now.may_read(reader, author):
            raise UsageError(
                f"{reader} cannot {what} {author}: it may not read it", hint=missing_line(reader, author)
            )


def missing_line(reader: str, author: str) -> str:
    """Return what to add to a resume so that an agent may read another's outbox."""
    return f'add "{author}" to permissions.read_outboxes in {paths.resume_file(reader)}'


def holders_of(request: RequestView) -> str:
    """Return who owes the answer, in words."""
    return " and ".join(request.holders) or "nobody"


def holder_of_conversation(now: RequestsNow, asker: str, agent: str, conversation: str) -> str:
    """Return whom the next question of a conversation goes to: the agent, or whom it handed the last to."""
    if conversation:
        said = (it for it in now.requests.by_identity.values() if it.conversation == conversation)
        for request in sorted(said, key=lambda it: it.name, reverse=True):
            if request.asker == asker and (agent in request.targets or request.was_held_by(agent)):
                return request.hops[-1].to if request.hops else agent
    return agent


def note_as_read(base: OrgPath, person: str, entries: Iterable[OutboxEntry]) -> None:
    """Note in a person's ledger that they were shown these entries; no turn of theirs ever will."""
    state = read_state(base, person)
    shown = {name for name in names_of([entry.identity for entry in entries]) if not state.read.covers(name)}
    if shown:
        kept = {name.identity for name in names_of(state.read.also) if is_there(f"{base}/{name.file}")}
        mark = replace(state.read, also=frozenset(kept.union(name.identity for name in shown)))
        # not flushed: what a power cut takes back is shown once more, no worse
        amend_state(base, person, replace(state, read=mark), sync=False)
