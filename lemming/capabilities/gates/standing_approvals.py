"""Standing approvals: a gate no longer asks about an agent's calls of a tool. Stored in the gate.

A standing approval only ends the question of this gate: all other gates check the call as before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from lemming.capabilities.gates.gate_format import Gate
from lemming.capabilities.gates.gate_settings import get_gates
from lemming.kernel.agents import load_agent
from lemming.kernel.base import paths
from lemming.kernel.base.errors import UsageError
from lemming.kernel.base.integers import to_int
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.base.name_patterns import is_any_match
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation, OrgPath
from lemming.libraries.settings_edits import edit_file

Json = dict[str, Any]
_LINE = re.compile(r"(?P<file>[^#]+)#/gates/(?P<place>[0-9]+)")


class StandingApproval(NamedTuple):
    """A standing approval: the agent, the tool, and the line of the approval."""

    line: str
    agent: str
    tool: str

    def describe(self, *, is_written: bool) -> list[str]:
        """Return sentences about the written text, the permission, and the way to revoke the approval."""
        gate = self.line.partition("/approved")[0]
        text = f'"approved": {{"{self.agent}": ["{self.tool}"]}}'
        permission = f"{self.agent} may call {self.tool}"
        effect = f"{permission} from now on" if is_written else f"from then on {permission}"
        return [
            f"{gate} has {text} now" if is_written else f"{gate} gets the line {text}",
            f"{effect}, with any arguments and whatever it has read, "
            "and this gate does not ask; gates that block, other gates that ask, and limits hold as before",
            f'to be asked again, take "{self.tool}" out at {self.line}',
        ]


def require_gate_exists(base: OrgPath, call: Json, agent: str) -> None:
    """Raise `UsageError` if the gate that asked about a call no longer exists in the same place."""
    match = _LINE.fullmatch(call["gate"])
    gates = _load_gates(base, match["file"], agent) if match else ()
    gate = gates[to_int(match["place"])] if match and to_int(match["place"]) < len(gates) else None
    is_same = gate and (gate.at, gate.then) == ("call", "ask")
    if gate is None or not is_same or (gate.tool_patterns and not is_any_match(call["tool"], gate.tool_patterns)):
        hint = "approve this call alone with `lemming approve ID`; list the gates with `lemming gates list`"
        raise UsageError(f"{call['gate']} does not ask about {call['tool']} any more", hint=hint)


def preview_standing_approval(base: OrgPath, call: Json, agent: str) -> StandingApproval:
    """Return the result of `add_standing_approval` without writing. Raises `UsageError` if the gate is gone."""
    require_gate_exists(base, call, agent)
    return StandingApproval(f"{call['gate']}/approved/{agent}", agent, call["tool"])


def add_standing_approval(base: OrgPath, call: Json, agent: str) -> StandingApproval:
    """Add a standing approval for an agent's calls of a tool to the asking gate.

    An existing approval is left alone. Raises `UsageError` if the gate is gone, `ConfigError` for broken files.
    """
    file, _, index = call["gate"].partition("#/gates/")
    with edit_file(base, file) as locked_file:
        # Checked under the lock: a gate inserted before this one would move another to its index.
        standing_approval = preview_standing_approval(base, call, agent)
        raw: Json = parse(locked_file.raw, allow_bom=True)
        tools = raw["gates"][to_int(index)].setdefault("approved", {}).setdefault(agent, [])
        if call["tool"] not in tools:
            tools.append(call["tool"])
            locked_file.publish(dump_pretty(raw))
    return standing_approval


def _load_gates(base: OrgPath, file: str, agent: str) -> Sequence[Gate]:
    org = Organisation.from_path(base)
    settings = load_config(org).org  # raises before anything is written
    if file == paths.ORG_FILE:
        return get_gates(settings)
    return get_gates(load_agent(org, agent)) if file == paths.resume_file(agent) else []
