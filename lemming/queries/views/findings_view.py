"""The view of findings with their evidence; the scan runs once a tick, not for each display."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.tick_counter import load_tick
from lemming.queries.findings.finding_rules import CHECKS, apply_rules
from lemming.queries.findings.finding_scan import scan_ticks
from lemming.queries.screens.findings_screen import FINDINGS
from lemming.read_model.journal_ticks import newest_journals

Json = dict[str, Any]


def build_findings_view(org: OrgPath, *, kind: str = "", agent: str = "") -> Json:
    """Return the findings in the newest ticks, restricted to a kind or an agent if named."""
    org = Organisation.from_path(org)
    all_findings = org.get_cache(_FindingsCache).get_findings()
    rows = [row for row in all_findings["rows"] if kind in ("", row["kind"]) and (not agent or agent in row["agents"])]
    return {**all_findings, "rows": rows, "total": len(all_findings["rows"])}


class _FindingsCache:
    """Cache of the findings of the last scan."""

    def __init__(self, org: Organisation) -> None:
        self._org, self._load = org, lru_cache(1)(self._compute_findings)

    def get_findings(self) -> Json:
        """Return the findings in the newest ticks, from the cache unless a new tick has begun."""
        return self._load(load_tick(self._org), *newest_journals(self._org, 1))

    def _compute_findings(self, *_: int) -> Json:
        scan = scan_ticks(self._org)
        # A scan of many agents ends within a tick or two, in which no rule can detect repetition.
        is_cut = bool(scan.ticks) and not scan.is_complete_from_tick(max(0, scan.tick - scan.settings.window))
        return {
            "first": scan.first_tick,
            "last": scan.ticks[-1].tick if scan.ticks else None,
            "turns": len(scan.turns),
            "ticks": len(scan.ticks),
            "can_tell": not is_cut or len(scan.ticks) >= scan.settings.repeats,
            "damaged": scan.damaged,
            "kinds": {check.name: {"title": check.title, "means": check.meaning} for check in CHECKS},
            "rows": [FINDINGS.to_json(finding) for finding in apply_rules(scan)],
        }
