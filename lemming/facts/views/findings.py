"""What goes wrong in what the agents do, with its evidence: looked for once a tick, not at every look."""

from __future__ import annotations

from typing import Any

from lemming.facts.findings.look import Look, look_at
from lemming.facts.findings.rules import RULES, findings_in
from lemming.kernel.journal.file import newest_journals
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.counter import load_tick

Json = dict[str, Any]


def findings(org: OrgPath, *, kind: str = "", agent: str = "") -> Json:
    """Return what was found in the newest ticks, of one kind or about one agent where these are named."""
    org = Organisation.at(org)
    shown = org.own(_Latest).look()
    rows = [it for it in shown["rows"] if kind in ("", it["kind"]) and (not agent or agent in it["agents"])]
    return {**shown, "rows": rows, "total": len(shown["rows"])}


def can_tell(look: Look) -> bool:
    """Return False where the turns that were read span too few ticks for a rule to find a repetition.

    A look ends after so many turns (`MOST_TURNS`): of many agents these are the turns of one or two ticks.
    """
    is_cut = bool(look.ticks) and not look.tells_of(max(0, look.tick - look.settings.window))
    return not is_cut or len(look.ticks) >= look.settings.repeats


class _Latest:
    """What was found last, and before which tick."""

    def __init__(self, org: Organisation) -> None:
        self._org = org
        self._before: object = None
        self._shown: Json = {}

    def look(self) -> Json:
        """Return what is found in the newest ticks: the same as before while no other tick has begun."""
        before = load_tick(self._org), newest_journals(self._org, 1)
        if before != self._before:
            self._shown, self._before = self._look(), before
        return self._shown

    def _look(self) -> Json:
        look = look_at(self._org)
        titles = {rule.kind: {"title": rule.title, "means": rule.means} for rule in RULES}
        return {
            "first": look.first,
            "last": look.ticks[-1].tick if look.ticks else None,
            "turns": len(look.turns),
            "ticks": len(look.ticks),
            "can_tell": can_tell(look),
            "damaged": look.damaged,
            "kinds": titles,
            "rows": [it.as_json() for it in findings_in(look)],
        }
