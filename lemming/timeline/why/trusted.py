"""The way on which something came to be trusted less, back to where it came from."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.integers import LAST_TICK
from lemming.kernel.base.jsontext import parse
from lemming.kernel.messages import names_of
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capabilities import why_missing
from lemming.kernel.tick.firing_plan import people_in
from lemming.timeline.record import TurnRecord
from lemming.timeline.why.writings import Writings

MOST_STEPS = 100
GAVE_BEFORE = " gave before"


@dataclass(frozen=True, kw_only=True)
class TrustStep:
    """One thing on the way: trusted as `trust`, since the turn that wrote it was, because of `because`.

    Without a tick no turn wrote it: that is where it came from. `vouched`: the entries of people who vouch
    for it.
    """

    what: str
    trust: str
    tick: int | None = None
    agent: str = ""
    because: str = ""
    vouched: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the step as JSON values."""
        return {**asdict(self), "vouched": [*self.vouched]}


def way_of(writings: Writings, path: str) -> list[TrustStep]:
    """Return the way of a file, a memory or an entry, itself first; nothing where no turn trusted it less."""
    if why_missing("trust"):
        return []
    vouches = _vouches(writings)
    steps: list[TrustStep] = []
    source, word = path, ""
    turn: TurnRecord | None = None
    while source and len(steps) < MOST_STEPS:
        turn = _turn_behind(writings, source, turn)
        told = _trust_of(turn, source) if turn else {}
        because = next(iter(told.get("from", ())), None)
        if not (steps or because):
            break
        step = TrustStep(what=_named(source), trust=told["is"] if because else word)
        if turn and because:
            step = replace(step, tick=turn.tick, agent=turn.agent, because=because["of"])
        steps.append(replace(step, vouched=tuple(vouches.get(step.what, ()))))
        source, word = (_path_of(because["of"]), because["is"]) if because else ("", "")
    return steps


def _turn_behind(writings: Writings, source: str, later: TurnRecord | None) -> TurnRecord | None:
    """Return the turn that a source comes from: that wrote it, or was given it."""
    before = (later.tick, later.place) if later else None
    if source.endswith(GAVE_BEFORE):
        return writings.turn(later.started.state["tick"], later.agent) if later and later.started else None
    write = writings.last_write(source, before=before) if "/" in source else None
    return writings.turn(write.moment[0], write.key) if write else None


def _trust_of(turn: TurnRecord, path: str) -> dict[str, Any]:
    """Return how far something that a turn wrote is trusted: as its mark says, else as the turn is."""
    from lemming.capabilities.trust.marks import mark_of

    mark = turn.writes.get(mark_of(path))
    if mark is not None:
        plain = parse(mark.content)
        return {"is": plain["trust"], "from": plain["from"]}
    return turn.report.trust if turn.report else {}


def _vouches(writings: Writings) -> dict[str, list[str]]:
    from lemming.capabilities.trust.vouches import Vouches

    org = Organisation.at(writings.base)
    found: dict[str, list[str]] = {}
    for vouch in org.own(Vouches).by(people_in(survey_agents(org), load_config(org)), LAST_TICK):
        found.setdefault(vouch.what, []).append(vouch.entry)
    return found


def _path_of(source: str) -> str:
    """Return the file that a source is; what a tool gave stays as it is said."""
    named = next(iter(names_of([source])), None)
    return named.file if named else source


def _named(path: str) -> str:
    """Return how a source is named: an entry by its identity, anything else by its path."""
    parts = path.split("/")
    is_entry = len(parts) == 4 and parts[0] == "agents" and parts[2] == "outbox"
    found = paths.ENTRY_FILE.match(parts[3]) if is_entry else None
    return f"{parts[1]}/{parts[3].removesuffix('.json')}" if found else path
