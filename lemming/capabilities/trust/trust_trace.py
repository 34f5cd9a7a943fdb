"""The trust trace: the path on which an item lost trust, back to its origin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lemming.capabilities.trust.author_labels import EndorsementLog
from lemming.capabilities.trust.sidecar_labels import get_label_path
from lemming.journal_tools.provenance.write_log import TrustStep, WriteLog
from lemming.journal_tools.recorded_tick import RecordedTurn
from lemming.kernel.agents import survey_agents
from lemming.kernel.base import paths
from lemming.kernel.base.integers import LAST_TICK
from lemming.kernel.base.jsontext import parse
from lemming.kernel.messages import parse_identities
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation

MAX_STEPS = 100
EARLIER_RESULT_SUFFIX = " gave before"


def trace_trust(write_log: WriteLog, path: str) -> list[TrustStep]:
    """Return the trust trace of an item, beginning with the item; empty if no turn lowered the trust."""
    endorsements = _load_endorsements(write_log)
    steps: list[TrustStep] = []
    source, label = path, ""
    turn: RecordedTurn | None = None
    while source and len(steps) < MAX_STEPS:
        turn = _find_origin_turn(write_log, source, turn)
        trust_record = _load_trust_label(turn, source) if turn else {}
        cause = next(iter(trust_record.get("from", ())), None)
        if not (steps or cause):
            break
        step = TrustStep(what=to_source_name(source), trust=trust_record["is"] if cause else label)
        if turn and cause:
            step = replace(step, tick=turn.tick, agent=turn.agent, because=cause["of"])
        steps.append(replace(step, vouched=tuple(endorsements.get(step.what, ()))))
        source, label = (cause["of"], cause["is"]) if cause else ("", "")
        source = next((name.file for name in parse_identities([source])), source)  # the path of an entry
    return steps


def _find_origin_turn(write_log: WriteLog, source: str, later: RecordedTurn | None) -> RecordedTurn | None:
    """Return the turn that wrote a source or received the source as a result."""
    position = (later.tick, later.rank) if later else None
    if source.endswith(EARLIER_RESULT_SUFFIX):
        return write_log.find_turn(later.started.state["tick"], later.agent) if later and later.started else None
    write = write_log.find_last_write(source, position=position) if "/" in source else None
    return write_log.find_turn(write.position[0], write.key) if write else None


def _load_trust_label(turn: RecordedTurn, path: str) -> dict[str, Any]:
    """Return the trust of an item a turn wrote: from its sidecar label, or else the trust of the turn."""
    sidecar = turn.writes.get(get_label_path(path))
    if sidecar is not None:
        sidecar_fields = parse(sidecar.content)
        return {"is": sidecar_fields["trust"], "from": sidecar_fields["from"]}
    return turn.report.trust if turn.report else {}


def _load_endorsements(write_log: WriteLog) -> dict[str, list[str]]:
    org = Organisation.from_path(write_log.base)
    people = survey_agents(org).find_people(load_config(org))
    endorsements: dict[str, list[str]] = {}
    for endorsement in org.get_cache(EndorsementLog).iter_from_people(people, LAST_TICK):
        endorsements.setdefault(endorsement.subject, []).append(endorsement.entry)
    return endorsements


def to_source_name(path: str) -> str:
    """Return the name of a source: the identity of an entry, or the path of any other file."""
    parts = path.split("/")
    is_entry = len(parts) == 4 and parts[0] == "agents" and parts[2] == "outbox" and paths.ENTRY_FILE.match(parts[3])
    return f"{parts[1]}/{parts[3].removesuffix('.json')}" if is_entry else path
