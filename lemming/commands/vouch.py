"""`lemming vouch`: a person says that an entry, a memory or a file may be trusted as far as they are."""

from __future__ import annotations

from typing import Annotated

from lemming.capabilities.requests.now import requests_now
from lemming.capabilities.requests.people import person_for
from lemming.capabilities.trust.marks import digest_of
from lemming.capabilities.trust.vouches import payload_of
from lemming.commands.options import AsPerson, Here, argument
from lemming.commands.screen import show, tell
from lemming.kernel import messages
from lemming.kernel.base import paths
from lemming.kernel.base.clock import SystemClock, timestamp
from lemming.kernel.base.errors import UsageError
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import OrgPath
from lemming.kernel.tick.counter import load_tick
from lemming.timeline.why.explain import path_of
from lemming.timeline.why.writings import Writings


def vouch(
    here: Here,
    target: Annotated[str, argument("TARGET", "An entry's id, a file, or AGENT/memory/KEY.")],
    person: AsPerson = None,
) -> None:
    """Clear something that came from outside: turns that are shown it are trusted as before.

    It writes an entry of the person that names it and what it holds. Once a memory or a file is written anew,
    it no longer counts. Entries that others wrote because of it are not cleared with it: `lemming why` names
    them.

    \b
    Examples:
      lemming vouch 3fa9c1d2e0b7
      lemming vouch shared/prices.csv --as eve
      lemming vouch editor/memory/sources
    """
    base = here.org
    if "trust" not in load_config(base).org.further:
        hint = 'set "trust": {} in config/org.json'
        raise UsageError("this organisation does not track how far texts are trusted", hint=hint)
    author = person_for(requests_now(base), person)
    what, digest = _named(base, target)
    entry = messages.send(
        base,
        author,
        tick=load_tick(base),
        kind="status",
        payload=dict(payload_of(what, digest)),
        tags=[],
        created_at=timestamp(SystemClock().now()),
    )
    if here.shows("entry", entry.as_json()):
        return
    show(entry.file)
    tell(f"{author} vouches for {what}{f' as it is now ({digest[:12]})' if digest else ''}")


def _named(base: OrgPath, target: str) -> tuple[str, str]:
    """Return how an entry names what is meant, and the SHA-256 of what a file holds."""
    path = path_of(Writings(base), target)
    parts = path.split("/")
    if len(parts) == 4 and parts[0] == "agents" and parts[2] == "outbox" and paths.ENTRY_FILE.match(parts[3]):
        if digest_of(base, path):
            return f"{parts[1]}/{parts[3].removesuffix('.json')}", ""
    elif digest := digest_of(base, path):
        return path, digest
    raise UsageError(f'there is no file "{target}"', hint="an entry's id, a file, or AGENT/memory/KEY")
