"""A gate that lets an agent call a tool from now on, written before the gate that asked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lemming.config import ORG_FILE, load_config
from lemming.errors import ConfigError
from lemming.files import fs
from lemming.files.jsontext import parse, pretty
from lemming.files.lock import changing
from lemming.organisation import Organisation, OrgPath

Json = dict[str, Any]
_LIMIT_BYTES = 1 << 20
_OF_ORG = re.compile(rf"{re.escape(ORG_FILE)}#/gates/([0-9]+)")


def let_pass(base: OrgPath, call: Json, agent: str, person: str) -> str:
    """Let an agent call a tool without asking, and return the line that says so: `config/org.json#/gates/1`.

    A gate of a resume comes after all of the organisation's, so there it is the last of these. Where it
    stands already, nothing is written. Raises `ConfigError` for settings that are broken.
    """
    load_config(Organisation.at(base))  # or nothing is touched
    with changing(Path(base), "config"):
        plain: Json = parse(_read(base), allow_bom=True)
        gates = plain.setdefault("gates", [])
        found = _OF_ORG.fullmatch(call["gate"])
        place = min(int(found[1]), len(gates)) if found else len(gates)
        gate = gate_for(call, agent, person)
        alike = [it for it in range(place) if _says(gates[it]) == _says(gate)]
        if alike:
            return f"{ORG_FILE}#/gates/{alike[0]}"
        gates.insert(place, gate)
        fs.publish(Path(base), ORG_FILE, pretty(plain))
    return f"{ORG_FILE}#/gates/{place}"


def gate_for(call: Json, agent: str, person: str) -> Json:
    """Return the gate that lets an agent call a tool."""
    return {
        "at": "call",
        "tool": call["tool"],
        "when": {"field": "agent", "op": "is", "value": agent},
        "then": "pass",
        "because": f"{person} said so about {call['id']}",
    }


def _says(gate: Any) -> Any:
    return {key: it for key, it in gate.items() if key != "because"} if isinstance(gate, dict) else gate


def _read(base: OrgPath) -> bytes:
    try:
        return fs.read_bytes(f"{base}/{ORG_FILE}", _LIMIT_BYTES)
    except FileNotFoundError:
        return b"{}\n"
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=ORG_FILE) from error
