"""The `team` key of a resume: the agents available for questions and handoffs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from lemming.ext import ConfigError
from lemming.kernel.base.jsontext import did_you_mean
from lemming.kernel.files.fast_decoder import TypeMismatch, make_field
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.capability_loader import make_loaders

TEAM = "team"
_MEMBER_KEYS = ("agent", "as", "description")
_TOOL_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")


class TeamMember(NamedTuple):
    """A team member available for questions: `name` gives the tool name, ask_<name>.

    `extensions`: the values of keys owned by other capabilities, by key.
    """

    agent: str
    name: str
    description: str = ""
    extensions: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def from_json(cls, raw: str | dict[str, Any]) -> TeamMember:
        """Return the member from an item of `team.ask`. Raise `TypeMismatch` for an invalid item."""
        if isinstance(raw, str):
            return cls(raw, raw)
        extension_keys = make_loaders("member")
        keys = (*_MEMBER_KEYS, *extension_keys)
        if unknown := raw.keys() - {*keys}:
            hint = did_you_mean(min(unknown), keys) or f"use one of {', '.join(keys)}"
            raise TypeMismatch(f'team.ask: unknown key "{min(unknown)}" ({hint})')
        if "agent" not in raw:
            raise TypeMismatch('team.ask: a member must have "agent"')
        if invalid := [key for key in _MEMBER_KEYS if not isinstance(raw.get(key, ""), str)]:
            raise TypeMismatch(f'team.ask: "{invalid[0]}" must be a text')
        name = raw.get("as", raw["agent"])
        if not _TOOL_NAME.match(name):
            raise TypeMismatch(f'team.ask: "as" must consist of letters, digits, - and _, got "{name}"')
        extensions: dict[str, Any] = {}
        for key, get_parser in extension_keys.items():
            if raw.get(key) is not None:
                try:
                    extensions[key] = get_parser()(raw[key], f"team.ask: {key}")
                except ConfigError as error:
                    raise TypeMismatch(f"team.ask: {key}: {error.message}") from error
        return cls(raw["agent"], name, raw.get("description", ""), extensions)


@dataclass(frozen=True, kw_only=True)
class TeamSettings:
    """The agents available to an agent for questions and handoffs."""

    ask: list[str | dict[str, Any]] = make_field(
        list,
        'Agents it may ask, each as a tool ask_<name>: a name, or {"agent", "as", "description"}. '
        "Both must read the other's outbox.",
    )
    hand_to: list[str] = make_field(list, "Agents it may hand a request on to, each as a tool hand_to_<name>.")
    max_asked: int = make_field(16, "Maximum number of questions for one request, in all its turns.", ge=1, le=1000)
    max_depth: int = make_field(5, "Maximum length of a chain of waiting agents, this one included.", ge=1, le=50)
    max_hops: int = make_field(5, "Maximum number of times a request is handed on.", ge=1, le=50)

    may_be_absent: bool = make_field(False, "Allow agents that do not exist yet.")

    def __post_init__(self) -> None:
        names = [member.name for member in self.ask_members]
        if duplicate := next((name for name in names if names.count(name) > 1), None):
            raise TypeMismatch(f'team.ask: names must be unique, got "{duplicate}" twice: set "as" for one of them')

    @cached_property
    def ask_members(self) -> tuple[TeamMember, ...]:
        """The members available for questions."""
        return tuple(map(TeamMember.from_json, self.ask))

    @property
    def all_names(self) -> set[str]:
        """The names of all agents available for questions or handoffs."""
        return {*(member.agent for member in self.ask_members), *self.hand_to}

    @property
    def turn_tools(self) -> set[str]:
        """The names of the tools to ask members and to hand off requests."""
        ask_tools = {f"ask_{member.name}" for member in self.ask_members}
        return ask_tools | {f"hand_to_{name}" for name in self.hand_to}

    @property
    def file_value(self) -> dict[str, Any]:
        """The team as JSON values, without `may_be_absent` if false."""
        values = asdict(self)
        if not self.may_be_absent:
            del values["may_be_absent"]
        return values


@dataclass(frozen=True, kw_only=True)
class RequestsResumeSettings:
    """The settings of requests in a resume."""

    team: TeamSettings | None = make_field(None, "Agents it may ask and hand on to; null: none.")


def get_team(agent: Agent) -> TeamSettings | None:
    """Return the team of an agent, or None without a team."""
    team: TeamSettings | None = agent.extensions.get(TEAM)
    return team
