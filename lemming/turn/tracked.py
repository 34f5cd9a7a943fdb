"""How far a turn is trusted as it begins: as far as the least trusted of all that its prompt shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lemming import paths
from lemming.memory import Memories
from lemming.turn.opening import Surroundings
from lemming.turn.prompt import Seen
from lemming.turn.recollection import Recalled, summary_key
from lemming.turn.values import TurnInputs

if TYPE_CHECKING:
    from lemming.messages import OutboxEntry
    from lemming.trust.authors import Authors
    from lemming.trust.order import Part
    from lemming.trust.turn import TurnTrust


def trust_of_turn(inputs: TurnInputs) -> TurnTrust | None:
    """Return how far a turn is trusted as it goes on; None where nobody tracks that."""
    if not inputs.trust:
        return None
    from lemming.trust.turn import TurnTrust

    return TurnTrust(inputs.trust)


def track(now: Surroundings, seen: Seen, recalled: Recalled, memories: Memories) -> dict[str, Any]:
    """Return what the journal says of how far a turn is trusted that is shown all this."""
    from lemming.trust.authors import Authors
    from lemming.trust.order import AGENT
    from lemming.trust.turn import as_recorded

    authors = Authors(now.config, now.mail.resumes)
    base = authors.order.lowest((AGENT, authors.of_author(seen.agent.name)))
    return as_recorded(authors.order, _shown(authors, seen, recalled, memories), base)


def _shown(authors: Authors, seen: Seen, recalled: Recalled, memories: Memories) -> Iterator[Part]:
    """Yield how far each part of what a turn is shown is trusted."""
    from lemming.trust.order import AGENT, Part

    for entry in (*_entries(seen), *recalled.fallen):
        yield Part(authors.of_entry(entry), entry.identity)
    for key in _memories_shown(seen, recalled, memories):
        if key in memories.trust:
            yield Part(authors.order.known(memories.trust[key]), paths.memory_file(seen.agent.name, key))
    for result in seen.results:
        yield Part(authors.order.known(result.get("trust", AGENT)), f"what {result['tool']} gave before")


def _entries(seen: Seen) -> Iterator[OutboxEntry]:
    yield from (*seen.inbox.unread, *seen.inbox.known, *seen.inbox.own, *seen.asked)
    if task := seen.task:
        yield from (*([task.request] if task.request else []), *task.thread)
        for ended in task.asked:
            yield from filter(None, (ended.entry, ended.answer))


def _memories_shown(seen: Seen, recalled: Recalled, memories: Memories) -> Iterator[str]:
    """Yield the keys of the memories that a turn is shown, by its prompt or by its strategy."""
    yield from memories.values if seen.agent.turn.strategy else seen.memory
    if seen.task and (recalled.summary or recalled.recap):
        yield summary_key(seen.task)
