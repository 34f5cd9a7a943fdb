"""For which person something is written, and whether a request reaches whom it is for."""

from __future__ import annotations

from collections.abc import Iterable

from lemming import paths
from lemming.agents import nearest_agent
from lemming.errors import UsageError
from lemming.inspect.requests import RequestsNow
from lemming.mail.requests import RequestView

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
    if name not in now.known:
        raise UsageError(f'there is no agent "{name}"', hint=nearest_agent(name, sorted(now.known)))
    people = ", ".join(sorted(now.people))
    hint = f"people here: {people or 'none; an agent with the model key human is one'}"
    raise UsageError(f"{name} speaks for itself: a model answers for it", hint=hint)


def require_reach(now: RequestsNow, asker: str, target: str) -> None:
    """Raise `UsageError` unless a request of `asker` reaches `target` and the answer comes back.

    The hint is the line of a resume that is missing.
    """
    if target not in now.known:
        raise UsageError(f'there is no agent "{target}"', hint=nearest_agent(target, sorted(now.known)))
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
