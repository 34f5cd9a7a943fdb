"""Summaries of ticks, outcomes of turns and current activities, from the read model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from lemming.kernel.base.clock import parse_timestamp
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.turn_report import USUAL_ENDS
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.libraries.wording import shorten_line
from lemming.queries.sentences import summarize_report
from lemming.read_model.tick_facts import JournalTick, JournalTurn
from lemming.read_model.tick_queries import load_latest_reports, load_newest_ticks, load_ticks, load_turn_report

UNNAMED_MODEL = "(a model without a name)"
MAX_TURNS_SCANNED = 50


class WrittenEntry(NamedTuple):
    """The author and kind of an entry written in a turn."""

    author: str
    kind: str


class TurnSpending(NamedTuple):
    """The spending of a turn, and the name of the last model that answered."""

    model: str
    calls: int
    credits: float
    cost_usd: float | None
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class TickSummary:
    """A summary of a tick, by agent: of several turns of one agent the last counts."""

    facts: JournalTick

    @property
    def is_committed(self) -> bool:
        """True if the tick was committed."""
        return bool(self.facts.totals)

    @property
    def begun(self) -> int:
        """The number of agents whose turn has begun."""
        return len({turn.agent for turn in self.facts.turns.values() if turn.is_started})

    @property
    def ended(self) -> Counter[str]:
        """Number of turns per outcome, as `status:end`."""
        reports = (turn.report for turn in self.facts.turns.values() if turn.report)
        return Counter(f"{report['status']}:{report.get('end') or USUAL_ENDS[report['status']]}" for report in reports)

    @property
    def shown(self) -> dict[str, list[str]]:
        """Ids of the new entries in each agent's prompt."""
        return {turn.agent: turn.new_entries for turn in self.facts.turns.values() if turn.is_started}

    @property
    def wrote(self) -> dict[str, WrittenEntry]:
        """Entries written in the tick, by id."""
        return {
            entry["id"]: WrittenEntry(turn.agent, entry["kind"])
            for turn in self.facts.turns.values()
            for entry in (turn.report or {}).get("entries", ())
        }

    @property
    def spent(self) -> dict[str, TurnSpending]:
        """Spending of finished turns that called a model, by agent."""
        reports = {turn.agent: turn.report for turn in self.facts.turns.values() if turn.report}
        return {agent: _get_spending(report) for agent, report in reports.items() if report.get("calls")}

    @property
    def duration_ms(self) -> int | None:
        """Milliseconds from the start to the last answer, or None if the times come from an earlier recording."""
        if not (self.facts.at and self.facts.last_at):
            return None
        elapsed_s = (parse_timestamp(self.facts.last_at) - parse_timestamp(self.facts.at)).total_seconds()
        return round(elapsed_s * 1000) if elapsed_s >= 0 else None


def _get_spending(report: Json) -> TurnSpending:
    amounts = [report[key] for key in TurnSpending._fields[1:]]
    return TurnSpending._make([report.get("model") or UNNAMED_MODEL, *amounts])


def summarize_newest_ticks(org: OrgPath, count: int, *, before: int | None = None) -> list[TickSummary]:
    """Return the summaries of the newest ticks that have started, oldest first, optionally of those before a tick."""
    return [*map(TickSummary, load_newest_ticks(org, count, before=before))]


def count_consecutive_failures(org: Organisation, agent: str, tick: int) -> int:
    """Return the number of consecutive failed turns of an agent before a tick, among its newest turns."""
    reports = load_latest_reports(org, agent, tick, MAX_TURNS_SCANNED)
    return sum(1 for _ in takewhile(lambda report: report["status"] == "failed", reports))


def describe_outcome(org: Organisation, tick: int, agent: str) -> Json:
    """Return the `reason` of a turn's outcome and a description `did` of its effects; both are empty if unknown."""
    report = load_turn_report(org, tick, agent)
    if not report:
        return {"reason": "", "did": ""}
    did = shorten_line(summarize_report(report), 200) or "wrote nothing"
    return {"reason": str(report.get("reason") or ""), "did": did}


def find_working_turns(org: OrgPath, tick: int) -> dict[str, JournalTurn]:
    """Return the turns of a tick that have begun and not ended, by agent."""
    turns = [turn for facts in load_ticks(org, tick, tick) for turn in facts.turns.values()]
    return {turn.agent: turn for turn in turns if turn.report is None}
