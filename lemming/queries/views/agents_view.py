"""The view of the agents: current activity or reason for none, latest entry, next turn, spending.

Only the agents in the visible window are read in full; for all other agents only the resume is read.
"""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from typing import Any

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.inboxes.entry_index import EntryIndex
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.operations.engine_lock import find_running_engine
from lemming.operations.unfinished_turns import UnfinishedTurn
from lemming.queries.capability_status import collect_capability_status
from lemming.queries.next_turn import NextTurn
from lemming.queries.org_status import build_agent_status
from lemming.queries.pending_questions import describe_pending, find_stopped_agents, list_pending_questions
from lemming.queries.sentences import AGENT_STATES, entry_to_message
from lemming.queries.tick_preview import TickPreview, load_inspection_settings, preview_tick
from lemming.queries.views.feed_view import build_feed_view
from lemming.read_model.tick_queries import find_working_turns, load_latest_reports

Json = dict[str, Any]
MAX_ROWS = 200
MAX_FACTS_SHOWN = 12
MAX_ENTRY_CHARS = 280
MAX_TURNS_SCANNED = 50

GROUPS = ("people", "waiting", "working", "failing", "idle", "paused")
"""Groups of agents in the order shown: those that need a person come first."""
MAX_AGENTS_WITH_FEED = 12
"""Maximum agents for which the last message of each is shown."""
RECENT_ENTRIES = 8
_SORTS = ("", "name", "spent", "last")


def build_agents_view(
    org: OrgPath, *, offset: int = 0, limit: int = 50, find: str = "", group: str = "", sort: str = ""
) -> Json:
    """Return the agents whose name or title contains `find`, restricted to `group`, with the size of each group.

    `sort`: "name", "spent", or "last" (newest turn first); by default agents are sorted by group.
    """
    org = Organisation.from_path(org)
    if (group and group not in GROUPS) or sort not in _SORTS:
        hint = f"use groups: {', '.join(GROUPS)}; sort: {', '.join(filter(None, _SORTS))}"
        raise UsageError("group and sort must be known names", hint=hint)
    config = load_inspection_settings(org)
    preview = preview_tick(org, config)
    builder = _AgentListBuilder(org, config, preview)
    matches = [name for name in builder.names if builder.matches(name, find.casefold())]
    groups = {name: builder.find_group(name) for name in matches}
    names = [name for name in matches if group in ("", groups[name])]
    names.sort(key=lambda name: builder.sort_key(name, groups[name], sort))
    first = max(0, min(offset, len(names) - 1))
    visible_names = names[first : first + max(1, min(limit, MAX_ROWS))]
    has_feed = len(matches) <= MAX_AGENTS_WITH_FEED and not (find or group)
    return {
        "total": len(names),
        "counts": dict.fromkeys(GROUPS, 0) | Counter(groups.values()),
        "offset": first,
        "tick": preview.tick,
        "rows": [{**builder.build_row(name), "group": groups[name]} for name in visible_names],
        "lately": build_feed_view(org, limit=RECENT_ENTRIES, threads=0)["entries"] if has_feed else [],
        "capabilities": _build_capability_cards(org, config, preview.survey),
    }


def build_agent_row(org: Organisation, name: str) -> Json:
    """Return the row of an agent: current activity or reason for none, latest entry, next turn."""
    config = load_inspection_settings(org)
    return _AgentListBuilder(org, config, preview_tick(org, config)).build_row(name)


def _build_capability_cards(org: Organisation, config: Config, survey: Survey) -> list[Json]:
    """Return a card with the status lines of each capability."""
    return [
        {
            "name": name,
            "facts": [fact._asdict() for fact in lines[:MAX_FACTS_SHOWN]],
            "left_out": max(0, len(lines) - MAX_FACTS_SHOWN),
        }
        for name, lines in collect_capability_status(org, config, survey).items()
    ]


class _AgentListBuilder:
    """Builds the rows for the agents of an organisation."""

    def __init__(self, org: Organisation, config: Config, preview: TickPreview) -> None:
        self._org, self._config, self._preview = org, config, preview
        self._survey: Survey = preview.survey
        self._working_turns = find_working_turns(org, preview.tick) if find_running_engine(org) else {}
        self._stopped_turns, self._reasons = find_stopped_agents(org), preview.plan.turn_reasons
        self._people = frozenset(self._survey.find_people(config))
        self.names = [*self._survey.agents, *self._survey.broken]

    def matches(self, name: str, find: str) -> bool:
        title = self._survey.agents[name].title if name in self._survey.agents else ""
        return find in name or find in title.casefold()

    def find_group(self, name: str) -> str:
        """Return the group of an agent, from few files, because every agent is checked."""
        agent = self._survey.agents.get(name)
        if agent is None:
            return "failing"
        if name in self._people:
            return "people"
        if name in self._working_turns:
            return "working"
        if agent.paused:
            return "paused"
        if name in self._stopped_turns:
            return "failing"
        try:
            questions = list_pending_questions(read_state(self._org, name))
        except LemmingError:
            return "failing"
        return "waiting" if any(question.held or question.to in self._people for question in questions) else "idle"

    def sort_key(self, name: str, group: str, sort: str) -> tuple[Any, ...]:
        """Return the sort key of an agent in the list."""
        if sort in ("spent", "last"):
            try:
                state = read_state(self._org, name)
            except LemmingError:
                return (0, name)
            return (-(state.consumed_credits if sort == "spent" else state.tick if state.status else -1), name)
        return (name,) if sort == "name" else (GROUPS.index(group), name)

    def build_row(self, name: str) -> Json:
        """Return the row of an agent: its state, next turn, spending and latest entry."""
        plan, agent = self._preview.plan, self._survey.agents.get(name)
        status = build_agent_status(self._org, self._survey, self._config, plan, name, self._reasons.get(name))
        current_state: Json = {"state": "broken", "text": status.problem, "since": ""}
        if agent and not status.problem:
            current_state = self._describe_state(agent, status.state)
        state, ledger = current_state["state"], status.state
        spent = {
            "turns": ledger.turns,
            "last_tick": ledger.tick if ledger.status else None,
            "credits": ledger.consumed_credits,
            "cost_usd": ledger.cost_usd,
        }
        return {
            "name": name,
            "title": agent.title if agent else "",
            "model": status.model,
            **current_state,
            "next": _describe_next_turn(state, status.upcoming, self._preview.tick),
            "next_tick": status.next_tick,
            "next_at": status.next_at,
            **(spent if status.has_ledger else {}),
            "max_credits": status.max_credits,
            "last": self._build_last_entry(name),
            "label": AGENT_STATES.get(state, state),
        }

    def _describe_state(self, agent: Agent, state: AgentState) -> Json:
        """Return an agent's state as code and description: working, failing, waiting, or the reason for idling."""
        name = agent.name
        if turn := self._working_turns.get(name):
            return {"state": "working", "text": f"calls {turn.tool}" if turn.tool else "", "since": turn.since}
        if (failed_turn := self._stopped_turns.get(name)) and not agent.paused:
            return self._describe_failure(failed_turn)
        if pending := describe_pending(state):
            return {"state": "waits", "text": pending, "since": ""}
        reason = self._preview.explain_turn(name)
        text = reason.text
        if reason.code == "nothing_new":
            text = f"nothing new since tick {state.tick}" if state.status else "nothing new yet"
        if reason.code == "ended":
            text = "in this tick"
        return {"state": reason.code, "text": text, "since": ""}

    def _describe_failure(self, failed_turn: UnfinishedTurn) -> Json:
        reports = load_latest_reports(self._org, failed_turn.agent, self._preview.tick, MAX_TURNS_SCANNED)
        times = sum(1 for _ in takewhile(lambda report: report["status"] == "failed", reports))
        frequency = f"{times} times{' or more' if times == MAX_TURNS_SCANNED else ' in a row'}: " if times > 1 else ""
        state = "failing" if failed_turn.status == "failed" else "skipped"
        state = "out_of_credits" if failed_turn.error == "OutOfCredits" else state
        facts = {"error": failed_turn.error, "times": times, "since_tick": failed_turn.since_tick}
        return {"state": state, "text": f"{frequency}{failed_turn.reason}", "since": failed_turn.since, **facts}

    def _build_last_entry(self, name: str) -> Json | None:
        """Return a short form of an agent's newest entry."""
        if not paths.AGENT_NAME.match(name):  # a folder that poses as one
            return None
        try:
            index = self._org.get_cache(EntryIndex)
            newest = index.list_outbox(name).all[-1:]
            entry = index.read(newest[0]) if newest else None
        except (LemmingError, OSError):
            return None
        if not isinstance(entry, OutboxEntry):
            return None
        message = entry_to_message(entry, MAX_ENTRY_CHARS)
        return {**message, "text": message["text"] or message["says"][:MAX_ENTRY_CHARS]}


_UNTIL = {
    "broken": "once its file is fixed",
    "person": "",
    "channel": "",
    "working": "now",
    "waits": "once it is answered",
    "paused": "once it is resumed",
    "out_of_credits": "once it may spend",
    "nothing_new": "once something is new",
    "begun": "when the tick continues",
}


def _describe_next_turn(state: str, upcoming: NextTurn | None, tick: int) -> str:
    """Return a description of an agent's next turn, or of the event the agent waits for."""
    if state in _UNTIL or upcoming is None:
        return _UNTIL.get(state, "")
    if upcoming.tick is not None:
        return "next tick" if upcoming.tick <= tick else f"tick {upcoming.tick}"
    return upcoming.description
