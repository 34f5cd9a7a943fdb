"""The agents: what each is doing now or why not, its last words, when it is due, what it has spent.

Only those in the window are read: of the others nothing but their resumes.
"""

from __future__ import annotations

from typing import Any

from lemming.facts.capabilities import facts_of
from lemming.facts.next_turn import NextTurn, next_turn
from lemming.facts.pending import find_stopped_agents, pending_questions, pending_text
from lemming.facts.preview import Preview, preview_tick, settings_to_look_by
from lemming.facts.views.feed import feed
from lemming.facts.views.glances import MOST_TICKS, DoingNow, doing_in, failures_in_a_row
from lemming.facts.views.sentences import message_of
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base import paths
from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.journal.ledger import AgentState, read_state
from lemming.kernel.mail.index import EntryIndex
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import Config, credits_of
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.kernel.tick.firing_plan import people_in
from lemming.kernel.tick.turns_not_done import NotDone
from lemming.service.under_way import running_engine

Json = dict[str, Any]
MOST_ROWS = 200
FACTS_SHOWN = 12
WORDS_CHARS = 280


GROUPS = ("people", "waiting", "working", "failing", "idle", "paused")
"""What an agent is in, in the order in which they are shown: what a person has to do with comes first."""
FEW = 12
"""Of so few agents there is room for what was said last by any of them."""
LATELY = 8
_SORTS = ("", "name", "spent", "last")


def agents(
    org: OrgPath, *, offset: int = 0, limit: int = 50, find: str = "", group: str = "", sort: str = ""
) -> Json:
    """Return the agents whose names or titles hold `find`, of one `group` if that is named; `counts` of each.

    `sort`: by name, by what they have spent, by when they took their last turn; else by what they do.
    """
    org = Organisation.at(org)
    if (group and group not in GROUPS) or sort not in _SORTS:
        hint = f"groups: {', '.join(GROUPS)}; sort: {', '.join(filter(None, _SORTS))}"
        raise UsageError("there is no such group, or order", hint=hint)
    config = settings_to_look_by(org)
    preview = preview_tick(org, config)
    look = _Look(org, config, preview)
    found = [name for name in look.names if look.is_found(name, find.casefold())]
    groups = {name: look.group(name) for name in found}
    names = [name for name in found if group in ("", groups[name])]
    names.sort(key=lambda name: look.place(name, groups[name], sort))
    first = max(0, min(offset, len(names) - 1))
    shown = names[first : first + max(1, min(limit, MOST_ROWS))]
    is_few = len(found) <= FEW and not (find or group)
    return {
        "total": len(names),
        "counts": {each: sum(it == each for it in groups.values()) for each in GROUPS},
        "offset": first,
        "tick": preview.tick,
        "rows": [{**look.row(name), "group": groups[name]} for name in shown],
        "lately": feed(org, limit=LATELY, threads=0)["entries"] if is_few else [],
        "capabilities": _capability_cards(org, config, preview.survey),
    }


def now_of(org: Organisation, name: str) -> Json:
    """Return what one agent does now or why not, with its last words and when it is due: its row."""
    config = settings_to_look_by(org)
    return _Look(org, config, preview_tick(org, config)).row(name)


def _capability_cards(org: Organisation, config: Config, survey: Survey) -> list[Json]:
    """Return what capabilities say, a card each."""
    return [
        {
            "name": name,
            "facts": [it._asdict() for it in facts[:FACTS_SHOWN]],
            "left_out": max(0, len(facts) - FACTS_SHOWN),
        }
        for name, facts in facts_of(org, config, survey).items()
    ]


class _Look:
    """One look at the agents of an organisation."""

    def __init__(self, org: Organisation, config: Config, preview: Preview) -> None:
        self._org, self._config, self._preview = org, config, preview
        self._survey: Survey = preview.survey
        self._doing = doing_in(org, preview.tick) if running_engine(org) else {}
        self._not_done = find_stopped_agents(org)
        self._people = frozenset(people_in(self._survey, config))
        self.names = [*self._survey.agents, *self._survey.broken]

    def is_found(self, name: str, find: str) -> bool:
        title = self._survey.agents[name].title if name in self._survey.agents else ""
        return find in name or find in title.casefold()

    def group(self, name: str) -> str:
        """Return in which group an agent is: read from little, as all are asked."""
        agent = self._survey.agents.get(name)
        if agent is None:
            return "failing"
        if name in self._people:
            return "people"
        if self._is_working(name):
            return "working"
        if agent.paused:
            return "paused"
        if name in self._not_done:
            return "failing"
        try:
            return "waiting" if self._is_for_people(read_state(self._org, name)) else "idle"
        except LemmingError:
            return "failing"

    def place(self, name: str, group: str, sort: str) -> tuple[Any, ...]:
        """Return where in the list an agent comes; sorts by that."""
        if sort in ("spent", "last"):
            try:
                state = read_state(self._org, name)
            except LemmingError:
                return (0, name)
            return (-(state.used_up if sort == "spent" else state.tick if state.status else -1), name)
        return (name,) if sort == "name" else (GROUPS.index(group), name)

    def _is_for_people(self, state: AgentState) -> bool:
        """Return whether an agent waits for a person."""
        return any(asked.held or asked.to in self._people for asked in pending_questions(state))

    def row(self, name: str) -> Json:
        try:
            state = read_state(self._org, name)
        except (
            LemmingError,
            ValueError,
        ) as error:  # a damaged ledger; a folder that no agent can be named like
            return self._broken(name, self._survey.broken.get(name, error))
        if name in self._survey.broken:
            return {**self._broken(name, self._survey.broken[name]), **_amounts(state)}
        agent = self._survey.agents[name]
        coming = next_turn(self._org, agent, self._config, self._preview.tick)
        limit = credits_of(self._config, name, agent.credits).max_credits
        return {
            "name": name,
            "title": agent.title,
            "model": agent.model.key,
            **(now := self._state(agent, state)),
            "next": _next(now["state"], coming, self._preview.tick),
            "next_tick": coming.tick,
            "next_at": coming.as_text,
            **_amounts(state),
            "max_credits": limit,
            "last": self._last(name),
        }

    def _broken(self, name: str, error: Exception) -> Json:
        plain = {"name": name, "title": "", "state": "broken", "text": str(error), "since": ""}
        return {**plain, "next": "once its file is mended", "last": self._last(name)}

    def _is_working(self, name: str) -> bool:
        return name in self._doing and not self._doing[name].is_over

    def _state(self, agent: Agent, state: AgentState) -> Json:
        """Return what an agent does, in one word and in words: working, failing, waiting, or why nothing."""
        name = agent.name
        if self._is_working(name):
            return _working(self._doing[name])
        if (wrong := self._not_done.get(name)) and not agent.paused:
            return self._failing(wrong)
        if waits := pending_text(state):
            return {"state": "waits", "text": waits, "since": ""}
        reason = self._preview.reason_of(name)
        text = reason.text
        if reason.why == "nothing_new":
            text = f"nothing new since tick {state.tick}" if state.status else "nothing new yet"
        if reason.why == "ended":
            text = "in this tick"
        return {"state": reason.why, "text": text, "since": ""}

    def _failing(self, wrong: NotDone) -> Json:
        times = failures_in_a_row(self._org, wrong.agent, self._preview.tick)
        often = f"{times} times{' or more' if times == MOST_TICKS else ' in a row'}: " if times > 1 else ""
        state = "failing" if wrong.status == "failed" else "skipped"
        state = "out_of_credits" if wrong.error == "OutOfCredits" else state
        facts = {"error": wrong.error, "times": times, "since_tick": wrong.since_tick}
        return {
            "state": state,
            "text": f"{often}{wrong.reason}",
            "since": wrong.since,
            **facts,
        }

    def _last(self, name: str) -> Json | None:
        """Return the newest entry of an agent, in short."""
        if not paths.AGENT_NAME.match(name):  # a folder that poses as one
            return None
        try:
            index = self._org.own(EntryIndex)
            newest = index.outbox(name).all[-1:]
            entry = index.read(newest[0]) if newest else None
        except (LemmingError, OSError):
            return None
        if not isinstance(entry, OutboxEntry):
            return None
        message = message_of(entry, WORDS_CHARS)
        return {**message, "text": message["text"] or message["says"][:WORDS_CHARS]}


def _amounts(state: AgentState) -> Json:
    """Return what an agent has done and spent, by its ledger."""
    last = state.tick if state.status else None
    return {"turns": state.turns, "last_tick": last, "credits": state.used_up, "cost_usd": state.cost_usd}


def _working(doing: DoingNow) -> Json:
    text = f"calls {doing.tool}" if doing.tool else ""
    return {"state": "working", "text": text, "since": doing.since}


_UNTIL = {
    "person": "",
    "channel": "",
    "working": "now",
    "waits": "once it is answered",
    "paused": "once it is resumed",
    "out_of_credits": "once it has credits",
    "nothing_new": "once something is new",
    "begun": "as the tick goes on",
}


def _next(state: str, coming: NextTurn, tick: int) -> str:
    """Return when an agent takes its next turn, or what that waits for, in words."""
    if state in _UNTIL:
        return _UNTIL[state]
    if coming.tick is not None:
        return "next tick" if coming.tick <= tick else f"tick {coming.tick}"
    return coming.words
