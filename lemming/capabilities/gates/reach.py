"""What an agent could cause, itself and through others, and what of strangers' words comes to it. Looks only.

All of it is what permissions and gates allow, not what a model is likely to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from lemming.capabilities.gates.flows import Flows
from lemming.capabilities.gates.foresee import Foreseen, foreseen, outcomes
from lemming.capabilities.gates.format import Rule
from lemming.capabilities.gates.keys import rules_for
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.journal.verdicts import At
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capabilities import why_missing
from lemming.kernel.tick.counter import load_tick
from lemming.kernel.tick.firing_plan import channels_in, people_in, takes_turns
from lemming.kernel.tools import ANYWHERE, EngineTool, Tool, server_sources
from lemming.kernel.tools.toolset import ServerSource, Toolset

Json = dict[str, Any]
HIRES = "create_agent"


class TaintPath(NamedTuple):
    """How words that are trusted less come to an agent: which, from whom, how, and what gates say of it."""

    word: str
    source: str
    how: str
    gates: Sequence[Foreseen] = ()

    def as_json(self) -> Json:
        """Return it as commands print it."""
        return {"trust": self.word, "from": self.source, "how": self.how, "gates": _plain(self.gates)}


class ToolReach(NamedTuple):
    """A tool, and what gates may say of its calls at each word of trust that a turn may have."""

    name: str
    tool_class: str
    said: Mapping[str, Sequence[Foreseen]]

    def as_json(self) -> Json:
        """Return it as commands print it."""
        verdicts = [
            {"trust": word or None, "may": outcomes(said), "gates": _plain(said)}
            for word, said in self.said.items()
        ]
        return {"tool": self.name, "class": self.tool_class, "verdicts": verdicts}


class Target(NamedTuple):
    """Who reads an agent's entries: an agent, a person or a channel, and what gates at `out` may say."""

    name: str
    what: str
    gates: Sequence[Foreseen]

    def as_json(self) -> Json:
        """Return it as commands print it."""
        return {"name": self.name, "what": self.what, "gates": _plain(self.gates)}


class Through(NamedTuple):
    """Another agent that words of this one come to, by which way, and what it could do."""

    agent: str
    by: str
    how: str
    tools: Sequence[ToolReach]
    channels: Sequence[str]

    def as_json(self) -> Json:
        """Return it as commands print it."""
        tools = [tool.as_json() for tool in self.tools]
        told = {"agent": self.agent, "by": self.by, "how": self.how}
        return {**told, "tools": tools, "channels": [*self.channels]}


@dataclass(frozen=True, kw_only=True)
class AgentReach:
    """All that an agent could cause. `writes_unsaid`: its tools that do not say where they may write."""

    agent: str
    tracks_trust: bool
    strangers: Sequence[TaintPath]
    tools: Sequence[ToolReach]
    writes: Sequence[str]
    writes_unsaid: Sequence[str]
    hosts: Sequence[str]
    servers: Sequence[str]
    readers: Sequence[Target]
    asks: Sequence[str]
    hands_to: Sequence[str]
    creates: bool
    through: Sequence[Through]

    def as_json(self) -> Json:
        """Return it as commands print it."""
        return {
            "agent": self.agent,
            "tracks_trust": self.tracks_trust,
            "strangers": [way.as_json() for way in self.strangers],
            "tools": [tool.as_json() for tool in self.tools],
            "writes": [*self.writes],
            "writes_unsaid": [*self.writes_unsaid],
            "hosts": [*self.hosts],
            "servers": [*self.servers],
            "readers": [it.as_json() for it in self.readers],
            "asks": [*self.asks],
            "hands_to": [*self.hands_to],
            "creates": self.creates,
            "through": [it.as_json() for it in self.through],
        }


class Reaching:
    """One look at who of an organisation could cause what."""

    def __init__(self, org: Organisation, config: Config, survey: Survey, toolset: Toolset) -> None:
        self._org, self._config, self._survey, self._toolset = org, config, survey, toolset
        if why := why_missing("trust"):
            raise ConfigError(why, hint="install lemming-engine again")
        from lemming.capabilities.trust.authors import Authors
        from lemming.capabilities.trust.settings import Trust, least_shown

        self._least_shown = least_shown
        self.tracks_trust = "trust" in config.org.further
        settings = replace(config.org, further={"trust": Trust(), **config.org.further})
        self._authors = Authors(org, replace(config, org=settings), survey.agents, load_tick(org))

    def of(self, name: str) -> AgentReach:
        """Return what an agent could cause."""
        agent, settings = self._survey.agents[name], self._config.org
        tools = self._tools(agent)
        words = self.words_at(name)
        in_reach = {tool.name for tool in tools}
        team = agent.further.get("team")
        anywhere = [tool for tool in tools if ANYWHERE in tool.writes(agent, settings)]
        unsaid = [tool.name for tool in anywhere if not isinstance(tool, EngineTool)]
        places = self._flows.places_of(name)
        http = settings.further.get("http")
        servers = [server for source in self._sources for server in source.servers_of(in_reach)]
        return AgentReach(
            agent=name,
            tracks_trust=self.tracks_trust,
            strangers=self.ways[name],
            tools=[self._reach_in_words(agent, tool, words) for tool in tools],
            writes=[it for it in places if it != ANYWHERE or len(unsaid) < len(anywhere)],
            writes_unsaid=unsaid,
            hosts=http.hosts if http and any(it.startswith("http_") for it in in_reach) else (),
            servers=servers,
            readers=[*self._readers(agent, words)],
            asks=[member.agent for member in team.members] if team else (),
            hands_to=team.hand_to if team else (),
            creates=HIRES in in_reach,
            through=[*self._through(agent, words)],
        )

    def words_at(self, name: str) -> list[str]:
        """Return the words of trust that a turn of an agent may have, the most trusted first."""
        order = self._authors.order
        words = {self._authors.of_author(name), *(way.word for way in self.ways[name])}
        return sorted(words, key=order.rank, reverse=True)

    @cached_property
    def ways(self) -> dict[str, list[TaintPath]]:
        """By agent, how words that are trusted less than its own come to it: one way for each author."""
        found = {name: self._direct(it) for name, it in self._turns.items()}
        goes_on = True
        while goes_on:
            goes_on = False
            for author, reader, place in self._flows.all:
                for word in sorted({way.word for way in found[author]}):
                    known = found[reader]
                    if not any((way.word, way.source) == (word, author) for way in known):
                        new = [*self._seen(self._turns[reader], TaintPath(word, author, _how(place)))]
                        goes_on = goes_on or bool(new)
                        known += new
        return {name: found.get(name, []) for name in self._survey.agents}

    @cached_property
    def _turns(self) -> dict[str, Agent]:
        return {name: it for name, it in self._survey.agents.items() if takes_turns(it, self._config)}

    @cached_property
    def _channels(self) -> list[str]:
        return sorted(channels_in(self._survey, self._config)) if self._config.has_channels else []

    @cached_property
    def _sources(self) -> Sequence[ServerSource]:
        return [*server_sources(self._org).values()] if self._survey.names_servers else []

    @cached_property
    def _flows(self) -> Flows:
        return Flows(self._org, self._config.org, self._turns, self._toolset)

    def _tools(self, agent: Agent) -> list[Tool]:
        if not takes_turns(agent, self._config):
            return []
        tools = self._toolset.allowed(agent, self._config.org).values()
        return sorted(tools, key=lambda tool: (tool.tool_class, tool.name))

    def _direct(self, agent: Agent) -> list[TaintPath]:
        """Return how an agent reads strangers' words itself."""
        found: list[TaintPath] = []
        for name in self._survey.agents:
            if not agent.may_read(name):
                continue
            is_channel = name in self._channels
            words = self._words_of_channel(name) if is_channel else [self._authors.of_author(name)]
            for word in dict.fromkeys(words):
                found += self._seen(agent, TaintPath(word, name, _how("")), channel=is_channel)
        for tool in self._tools(agent):
            if self._is_less(word := self._authors.of_tool(tool.name), agent):
                found.append(TaintPath(word, tool.name, "reads its results"))
        return found

    def _words_of_channel(self, name: str) -> list[str]:
        """Return how far a channel's messages may be trusted, by the rules: nobody knows which will fit."""
        from lemming.kernel.base.patterns import is_named

        words = []
        for rule in self._authors.settings.rules:
            if is_named(name, rule.from_):
                words.append(rule.is_)
                if not rule.when:
                    return words
        return [*words, "outside"]

    def _is_less(self, word: str, agent: Agent) -> bool:
        order = self._authors.order
        return bool(word) and order.rank(word) < order.rank(self._authors.of_author(agent.name))

    def _seen(self, agent: Agent, way: TaintPath, *, channel: bool = False) -> Iterator[TaintPath]:
        """Yield a way with what gates say of what comes by it, if an agent's model may ever read that."""
        if self._is_less(way.word, agent):
            entry = {"what": "entry", "from": way.source, "channel": channel, **self._trust(way.word)}
            said = self._foreseen(agent, "in", entry)
            if not {"pass", "ask"}.isdisjoint(outcomes(said)):
                yield way._replace(gates=said)

    def _trust(self, word: str) -> Json:
        return {"trust": word} if self.tracks_trust else {}

    def _foreseen(self, agent: Agent, at: At, known: Json, absent: Iterable[str] = ()) -> list[Foreseen]:
        rules: Iterable[Rule] = (it for it in rules_for(agent, self._config.org) if it.gate.at == at)
        untracked = [] if self.tracks_trust else ["trust", "args_trust", "args_lowest"]
        if at == "call" and "trust" in known and not self._least_shown(agent):
            known = {**known, "args_lowest": known["trust"]}  # only a clean turn knows values from below
        return foreseen(rules, {"agent": agent.name, **known}, [*absent, *untracked])

    def _reach_in_words(self, agent: Agent, tool: Tool, words: Iterable[str]) -> ToolReach:
        absent = () if tool.is_planned else ("own", "writes")
        about: Json = {"tool": tool.name, "class": tool.tool_class}
        if tool.is_planned and not tool.writes(agent, self._config.org):
            about["own"] = True
        said = {
            word: self._foreseen(agent, "call", {**about, **self._trust(word)}, absent)
            for word in (words if self.tracks_trust else [""])
        }
        return ToolReach(tool.name, tool.tool_class, said)

    def _readers(self, agent: Agent, words: Sequence[str]) -> Iterator[Target]:
        people = people_in(self._survey, self._config)
        for name, other in sorted(self._survey.agents.items()):
            if other.may_read(agent.name):
                what = "person" if name in people else "channel" if name in self._channels else "agent"
                known = {"what": "entry", "target": name, **self._trust(words[-1])}
                yield Target(name, what, self._foreseen(agent, "out", known))

    def _through(self, agent: Agent, words: Sequence[str]) -> Iterator[Through]:
        """Yield the agents that words of this one come to, nearest first, each by one way."""
        known, queue = {agent.name}, [agent.name]
        while queue:
            author = queue.pop(0)
            for source, reader, place in self._flows.all:
                if source != author or reader in known:
                    continue
                known.add(reader)
                queue.append(reader)
                other = self._turns[reader]
                own = self._authors.of_author(reader)
                bears = list(dict.fromkeys([self._authors.order.lowest([own, word]) for word in words]))
                tools = [self._reach_in_words(other, tool, bears) for tool in self._tools(other)]
                channels = [name for name in self._channels if self._survey.agents[name].may_read(reader)]
                yield Through(reader, author, _how(place), tools, channels)


def _how(place: str) -> str:
    return f"reads {place}, which it may write" if place else "reads its entries"


def _plain(said: Iterable[Foreseen]) -> list[Json]:
    return [it._asdict() for it in said]
