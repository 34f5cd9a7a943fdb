"""Whether a request is over for whoever holds it, whatever became of it. Pure: docs/requests.md.

`lemming.capabilities.requests.rules` says the same of all requests at once, for those who look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lemming.capabilities.requests.closing import answers, cancels, is_for_any, is_past_deadline, refers_to
from lemming.mail.references import name_in, named_in
from lemming.mail.visibility import Mail
from lemming.messages import EntryName, OutboxEntry

EntriesOf = Callable[[str, int], Iterable[OutboxEntry]]
DEEPEST = 32
"""So many requests are looked at, each of which was asked for the next one."""


def is_over(request: OutboxEntry, holder: str, mail: Mail, entries_of: EntriesOf, depth: int = 0) -> bool:
    """Return whether nobody waits for a holder's answer any more: it is given, or not wanted.

    `entries_of`: what an author wrote since a tick, as far as the agent whose turn it is may know.
    """
    if is_past_deadline(request, mail.tick, mail.at):
        return True
    if any(answers(entry, request) for entry in entries_of(holder, request.tick)):
        return True
    if is_for_any(request) and any(
        answers(entry, request) and entry.payload.get("status") not in ("failed", "refused")
        for other in request.targets & mail.agents
        for entry in entries_of(other, request.tick)
    ):
        return True
    if is_cancelled(request, holder, mail, entries_of):
        return True
    return depth < DEEPEST and _has_nobody_asking(request, mail, entries_of, depth)


def is_cancelled(request: OutboxEntry, holder: str, mail: Mail, entries_of: EntriesOf) -> bool:
    """Return whether who asked, or a person whom the holder may read, says that nobody need answer."""
    resume = mail.resumes.get(holder)
    heard = {it for it in mail.persons if resume is not None and resume.may_read(it)}
    askers = {request.agent, _asker_of(request, mail)} & mail.named
    return any(
        cancels(entry, request)
        for author in sorted(heard | askers)
        for entry in entries_of(author, request.tick)
    )


def _has_nobody_asking(request: OutboxEntry, mail: Mail, entries_of: EntriesOf, depth: int) -> bool:
    """Return whether what a request was asked for is over itself."""
    asked = request.payload.get("asked")
    parent = name_in(request.payload.get("parent"))
    if not parent and isinstance(asked, dict):
        parent = name_in(asked.get("parent"))
    if not parent:
        return False
    asker = _asker_of(request, mail)
    if any(
        entry.kind == "response" and parent in named_in(entry.payload.get("reply_to"))
        for entry in entries_of(asker, request.tick)
    ):
        return True
    found = _found(parent, request, mail)
    return found is not None and is_over(found, asker, mail, entries_of, depth + 1)


def _asker_of(request: OutboxEntry, mail: Mail) -> str:
    """Return to whom the answer is owed: who asked first, where it was handed on."""
    owed = name_in(request.payload.get("owed_to")) if "hands_on" in request.payload else ""
    return owed if owed in mail.named else request.agent


def _found(parent: str, child: OutboxEntry, mail: Mail) -> OutboxEntry | None:
    """Return the request that another was asked for; None where it is not there any more."""
    for name in _earlier(parent, child, mail):
        entry = mail.read(name)
        if isinstance(entry, OutboxEntry) and entry.kind == "request" and refers_to(parent, entry):
            return entry
    return None


def _earlier(parent: str, child: OutboxEntry, mail: Mail) -> Iterator[EntryName]:
    """Yield the entries of that id, up to a child's tick, those of who is likely to have asked first."""
    path = child.payload.get("path")
    above = [it for it in path if isinstance(it, str)] if isinstance(path, list) else []
    likely = [*reversed(above), *sorted(mail.persons)]
    id_ = parent.rpartition("_")[2]
    for author in dict.fromkeys([*(it for it in likely if it in mail.named), *sorted(mail.agents)]):
        names = mail.past(author)
        yield from (name for name in reversed(names.all[: names.after(child.tick)]) if name.id == id_)
