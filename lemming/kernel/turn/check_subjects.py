"""Subjects of the hook `check`: each says what a capability validates, and has what it needs for that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lemming.kernel.agents import Agent
from lemming.kernel.base.errors import Problem
from lemming.kernel.org.config import Config
from lemming.kernel.org.organisation import OrgPath

if TYPE_CHECKING:
    from lemming.kernel.turn.prompt_prefix import TickContext
    from lemming.kernel.turn.turn_values import TurnInputs


@dataclass(frozen=True, slots=True)
class OrgCheck:
    """The organisation's use of a capability, for `lemming validate` and `lemming check`.

    `only`: the one agent to check, or None for all of them and the settings.
    """

    base: OrgPath
    config: Config
    only: str | None


@dataclass(frozen=True, slots=True)
class AgentCheck:
    """An agent, for `lemming validate` and `lemming check`: of a plugin, each agent that uses the capability.

    A capability that ships gets every agent, because its keys and files may be there without a use.
    """

    base: OrgPath
    agent: Agent
    config: Config


@dataclass(frozen=True, slots=True)
class ReferenceCheck:
    """The names in the keys of a resume, or of the settings if `agent` is None, before each tick.

    A problem takes the agent out, or stops the run. Its `pointer` is in that file. `names` is the `Inventory`
    of the organisation's agents, tools and models. No file may be read.
    """

    agent: Agent | None
    names: Any


@dataclass(frozen=True, slots=True)
class ResumeCheck:
    """An interrupted turn that is to resume, with its recorded inputs. A problem abandons the turn."""

    inputs: TurnInputs
    tick_context: TickContext


CheckSubject = OrgCheck | AgentCheck | ReferenceCheck | ResumeCheck


def to_problems(faults: Iterable[tuple[str, str, str]]) -> Iterator[Problem]:
    """Yield a problem for each pointer, message and hint."""
    yield from (Problem(message, pointer=pointer, hint=hint) for pointer, message, hint in faults)
