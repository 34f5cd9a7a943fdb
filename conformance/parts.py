"""What an engine may leave out, and what it then must refuse: ENG-6."""

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


def part_of(check: Check) -> str:
    """Return the part that a check is about; empty: what every engine has."""
    return next((PARTS[it[:3]] for it in check.holds if it[:3] in PARTS), "")


def refusing(part: str) -> Check:
    """Return the check that an engine which leaves a part out refuses what asks for it."""

    def check(bench: Bench) -> None:
        org = bench.org()
        org.agent("ada")
        org.agent("bob")
        _ASKING[part](org)
        status, _ = org.run()
        asked = {call.agent for call in org.calls}
        require(
            "ada" not in asked,
            f"{part}: it is left out, and ada took a turn all the same (status {status})",
        )

    name, words = f"what_asks_for_{part}_is_refused", f"Whoever asks for {part} takes no turn."
    return Check(name, words, ("ENG-6",), check)


def _gate(**gate: Any) -> Callable[[Org], None]:
    def ask(org: Org) -> None:
        org.agent("ada", gates=[gate])

    return ask


def _trust(org: Org) -> None:
    org.write("config/org.json", {"trust": {}})


def _plan(org: Org) -> None:
    models = {"default": org.model(), "plan": {"provider": "plan", "prompt": "values"}}
    org.write("config/models.json", models)
    org.agent("ada", model={"key": "plan"})
    org.write("agents/ada/plan.json", {"steps": [{"name": "one", "ask": "bob", "task": "Go on."}]})


def _channel(org: Org) -> None:
    drop = {"provider": "folder", "options": {"path": "shared/drop"}}
    org.write("config/models.json", {"default": org.model(), "drop": drop})
    org.agent("ada", model={"key": "drop"})


_ASKING: dict[str, Callable[[Org], None]] = {
    "requests": lambda org: org.agent("ada", "bob", team={"ask": ["bob"]}),
    "approvals": _gate(at="call", tool="file_write", then="ask"),
    "gates": _gate(at="call", tool="file_write", then="block"),
    "limits": _gate(at="spend", calls=1, per="agent", then="block"),
    "trust": _trust,
    "plans": _plan,
    "channels": _channel,
}
assert {*_ASKING} == {*PARTS.values()}
