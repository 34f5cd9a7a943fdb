"""Where entries go: an agent's readers, targets that name no agent, and what the requests of a turn fill in. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.contract import NewEntry
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.messages import OutboxEntry, parse_targets
from lemming.kernel.obligations.current_request import has_handoff
from lemming.kernel.obligations.request_payloads import parse_references
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_table import REQUEST_RULES
from lemming.kernel.turn.forms.reply_form import MOST_READERS
from lemming.kernel.turn.turn_effects import Rejected

if TYPE_CHECKING:
    from lemming.kernel.turn.turn_state_values import TurnStateValues

MAX_LISTED = 20
_RESUME = re.compile(r"agents/([^/]+)/resume\.json")


def find_unknown_targets(entry: OutboxEntry, everyone: Collection[str], written_paths: Iterable[str]) -> dict[str, str]:
    """Return a remark for each target of an entry that names no agent, by name.

    `everyone`: names of the agents at the start of the tick. `written_paths`: files that the turn writes, which
    may create agents.
    """
    if not entry.targets:
        return {}
    created = [match[1] for path in written_paths if (match := _RESUME.fullmatch(path))]
    names_by_lower = {name.lower(): name for name in (*everyone, *created)}
    unknown = sorted(entry.targets - names_by_lower.keys() - {entry.agent})
    names = sorted({*names_by_lower.values()} - {entry.agent}) if unknown else []
    listed = f"agents: {', '.join(names)}" if 0 < len(names) <= MAX_LISTED else ""
    hints = {name: did_you_mean(name, names) or listed for name in unknown}
    return {name: f'there is no agent "{name[:100]}"{f": {hints[name]}" if hints[name] else ""}' for name in unknown}


class Readers:
    """Readers of each agent's outbox, cached as long as the agents are identical."""

    def __init__(self, _: Organisation) -> None:
        self._agents: Mapping[str, Agent] = {}
        self._readers_of_all: list[str] = []
        self._by_author: dict[str, list[str]] = {}
        self._cache: dict[str, tuple[str, ...] | None] = {}

    def list_readers(self, author: str, survey: Survey) -> tuple[str, ...] | None:
        """Return the sorted readers of an agent's outbox, or None for more than `MOST_READERS`."""
        if survey.agents is not self._agents:
            self._index(survey.agents)
        if author not in self._cache:
            self._cache[author] = self._find(author)
        return self._cache[author]

    def _find(self, author: str) -> tuple[str, ...] | None:
        direct_readers = self._by_author.get(author, [])
        max_readers = MOST_READERS + 1  # the author may read all outboxes too
        if len(self._readers_of_all) + len(direct_readers) > max_readers:
            return None
        readers = tuple(sorted({*self._readers_of_all, *direct_readers} - {author}))
        return readers if len(readers) <= MOST_READERS else None

    def _index(self, agents: Mapping[str, Agent]) -> None:
        self._agents, self._readers_of_all, self._by_author, self._cache = agents, [], {}, {}
        for name, agent in agents.items():
            patterns = agent.permissions.read_outboxes
            if "*" in patterns:
                self._readers_of_all.append(name)
                continue
            for author in patterns:
                self._by_author.setdefault(author, []).append(name)


def complete_entry(turn_state: TurnStateValues, new_entry: NewEntry, *, alone: bool) -> NewEntry | Rejected:
    """Return an entry with the `reply_to` or parent request filled in; reject a cycle of requests."""
    inputs, current_request = turn_state.inputs, turn_state.inputs.current_request
    if new_entry.kind == "request" and "hands_on" in new_entry.payload:
        return _check_handoff(turn_state, new_entry)
    if current_request and not alone:
        new_entry = current_request.complete_entry(new_entry, inputs.tick, inputs.agent.name)
    new_entry = _address_answer(new_entry, inputs.open_requests)
    if current_request is None or new_entry.kind != "request":
        return new_entry
    targets = parse_targets(new_entry.payload)
    if reason := current_request.sub_request_blocker(inputs.agent.name, targets):
        return Rejected(reason)
    unbounded = inputs.given.get(REQUEST_RULES, {}).get("beyond_budget", ())
    if name := next((target for target in sorted(targets) if target in unbounded), ""):
        return Rejected(
            f"refused: what you were asked has a budget, and {name} takes what you ask in turns for its whole "
            f'inbox, which no budget bounds; name {name} in "team" of your resume and call ask_{name}'
        )
    return new_entry


def _check_handoff(turn_state: TurnStateValues, new_entry: NewEntry) -> NewEntry | Rejected:
    """Return a handoff entry as completed by the engine. Reject any other entry with `hands_on`.

    A handoff transfers the remaining budget and the duty to answer. Therefore the entry must move the request
    of this turn, at most once, to an agent listed in `hand_to`. The entry may come from a call of
    `hand_to_*`, from the approval of such a call, or from the model's own text.
    """
    inputs, current_request, payload = turn_state.inputs, turn_state.inputs.current_request, new_entry.payload
    team, text, target = inputs.agent.extensions.get("team"), payload.get("text"), payload.get("target")
    is_own = current_request and current_request.request and payload["hands_on"] == current_request.reference
    is_own = is_own and not has_handoff(turn_state.entries)
    if current_request is None or not is_own or team is None or target not in team.hand_to or not isinstance(text, str):
        return Rejected(
            "refused: hands_on is the engine's to write; call hand_to_NAME to hand on what was asked of you"
        )
    if current_request.hops >= team.max_hops:
        return Rejected(f"refused: it was handed on {current_request.hops} times")
    handoff = current_request.make_handoff(text, str(target), inputs.tick)
    return new_entry._replace(payload={**payload, **handoff.payload})


def _address_answer(new_entry: NewEntry, open_requests: Mapping[str, str]) -> NewEntry:
    """Return an answer addressed to the asker. An answer without a reference goes to the only open request.

    `open_requests`: the asker of each request, by the request's identity.
    """
    reply_to = new_entry.payload.get("reply_to")
    names = [*open_requests] if reply_to is None else parse_references(reply_to)
    matches = [identity for identity in open_requests if identity in names or identity.rpartition("_")[2] in names]
    if new_entry.kind != "response" or len(matches) != 1:
        return new_entry
    reply_fields = {"reply_to": matches[0].rpartition("_")[2], "target": open_requests[matches[0]]}
    return new_entry._replace(payload={**new_entry.payload, **reply_fields})
