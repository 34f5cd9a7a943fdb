"""The key `team` of a resume: whom an agent may ask for help, and hand requests on to."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from lemming.kernel.base.errors import ConfigError
from lemming.kernel.base.jsontext import nearest
from lemming.kernel.files.fitting import Misfit, about
from lemming.kernel.org.resume import Agent
from lemming.kernel.plugins.capabilities import member_keys

TEAM = "team"
_OF_MEMBERS = ("agent", "as", "description")
_TOOL_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")


class TeamMember(NamedTuple):
    """One whom an agent may ask: `name` is what its tool is called by, ask_<name>.

    `further`: the values of keys that capabilities read, by key.
    """

    agent: str
    name: str
    description: str = ""
    further: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def of(cls, plain: str | dict[str, Any]) -> TeamMember:
        """Return what an item of `team.ask` says; raise `Misfit`."""
        if isinstance(plain, str):
            return cls(plain, plain)
        of_others = member_keys()
        keys = (*_OF_MEMBERS, *of_others)
        if unknown := plain.keys() - {*keys}:
            hint = nearest(min(unknown), keys) or f"it has {', '.join(keys)}"
            raise Misfit(f'team.ask: "{min(unknown)}" is not a key of a member ({hint})')
        if "agent" not in plain:
            raise Misfit('team.ask: a member needs "agent"')
        if wrong := [key for key in _OF_MEMBERS if not isinstance(plain.get(key, ""), str)]:
            raise Misfit(f'team.ask: "{wrong[0]}" of a member is a text')
        name = plain.get("as", plain["agent"])
        if not _TOOL_NAME.match(name):
            raise Misfit(f'team.ask: "as" is "{name}", and must be of letters, digits, - and _')
        said = {key: plain[key] for key in of_others if plain.get(key) is not None}
        further = {key: _value_in(of_others[key], value, f"team.ask: {key}") for key, value in said.items()}
        return cls(plain["agent"], name, plain.get("description", ""), further)


def _value_in(read: Callable[[], Any], plain: Any, where: str) -> Any:
    try:
        return read()(plain, where)
    except ConfigError as error:
        raise Misfit(f"{where}: {error.message}") from error


@dataclass(frozen=True, kw_only=True)
class Team:
    """Whom the agent may ask for help, and hand requests on to."""

    ask: list[str | dict[str, Any]] = field(
        default_factory=list,
        metadata=about(
            'Agents it may ask, each a tool ask_<name>: a name, or {"agent", "as", "description"}. Each must '
            "be able to read the other's outbox."
        ),
    )
    hand_to: list[str] = field(
        default_factory=list,
        metadata=about("Agents it may hand a request on to, each a tool hand_to_<name>."),
    )
    max_asked: int = field(
        default=16, metadata=about("Questions it may ask for one request, in all its turns.", ge=1, le=1000)
    )
    max_depth: int = field(
        default=5, metadata=about("Agents that may wait for each other in a row, it included.", ge=1, le=50)
    )
    max_hops: int = field(
        default=5, metadata=about("How often a request may have been handed on, with this time.", ge=1, le=50)
    )

    may_be_absent: bool = field(
        default=False, metadata=about("Whether agents of the team may be absent: for what comes later.")
    )

    def __post_init__(self) -> None:
        names = [member.name for member in self.members]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise Misfit(f'team.ask: two members are called "{twice}": give one another "as"')

    @cached_property
    def members(self) -> tuple[TeamMember, ...]:
        """Those whom it may ask."""
        return tuple(map(TeamMember.of, self.ask))

    @property
    def names(self) -> set[str]:
        """The agents that it may ask or hand on to."""
        return {*(member.agent for member in self.members), *self.hand_to}

    @property
    def turn_tools(self) -> set[str]:
        """The names of the tools with which it asks and hands on."""
        asked = {f"ask_{member.name}" for member in self.members}
        return asked | {f"hand_to_{name}" for name in self.hand_to}

    @property
    def plain(self) -> dict[str, Any]:
        """The team as JSON values, without the later key that says nothing."""
        values = asdict(self)
        if not self.may_be_absent:
            del values["may_be_absent"]
        return values


@dataclass(frozen=True, kw_only=True)
class OfResume:
    """What a resume says of requests."""

    team: Team | None = field(default=None, metadata=about("Whom it may ask and hand on to; null: nobody."))


def team_of(agent: Agent) -> Team | None:
    """Return whom an agent may ask and hand on to; None: nobody."""
    found: Team | None = agent.further.get(TEAM)
    return found
