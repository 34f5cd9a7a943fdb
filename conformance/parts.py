"""Optional parts of an engine, and the required refusal of a missing part: ENG-6."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.bench import Bench, Org
from conformance.check import Check
from conformance.reading import require

PARTS = {
    "REQ": "requests",
    "APR": "approvals",
    "GAT": "gates",
    "TRU": "trust",
    "LIM": "limits",
    "PLN": "plans",
    "CHN": "channels",
}
"""The parts that an engine may leave out, by what the numbers of their requirements begin with."""


def get_part(check: Check) -> str:
    """Return the optional part covered by a check, or an empty string for the mandatory core."""
    return next((PARTS[requirement[:3]] for requirement in check.requirements if requirement[:3] in PARTS), "")


def make_refusal_check(part: str) -> Check:
    """Return the check that an engine without a part refuses agents with a need for the part."""

    def check(bench: Bench) -> None:
        org = bench.make_org()
        org.add_agent("ada")
        org.add_agent("bob")
        _SETUPS[part](org)
        status, _ = org.run_engine()
        called_agents = {call.agent for call in org.calls}
        require(
            "ada" not in called_agents, f"{part}: it is left out, and ada took a turn all the same (status {status})"
        )

    name, summary = f"what_asks_for_{part}_is_refused", f"Whoever asks for {part} takes no turn."
    return Check(name, summary, ("ENG-6",), check)


def _setup_gate(**gate: Any) -> Callable[[Org], None]:
    def setup(org: Org) -> None:
        org.add_agent("ada", gates=[gate])

    return setup


def _setup_trust(org: Org) -> None:
    org.write_file("config/org.json", {"trust": {}})


def _setup_plan(org: Org) -> None:
    models = {"default": org.make_model_entry(), "plan": {"provider": "plan", "prompt": "values"}}
    org.write_file("config/models.json", models)
    org.add_agent("ada", model={"key": "plan"})
    org.write_file("agents/ada/plan.json", {"steps": [{"name": "one", "ask": "bob", "task": "Go on."}]})


def _setup_channel(org: Org) -> None:
    drop = {"provider": "folder", "options": {"path": "shared/drop"}}
    org.write_file("config/models.json", {"default": org.make_model_entry(), "drop": drop})
    org.add_agent("ada", model={"key": "drop"})


_SETUPS: dict[str, Callable[[Org], None]] = {
    "requests": lambda org: org.add_agent("ada", "bob", team={"ask": ["bob"]}),
    "approvals": _setup_gate(at="call", tool="file_write", then="ask"),
    "gates": _setup_gate(at="call", tool="file_write", then="block"),
    "limits": _setup_gate(at="spend", calls=1, per="agent", then="block"),
    "trust": _setup_trust,
    "plans": _setup_plan,
    "channels": _setup_channel,
}
assert {*_SETUPS} == {*PARTS.values()}
