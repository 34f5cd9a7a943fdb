"""A person's word that a gate need not ask about an agent's calls of a tool: it stands in the gate that asks.

It ends that asking and nothing else: the call is looked at by all other gates as before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from lemming.capabilities.gates.format import Gate
from lemming.capabilities.gates.keys import gates_in
from lemming.kernel.agents import load_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.integers import to_int
from lemming.kernel.base.jsontext import parse, pretty
from lemming.kernel.base.patterns import is_among
from lemming.kernel.org.changing import changing_file
from lemming.kernel.org.config import ORG_FILE, load_config
from lemming.kernel.org.organisation import Organisation, OrgPath

Json = dict[str, Any]
_LIMIT_BYTES = 1 << 20
_LINE = re.compile(r"(?P<file>[^#]+)#/gates/(?P<place>[0-9]+)")


class Unasked(NamedTuple):
    """What no gate asks about from now on: an agent's calls of a tool, and the line that says so."""

    line: str
    agent: str
    tool: str

    def in_words(self, *, is_written: bool) -> list[str]:
        """Return what is written, or would be, what it allows, and how it is taken back."""
        gate = self.line.partition("/approved")[0]
        said = f'"approved": {{"{self.agent}": ["{self.tool}"]}}'
        may = f"{self.agent} may call {self.tool}"
        allows = f"{may} from now on" if is_written else f"from then on {may}"
        return [
            f"{gate} has {said} now" if is_written else f"{gate} gets the line {said}",
            f"{allows}, with any arguments and whatever it has read, "
            "and this gate does not ask; gates that block, other gates that ask, and limits hold as before",
            f'to be asked again, take "{self.tool}" out at {self.line}',
        ]


def require_asking(base: OrgPath, call: Json, agent: str) -> None:
    """Raise `UsageError` where the gate that asked about a call stands no more where it did."""
    found = _LINE.fullmatch(call["gate"])
    gates = _gates_in(base, found["file"], agent) if found else ()
    gate = gates[to_int(found["place"])] if found and to_int(found["place"]) < len(gates) else None
    is_same = gate and (gate.at, gate.then) == ("call", "ask")
    if gate is None or not is_same or (gate.tools and not is_among(call["tool"], gate.tools)):
        hint = "`lemming approve ID` without --for is for this call; `lemming gates list` shows what asks now"
        raise UsageError(f"no gate that asks about {call['tool']} stands at {call['gate']} now", hint=hint)


def foreseen(base: OrgPath, call: Json, agent: str) -> Unasked:
    """Return what `let_pass` would write, and write nothing. Raises `UsageError` where the gate is gone."""
    require_asking(base, call, agent)
    return _unasked(call, agent)


def _unasked(call: Json, agent: str) -> Unasked:
    return Unasked(f"{call['gate']}/approved/{agent}", agent, call["tool"])


def let_pass(base: OrgPath, call: Json, agent: str) -> Unasked:
    """Have the gate that asked about a call ask no more about this agent's calls of this tool.

    Where that stands already, nothing is written. Raises `UsageError` where the gate is gone, `ConfigError`
    for files that are broken.
    """
    file, _, place = call["gate"].partition("#/gates/")
    with changing_file(base, file) as opened:
        # Looked for while nobody else changes the file: a gate put before it has another take its place.
        require_asking(base, call, agent)
        plain: Json = parse(opened.raw, allow_bom=True)
        approved = plain["gates"][to_int(place)].setdefault("approved", {})
        tools = approved.setdefault(agent, [])
        if call["tool"] not in tools:
            tools.append(call["tool"])
            opened.publish(pretty(plain))
    return _unasked(call, agent)


def _gates_in(base: OrgPath, file: str, agent: str) -> Sequence[Gate]:
    org = Organisation.at(base)
    settings = load_config(org).org  # or nothing is touched
    if file == ORG_FILE:
        return gates_in(settings)
    return gates_in(load_agent(org, agent)) if file == paths.resume_file(agent) else []
