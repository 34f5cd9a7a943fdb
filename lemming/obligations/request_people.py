"""Choose the person to act for, and check the permissions between the asker and the target of a request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lemming.kernel.agents import suggest_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.journal.ledger import amend_state, read_state
from lemming.kernel.messages import OutboxEntry, parse_identities
from lemming.kernel.org.organisation import OrgPath
from lemming.obligations.current_requests import RequestsSnapshot
from lemming.obligations.request_view import RequestView

USUAL_PERSON = "human"


def choose_person(snapshot: RequestsSnapshot, name: str | None, *, candidates: Iterable[str] | None = None) -> str:
    """Return the acting person: the named one, else `human`, else the only person.

    With `of`, choose only among these persons. Raises `UsageError` if there is no person or the choice is ambiguous.
    """
    if name is not None:
        require_person(snapshot, name)
        return name
    people = sorted(snapshot.people if candidates is None else snapshot.people.intersection(candidates))
    if USUAL_PERSON in people:
        return USUAL_PERSON
    if not people:
        raise UsageError(
            "the organisation has no person", hint="create one with `lemming agents new human --model human`"
        )
    if len(people) > 1:
        raise UsageError("the organisation has several people", hint=f"choose one: --as {' or '.join(people)}")
    return people[0]


def require_person(snapshot: RequestsSnapshot, name: str) -> None:
    """Raise `UsageError` for a name of no person."""
    if name in snapshot.people:
        return
    if name not in snapshot.agent_names:
        raise UsageError(f'there is no agent "{name}"', hint=suggest_agent(name, sorted(snapshot.agent_names)))
    people = ", ".join(sorted(snapshot.people))
    hint = f"people here: {people or 'none; create one with the model key human'}"
    raise UsageError(f"{name} is not a person: a model answers for it", hint=hint)


def require_reachable(snapshot: RequestsSnapshot, asker: str, target: str) -> None:
    """Raise `UsageError` unless a request can reach `target` and return; the hint gives a resume's missing line."""
    if target not in snapshot.agent_names:
        raise UsageError(f'there is no agent "{target}"', hint=suggest_agent(target, sorted(snapshot.agent_names)))
    if target in paths.RESERVED_NAMES:
        hint = f"rename it: lemming agents rename {target} NEW"
        raise UsageError(paths.new_agent_name_error(target), hint=hint)
    if target == asker:
        raise UsageError(f"{asker} cannot ask itself", hint="name another agent")
    if target in snapshot.broken:
        raise snapshot.broken[target]
    for reader, author, action in ((target, asker, "be asked by"), (asker, target, "be answered by")):
        if not snapshot.may_read(reader, author):
            raise UsageError(
                f"{reader} cannot {action} {author}: {reader} may not read {author}",
                hint=suggest_permission(reader, author),
            )


def require_recipient(snapshot: RequestsSnapshot, person: str, target: str) -> None:
    """Raise `UsageError` unless an agent reads a person's messages in its turns; the hint gives the missing line."""
    if target not in snapshot.agent_names:
        raise UsageError(f'there is no agent "{target}"', hint=suggest_agent(target, sorted(snapshot.agent_names)))
    if target in snapshot.people:
        raise UsageError(f"{target} takes no turns: a person writes for it", hint=f"lemming send --to {target}")
    if target in snapshot.broken:
        raise snapshot.broken[target]
    if not snapshot.may_read(target, person):
        raise UsageError(f"{target} may not read {person}", hint=suggest_permission(target, person))


def suggest_permission(reader: str, author: str) -> str:
    """Return a hint to add the permission to read another agent's outbox."""
    return f'add "{author}" to permissions.read_outboxes in {paths.resume_file(reader)}'


def describe_assignees(request: RequestView) -> str:
    """Return the names of a request's assignees as text."""
    return " and ".join(request.assignees) or "nobody"


def get_conversation_assignee(snapshot: RequestsSnapshot, asker: str, agent: str, conversation: str) -> str:
    """Return the agent for the next question of a conversation: the agent, or the target of the last handoff."""
    if conversation:
        conversation_requests = (
            candidate for candidate in snapshot.requests.by_identity.values() if candidate.conversation == conversation
        )
        for request in sorted(conversation_requests, key=lambda candidate: candidate.name, reverse=True):
            if request.asker == asker and (agent in request.targets or request.was_assignee(agent)):
                return request.handoffs[-1].to if request.handoffs else agent
    return agent


def mark_as_read(base: OrgPath, person: str, entries: Iterable[OutboxEntry]) -> None:
    """Mark entries as read in a person's ledger, because a person takes no turns."""
    state = read_state(base, person)
    unread = {name for name in parse_identities([entry.identity for entry in entries]) if not state.read.has_seen(name)}
    if unread:
        existing = {name.identity for name in parse_identities(state.read.also) if path_exists(f"{base}/{name.file}")}
        mark = replace(state.read, also=frozenset(existing.union(name.identity for name in unread)))
        # not flushed: after a power cut the item is shown once more, which is harmless
        amend_state(base, person, replace(state, read=mark), sync=False)
