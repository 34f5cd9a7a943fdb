"""What the capabilities of a turn prepare before it begins, asked moment by moment, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lemming.kernel.agents import Agent, Survey
from lemming.kernel.files.fields import Json
from lemming.kernel.journal.begun import Begun
from lemming.kernel.mail.agenda import Agenda, NamedOnly, has_request, may_be_asked
from lemming.kernel.mail.holds import Ends, EntriesOf, Read
from lemming.kernel.mail.task import Task
from lemming.kernel.mail.visibility import View
from lemming.kernel.memory import Memories
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.org.uses import Habits, habits_of, named_by
from lemming.kernel.plugins.capabilities import capability, in_order, why_missing
from lemming.kernel.plugins.shipped import ASKED_FOR, ASKING, REQUESTS, SHIPPED
from lemming.kernel.tools import Tool
from lemming.kernel.turn.labels import PLAIN, Labels
from lemming.kernel.turn.loop_breaker import requests_in
from lemming.kernel.turn.moments import Moment, Showing
from lemming.kernel.turn.opening import Surroundings
from lemming.kernel.turn.places import CallLookout, Shared, ToShow
from lemming.kernel.turn.preparing import Preparation
from lemming.kernel.turn.reply_schemas import Form
from lemming.kernel.turn.seams import Capability
from lemming.kernel.turn.values import Purpose, TurnInputs

if TYPE_CHECKING:
    from lemming.kernel.turn.seen import Seen


class Prepared:
    """What the capabilities of a turn have prepared, in their order."""

    def __init__(self, by_name: Mapping[str, Preparation]) -> None:
        self._by_name = by_name
        self._all = tuple(by_name.values())
        self.names = by_name.keys()
        self.may_withhold = any(type(it).withholds is not Preparation.withholds for it in self._all)

    def finds(self, memories: Memories) -> dict[str, str]:
        """Return the files that were read to find out whether there is a turn, with their digests."""
        return {file: digest for it in self._all for file, digest in it.finds(memories).items()}

    @property
    def may_rest(self) -> bool:
        """Whether any request may rest."""
        return any(type(it).rests is not Preparation.rests for it in self._all)

    def rests(self, begun: Begun) -> bool:
        """Return whether a request does not go on yet."""
        return any(it.rests(begun) for it in self._all)

    def is_led(self, begun: Begun) -> bool:
        """Return whether a request goes on, whatever is open."""
        return any(it.is_led(begun) for it in self._all)

    def why_resting(self) -> str:
        """Return what the agent waits for, where a capability says so."""
        return next((why for it in self._all if (why := it.why_resting())), "")

    def wakes_at(self, memories: Memories) -> int | None:
        """Return the first tick in which what a request waits for is there."""
        found = (it.wakes_at(memories) for it in self._all)
        return min((tick for tick in found if tick is not None), default=None)

    def withholds(self, entry: OutboxEntry) -> bool:
        """Return whether an entry is not to be shown yet."""
        return any(it.withholds(entry) for it in self._all)

    def is_refused(self, entry: OutboxEntry) -> bool:
        """Return whether an entry is not to be shown at all."""
        return any(it.is_refused(entry) for it in self._all)

    def lets_in(self, entry: OutboxEntry) -> bool:
        """Return whether gates that ask are to let an entry pass."""
        return any(it.lets_in(entry) for it in self._all)

    def wakes(self, view: View, *, is_alone: bool) -> bool:
        """Return whether there is something to take a turn for. All are asked."""
        found = False
        for it in self._all:
            found |= it.wakes(view, is_alone=is_alone)
        return found

    def ends(self, begun: Begun, read: Read, entries_of: EntriesOf, is_heard: Callable[[str], bool]) -> Ends:
        """Return how what holds something has ended."""
        found: Ends = {}
        for each in self._all:
            found |= each.ends(begun, read, entries_of, is_heard)
        return found

    def earlier_results(
        self, task: Task, results: Sequence[Mapping[str, Any]], labels: Labels
    ) -> Sequence[Mapping[str, Any]]:
        """Return the results of earlier calls as the turn is told of them."""
        for each in self._all:
            results = each.earlier_results(task, results, labels)
        return results

    def tools(self) -> list[Tool]:
        """Return the tools that are of the agent's turns alone."""
        return [tool for it in self._all for tool in it.tools()]

    def agenda(self, view: View, habits: Habits) -> Agenda | None:
        """Return what the agent has to do, by what it is asked; None where nobody says so."""
        if not habits.is_asked:
            return None
        for it in self._all:
            if (found := it.agenda(view, habits, self)) is not None:
                return found
        return NamedOnly(view.reader) if habits.wake == "addressed" else None

    def purpose(self, task: Task) -> Purpose | None:
        """Return what the turn is for, as its record has it."""
        return next((found for it in self._all if (found := it.purpose(task))), None)

    def looks(self, offered: ToShow) -> ToShow:
        """Return what the turn may be shown."""
        for each in self._all:
            offered = each.looks(offered, self.lets_in)
        return offered

    def shows(self, shown: Showing) -> Showing:
        """Return what the turn is to be shown."""
        for each in self._all:
            shown = each.shows(shown)
        return shown

    def labels(self) -> Labels:
        """Return how the parts of the prompt are told apart."""
        for it in self._all:
            if (found := it.labels()) is not PLAIN:
                return found
        return PLAIN

    def sections(self) -> tuple[str, ...]:
        """Return the sections that stand after the agent's instructions."""
        return tuple([section for it in self._all for section in it.sections() if section])

    def forms(self, task: Task | None, asked: Sequence[OutboxEntry]) -> Sequence[Form]:
        """Return the forms of the entries that the turn writes."""
        return [form for it in self._all for form in it.forms(task, asked)] if self._all else ()

    def annotates(self, seen: Seen, shown: Showing) -> None:
        """Have the prompt say what parts have to say of it."""
        for each in self._all:
            each.annotates(seen, shown)

    def and_for(self, task: Task | None, asked: Sequence[OutboxEntry], moment: Moment) -> Prepared:
        """Return these, with those that whoever asked brings into a turn for a request, or for several."""
        if not (task or asked):
            return self
        names = {REQUESTS, *_asked_for([task.request] if task else asked, moment)} - self.names
        if not names:
            return self
        both = {**self._by_name, **_prepared(names, moment)}
        return Prepared({name: both[name] for name in in_order(both, moment.now.config.org.plugins)})

    def given(self) -> dict[str, Json]:
        """Return what the parts of the turn start from, by capability."""
        return {name: given for name, each in self._by_name.items() if (given := each.given())}


NOTHING_PREPARED = Prepared({})


AGENTS_REMEMBERED = 10_000


def used_by(agent: Agent, config: Config) -> Sequence[Capability]:
    """Return the capabilities that may take part in turns of an agent, in their order."""
    plugins = config.org.plugins
    return [capability(it, plugins) for it in in_order(named_by(agent, config), plugins)]


def in_use(config: Config, survey: Survey) -> list[Capability]:
    """Return the capabilities whose keys or blocks the settings, or a resume, have, in their order."""
    org = config.org
    if not (org.further or survey.further or org.capabilities or survey.names_capabilities):
        return []
    names = {*org.capabilities, *(name for agent in survey.agents.values() for name in agent.capabilities)}
    for it in SHIPPED.values():
        if not (it.org.keys().isdisjoint(org.further) and it.resume.keys().isdisjoint(survey.further)):
            names.add(it.name)
    return [capability(name, org.plugins) for name in in_order(names, org.plugins)]


def shared_by(config: Config, survey: Survey) -> list[Shared]:
    """Return what turns of these agents share beside files."""
    return [it for each in in_use(config, survey) for it in each.shares(survey.agents, config.org)]


def asked_nothing(survey: Survey, config: Config) -> set[str]:
    """Return the agents that have no requests, and read no inbox."""
    found = ((survey.agents[names[0]], names) for names in survey.by_model.values())
    return {name for agent, names in found if not habits_of(agent, config).is_asked for name in names}


class Uses:
    """What agents use and how they take turns, as long as resumes and settings are the very same."""

    def __init__(self, _: Organisation) -> None:
        self._known: dict[str, tuple[Agent, Config, frozenset[str], Habits]] = {}

    def of(self, agent: Agent, config: Config) -> tuple[frozenset[str], Habits]:
        """Return what `named_by` and `habits_of` do."""
        known = self._known.get(agent.name)
        if known is None or known[0] is not agent or known[1] is not config:
            if len(self._known) >= AGENTS_REMEMBERED:
                self._known.clear()
            names, habits = frozenset(named_by(agent, config)), habits_of(agent, config)
            known = self._known[agent.name] = agent, config, names, habits
        return known[2:]


def prepared_for(moment: Moment, view: View) -> Prepared:
    """Return what the capabilities have prepared for a turn; raise `ConfigError` for one that is not here.

    Those take part that resume and settings use, who is asked for something, and those that ship of which the
    agent's ledger keeps something: of one that does not, what it kept lies there until it is named again.
    """
    names, habits = moment.now.org.own(Uses).of(moment.agent, moment.now.config)
    has_asked = moment.state.loops and _has_asked(moment)
    if habits.is_asked and (has_asked or _is_asked(names, habits, view)):
        names = names | {REQUESTS}
    if moment.state.kept:
        names = names | (moment.state.kept.keys() & SHIPPED.keys())
    for begun in moment.state.requests:
        names = names.union({REQUESTS}, (name for asked in begun.asked for name in asked.held))
    if not names:
        return NOTHING_PREPARED
    return Prepared(_prepared(names, moment))


def _is_asked(names: AbstractSet[str], habits: Habits, view: View) -> bool:
    """Return whether requests take part: where anything may be; where they are not here, what is stops it."""
    if not names.isdisjoint(ASKING) or habits.take is not None:
        return True
    if why_missing(REQUESTS):
        return has_request(view)
    return habits.wake == "addressed" or may_be_asked(view, None)


def _has_asked(moment: Moment) -> bool:
    """Return whether the agent asks for the same again and again, so that an answer makes a difference."""
    return bool(requests_in(moment.state.loops)) and not why_missing(REQUESTS)


def _prepared(names: Iterable[str], moment: Moment) -> dict[str, Preparation]:
    config = moment.now.config
    plugins, found = config.org.plugins, dict[str, Preparation]()
    for name in in_order(names, plugins):
        asked: Capability = capability(name, plugins)
        said = {"settings": asked.settings_in(config), "own": asked.settings_of(moment.agent)}
        if (prepared := asked.prepare(replace(moment, **said))) is not None:
            found[name] = prepared
    return found


def _asked_for(requests: Iterable[OutboxEntry | None], moment: Moment) -> Iterator[str]:
    """Yield the capabilities that whoever asked wants something of."""
    resumes = moment.now.mail.resumes
    for request in requests:
        if request and (asker := resumes.get(request.agent)):
            yield from (name for name, is_asked in ASKED_FOR.items() if is_asked(asker, request.payload))


def require_asked_for(inbox: Iterable[OutboxEntry], moment: Moment) -> None:
    """Raise `ConfigError` for a request in an inbox that asks for what is not here: it is not passed over."""
    name = moment.agent.name
    requests = (it for it in inbox if it.kind == "request" and name in it.targets)
    for wanted in _asked_for(requests, moment):
        capability(wanted, moment.now.config.org.plugins)


def call_lookouts_of(now: Surroundings, inputs: TurnInputs) -> tuple[CallLookout, ...]:
    """Return who looks at a turn's calls, by what is in use now; raise `ConfigError` for what is not here."""
    (names, _), plugins = now.org.own(Uses).of(inputs.agent, now.config), now.config.org.plugins
    found = (capability(it, plugins).looks_at_calls(now, inputs) for it in in_order(names, plugins))
    return tuple(it for it in found if it is not None)
