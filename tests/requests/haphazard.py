"""An organisation that does anything to one request with a budget, and a bank that bills for every call.

What an agent does follows from a seed, its name, the tick and the call: so a run is the same however many
turns are taken at once.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from asked import ask
from test_taking import entry, reply
from test_team import QUIET, calls

from lemming.engine import run_once
from lemming.kernel.base.errors import Unavailable
from lemming.kernel.llm.call_cost import cost_bound, max_input_tokens
from lemming.kernel.org.model_entries import ModelEntry
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.testing import Crash, FrozenClock, make_org, resume

BUDGET = 30.0
MODEL = {
    "provider": "haphazard", "per_call": 1.0, "per_1k_output_tokens": 1.0, "max_output_tokens": 500,
    "attempts": 2,
}  # fmt: skip
ENTRY = ModelEntry(**MODEL)
TEAM = ("ann", "bob", "cyd")
ENDS = ("answers", "answers", "says it has failed", "hands on")
GOES_ON = ("works on", "asks one", "asks two", "asks at once", "asks the first", "asks with little time")
BREAKS = ("is cut off", "dies", "talks rubbish", "refuses")


class Bank(Backend):
    """A provider that bills for each call that reaches it, and answers as the seed says."""

    keeps_deadline, can_be_down = True, False
    seed, bill, tokens, dead = 0, 0.0, 0, frozenset[tuple[str, int, int]]()

    @staticmethod
    def tells(chance: random.Random) -> str:
        """Return what happens to a call."""
        return chance.choice((*ENDS, *GOES_ON, *GOES_ON, *BREAKS))

    def complete(self, request: Request) -> Reply:
        """Answer, be cut off after the work is done, or take the engine along."""
        name, place = request.agent, (request.agent, request.tick, request.step)
        chance = random.Random(f"{Bank.seed} {place}")
        does = Bank.tells(chance)
        if does == "refuses":
            error = Unavailable("busy")
            error.may_be_paid = False
            raise error
        tokens_in = max_input_tokens(request)
        Bank.bill += float(cost_bound(ENTRY, tokens_in).credits)
        Bank.tokens += tokens_in + request.max_output_tokens
        if does == "is cut off":
            raise Unavailable("cut off")
        if does == "dies" and place not in Bank.dead:
            Bank.dead |= {place}
            raise Crash
        others = [it for it in TEAM if it != name]
        chance.shuffle(others)
        said = json.dumps(_said(does, others)) if does != "talks rubbish" else "no JSON"
        return Reply(said, tokens_in, request.max_output_tokens)


def _said(does: str, others: list[str]) -> dict[str, Any]:
    match does:
        case "answers":
            return reply(entry("response", "here", spent=0, budget=10_000))
        case "says it has failed":
            return reply(entry("response", "cannot", status="failed"))
        case "hands on":
            return calls((f"hand_to_{others[0]}", {"message": "yours"}))
        case "asks one":
            return calls((f"ask_{others[0]}", {"message": "what?"}))
        case "asks two":
            return calls(*((f"ask_{it}", {"message": "what?"}) for it in others))
        case "asks at once":
            return reply(entry("request", "all of you?", target=others, budget=10_000))
        case "asks the first":
            return reply(entry("request", "any of you?", target=others, join="first", within=2))
        case "asks with little time":
            return reply(entry("request", "at once?", target=others[0], deadline=1))
    return reply(entry("status", "working on it"))


register_provider("haphazard", Bank)


def haphazard(base: Path, *, at_once: int = 1, durability: str = "off", clean: bool = False, requests: int = 1) -> Path:
    """Make an organisation of three who ask each other and hand on to each other."""
    models = {"bank": MODEL, "human": {"provider": "human"}}
    team = [
        resume(
            name,
            model={"key": "bank"},
            team={"ask": [it for it in TEAM if it != name], "hand_to": [it for it in TEAM if it != name]},
            **QUIET,
            turn={"take": "one", "requests": requests},
            **({"trust": {"clean": "agent"}} if clean and name == "ann" else {}),
        )
        for name in TEAM
    ]
    settings: dict[str, Any] = {"max_parallel": at_once, "durability": durability, "max_attempts": 4}
    settings |= {"executor": "serial"} if at_once == 1 else {}
    settings |= {"trust": {"rules": [{"from": it, "is": "outside"} for it in ("bob", "cyd")]}} if clean else {}
    return make_org(base, resume("human", model={"key": "human"}), *team, models=models, org=settings)


def spend(base: Path, seed: int, budget: float | str = BUDGET, whom: Any = "ann", **payload: Any) -> None:
    """Ask for one thing, and let the organisation do what it likes for it; the engine dies and comes back."""
    Bank.seed, Bank.bill, Bank.tokens, Bank.dead = seed, 0.0, 0, frozenset()
    ask(base, whom, "do it", budget=budget, **payload)
    for _ in range(30):
        try:
            run_once(base, clock=FrozenClock())
        except Crash:
            continue
