"""Blast radius of an agent: possible effects, direct and through other agents, and readable untrusted text.

The analysis covers permissions and gates, not predictions about a model. Read-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from lemming.capabilities.gates.gate_format import GateRule
from lemming.capabilities.gates.gate_settings import rules_for_agent
from lemming.capabilities.gates.information_flows import FlowGraph
from lemming.capabilities.gates.outcome_prediction import PredictedOutcome, possible_outcomes, predict_outcomes
from lemming.ext import ConfigError, find_channels, find_people, has_model_turns, load_tick
from lemming.kernel.agents import Agent, Survey
from lemming.kernel.journal.verdicts import At
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.plugins.capability_loader import missing_reason
from lemming.kernel.tools import ANYWHERE, EngineTool, Tool, get_server_sources
from lemming.kernel.tools.toolset import ServerSource, Toolset

Json = dict[str, Any]
CREATE_AGENT_TOOL = "create_agent"


class TaintPath(NamedTuple):
    """Path by which less trusted text reaches an agent: trust label, source, route and predicted gates."""

    label: str
    source: str
    route: str
    gates: Sequence[PredictedOutcome] = ()

    def as_json(self) -> Json:
        """Return the path in the form printed by commands."""
        return {"trust": self.label, "from": self.source, "how": self.route, "gates": _to_json(self.gates)}


class ToolExposure(NamedTuple):
    """A tool with the predicted gates at its calls, by trust label of the turn."""

    name: str
    tool_class: str
    predictions: Mapping[str, Sequence[PredictedOutcome]]

    def as_json(self) -> Json:
        """Return the tool in the form printed by commands."""
        verdicts = [
            {"trust": label or None, "may": possible_outcomes(predictions), "gates": _to_json(predictions)}
            for label, predictions in self.predictions.items()
        ]
        return {"tool": self.name, "class": self.tool_class, "verdicts": verdicts}


class EntryReader(NamedTuple):
    """Reader of an agent's entries: an agent, a person or a channel, with the predicted output gates."""

    name: str
    kind: str
    gates: Sequence[PredictedOutcome]

    def as_json(self) -> Json:
        """Return the reader in the form printed by commands."""
        return {"name": self.name, "what": self.kind, "gates": _to_json(self.gates)}


class DownstreamAgent(NamedTuple):
    """Another agent reached by text of this agent, with the route and its possible effects."""

    agent: str
    author: str
    route: str
    tools: Sequence[ToolExposure]
    channels: Sequence[str]

    def as_json(self) -> Json:
        """Return the agent in the form printed by commands."""
        tools = [tool.as_json() for tool in self.tools]
        fields = {"agent": self.agent, "by": self.author, "how": self.route}
        return {**fields, "tools": tools, "channels": [*self.channels]}


@dataclass(frozen=True, kw_only=True)
class AgentBlastRadius:
    """All possible effects of an agent. `undeclared_writers`: its tools without declared write paths."""

    agent: str
    tracks_trust: bool
    taint_paths: Sequence[TaintPath]
    tools: Sequence[ToolExposure]
    writes: Sequence[str]
    undeclared_writers: Sequence[str]
    hosts: Sequence[str]
    servers: Sequence[str]
    readers: Sequence[EntryReader]
    team_members: Sequence[str]
    handoff_targets: Sequence[str]
    can_create_agents: bool
    downstream: Sequence[DownstreamAgent]

    def as_json(self) -> Json:
        """Return the blast radius in the form printed by commands."""
        return {
            "agent": self.agent,
            "tracks_trust": self.tracks_trust,
            "strangers": [taint_path.as_json() for taint_path in self.taint_paths],
            "tools": [tool.as_json() for tool in self.tools],
            "writes": [*self.writes],
            "writes_unsaid": [*self.undeclared_writers],
            "hosts": [*self.hosts],
            "servers": [*self.servers],
            "readers": [item.as_json() for item in self.readers],
            "asks": [*self.team_members],
            "hands_to": [*self.handoff_targets],
            "creates": self.can_create_agents,
            "through": [item.as_json() for item in self.downstream],
        }


class BlastRadiusAnalysis:
    """Analysis of the possible effects of an organisation's agents."""

    def __init__(self, org: Organisation, config: Config, survey: Survey, toolset: Toolset) -> None:
        self._org, self._config, self._survey, self._toolset = org, config, survey, toolset
        if trust_missing := missing_reason("trust"):
            raise ConfigError(trust_missing, hint="install lemming-engine again")
        from lemming.capabilities.trust.author_labels import OrgTrustLabeler
        from lemming.capabilities.trust.trust_settings import TrustSettings, get_minimum_label

        self._least_shown = get_minimum_label
        self.tracks_trust = "trust" in config.org.extensions
        settings = replace(config.org, extensions={"trust": TrustSettings(), **config.org.extensions})
        self._authors = OrgTrustLabeler(org, replace(config, org=settings), survey.agents, load_tick(org))

    def analyze_agent(self, name: str) -> AgentBlastRadius:
        """Return the possible effects of an agent."""
        agent, settings = self._survey.agents[name], self._config.org
        tools = self._callable_tools(agent)
        labels = self.possible_labels(name)
        tool_names = {tool.name for tool in tools}
        team = agent.extensions.get("team")
        anywhere = [tool for tool in tools if ANYWHERE in tool.write_paths(agent, settings)]
        undeclared = [tool.name for tool in anywhere if not isinstance(tool, EngineTool)]
        writable_paths = self._flow_graph.writable_places(name)
        http = settings.extensions.get("http")
        servers = [server for source in self._server_sources for server in source.servers_for_tools(tool_names)]
        return AgentBlastRadius(
            agent=name,
            tracks_trust=self.tracks_trust,
            taint_paths=self.taint_paths[name],
            tools=[self._describe_exposure(agent, tool, labels) for tool in tools],
            writes=[
                name_or_path
                for name_or_path in writable_paths
                if name_or_path != ANYWHERE or len(undeclared) < len(anywhere)
            ],
            undeclared_writers=undeclared,
            hosts=http.hosts if http and any(name_or_path.startswith("http_") for name_or_path in tool_names) else (),
            servers=servers,
            readers=[*self._entry_readers(agent, labels)],
            team_members=[member.agent for member in team.ask_members] if team else (),
            handoff_targets=team.hand_to if team else (),
            can_create_agents=CREATE_AGENT_TOOL in tool_names,
            downstream=[*self._downstream_agents(agent, labels)],
        )

    def possible_labels(self, name: str) -> list[str]:
        """Return the trust labels that a turn of an agent may have, the most trusted first."""
        order = self._authors.order
        labels = {self._authors.author_label(name), *(taint_path.label for taint_path in self.taint_paths[name])}
        return sorted(labels, key=order.rank, reverse=True)

    @cached_property
    def taint_paths(self) -> dict[str, list[TaintPath]]:
        """Paths of less trusted text to each agent, one per author."""
        paths = {name: self._direct_taint_paths(agent) for name, agent in self._turn_agents.items()}
        has_changed = True
        while has_changed:
            has_changed = False
            for author, reader, path in self._flow_graph.all_flows:
                for label in sorted({taint_path.label for taint_path in paths[author]}):
                    reader_paths = paths[reader]
                    if not any((taint_path.label, taint_path.source) == (label, author) for taint_path in reader_paths):
                        new_paths = [
                            *self._filter_by_gates(
                                self._turn_agents[reader], TaintPath(label, author, _describe_flow(path))
                            )
                        ]
                        has_changed = has_changed or bool(new_paths)
                        reader_paths += new_paths
        return {name: paths.get(name, []) for name in self._survey.agents}

    @cached_property
    def _turn_agents(self) -> dict[str, Agent]:
        return {name: agent for name, agent in self._survey.agents.items() if has_model_turns(agent, self._config)}

    @cached_property
    def _channels(self) -> list[str]:
        return sorted(find_channels(self._survey, self._config)) if self._config.has_channels else []

    @cached_property
    def _server_sources(self) -> Sequence[ServerSource]:
        return [*get_server_sources(self._org).values()] if self._survey.has_server_tools else []

    @cached_property
    def _flow_graph(self) -> FlowGraph:
        return FlowGraph(self._org, self._config.org, self._turn_agents, self._toolset)

    def _callable_tools(self, agent: Agent) -> list[Tool]:
        if not has_model_turns(agent, self._config):
            return []
        tools = self._toolset.allowed_tools(agent, self._config.org).values()
        return sorted(tools, key=lambda tool: (tool.tool_class, tool.name))

    def _direct_taint_paths(self, agent: Agent) -> list[TaintPath]:
        """Return the paths by which an agent reads untrusted text directly."""
        paths: list[TaintPath] = []
        for name in self._survey.agents:
            if not agent.may_read(name):
                continue
            is_channel = name in self._channels
            labels = self._channel_labels(name) if is_channel else [self._authors.author_label(name)]
            for label in dict.fromkeys(labels):
                paths += self._filter_by_gates(agent, TaintPath(label, name, _describe_flow("")), channel=is_channel)
        for tool in self._callable_tools(agent):
            if self._is_less_trusted(label := self._authors.tool_label(tool.name), agent):
                paths.append(TaintPath(label, tool.name, "reads its results"))
        return paths

    def _channel_labels(self, name: str) -> list[str]:
        """Return the possible trust labels of a channel's messages, by the trust rules."""
        from lemming.kernel.base.name_patterns import is_match

        labels = []
        for rule in self._authors.settings.rules:
            if is_match(name, rule.from_):
                labels.append(rule.is_)
                if not rule.when:
                    return labels
        return [*labels, "outside"]

    def _is_less_trusted(self, label: str, agent: Agent) -> bool:
        order = self._authors.order
        return bool(label) and order.rank(label) < order.rank(self._authors.author_label(agent.name))

    def _filter_by_gates(self, agent: Agent, taint_path: TaintPath, *, channel: bool = False) -> Iterator[TaintPath]:
        """Yield a path with predicted gates if the agent's model may ever read the text."""
        if self._is_less_trusted(taint_path.label, agent):
            entry = {
                "what": "entry",
                "from": taint_path.source,
                "channel": channel,
                **self._trust_fact(taint_path.label),
            }
            predictions = self._predict(agent, "in", entry)
            if not {"pass", "ask"}.isdisjoint(possible_outcomes(predictions)):
                yield taint_path._replace(gates=predictions)

    def _trust_fact(self, label: str) -> Json:
        return {"trust": label} if self.tracks_trust else {}

    def _predict(self, agent: Agent, at: At, known_fields: Json, absent: Iterable[str] = ()) -> list[PredictedOutcome]:
        rules: Iterable[GateRule] = (rule for rule in rules_for_agent(agent, self._config.org) if rule.gate.at == at)
        untracked = [] if self.tracks_trust else ["trust", "args_trust", "args_lowest"]
        if at == "call" and "trust" in known_fields and not self._least_shown(agent):
            known_fields = {
                **known_fields,
                "args_lowest": known_fields["trust"],
            }  # only a clean turn has values with a lower label
        return predict_outcomes(rules, {"agent": agent.name, **known_fields}, [*absent, *untracked])

    def _describe_exposure(self, agent: Agent, tool: Tool, labels: Iterable[str]) -> ToolExposure:
        absent = () if tool.is_plan_only else ("own", "writes")
        known_fields: Json = {"tool": tool.name, "class": tool.tool_class}
        if tool.is_plan_only and not tool.write_paths(agent, self._config.org):
            known_fields["own"] = True
        predictions = {
            label: self._predict(agent, "call", {**known_fields, **self._trust_fact(label)}, absent)
            for label in (labels if self.tracks_trust else [""])
        }
        return ToolExposure(tool.name, tool.tool_class, predictions)

    def _entry_readers(self, agent: Agent, labels: Sequence[str]) -> Iterator[EntryReader]:
        people = find_people(self._survey, self._config)
        for name, other in sorted(self._survey.agents.items()):
            if other.may_read(agent.name):
                kind = "person" if name in people else "channel" if name in self._channels else "agent"
                known_fields = {"what": "entry", "target": name, **self._trust_fact(labels[-1])}
                yield EntryReader(name, kind, self._predict(agent, "out", known_fields))

    def _downstream_agents(self, agent: Agent, labels: Sequence[str]) -> Iterator[DownstreamAgent]:
        """Yield the agents reached by text of this agent, nearest first, each with one route."""
        visited, queue = {agent.name}, [agent.name]
        while queue:
            author = queue.pop(0)
            for source, reader, path in self._flow_graph.all_flows:
                if source != author or reader in visited:
                    continue
                visited.add(reader)
                queue.append(reader)
                other = self._turn_agents[reader]
                own_label = self._authors.author_label(reader)
                combined_labels = list(
                    dict.fromkeys([self._authors.order.lowest([own_label, label]) for label in labels])
                )
                tools = [self._describe_exposure(other, tool, combined_labels) for tool in self._callable_tools(other)]
                channels = [name for name in self._channels if self._survey.agents[name].may_read(reader)]
                yield DownstreamAgent(reader, author, _describe_flow(path), tools, channels)


def _describe_flow(path: str) -> str:
    return f"reads {path}, which it may write" if path else "reads its entries"


def _to_json(predictions: Iterable[PredictedOutcome]) -> list[Json]:
    return [prediction._asdict() for prediction in predictions]
