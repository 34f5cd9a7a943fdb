"""A run played turn by turn without an engine: what it asks, and what came of it."""

from __future__ import annotations

from typing import Any

from lemming.capabilities.plans.next_step import advance_run
from lemming.capabilities.plans.plan_format import AgentPlan, parse_plan
from lemming.capabilities.plans.plan_run import PlanRun, parse_run
from lemming.kernel.base.jsontext import dump_pretty

Json = dict[str, Any]


def plan(*steps: Json, **more: Any) -> AgentPlan:
    """Return a plan as its file would give it."""
    return parse_plan(dump_pretty({"steps": [*steps], **more}), "plan.json").value


class Played:
    """One run for one request; `says` answers what is asked, by the agent's name."""

    def __init__(self, plan: AgentPlan, text: str = "bees", **payload: Any) -> None:
        self.plan, self.tick, self.memory = plan, 0, dict[str, Any]()
        self.request = {"id": "3fa9c1d2e0b7", "from": "human", "tick": 0, "payload": {"text": text, **payload}}
        self.asked: list[Json] = []
        self.results: list[Json] = []
        self.files: dict[str, str | None] = {}
        self.time = ""
        self.replies: list[Json] = []

    @property
    def values(self) -> Json:
        return {"tick": self.tick, "request": self.request, "asked": self.asked, "memory": self.memory,
                "results": self.results, "files": self.files, "time": self.time}  # fmt: skip

    def turn(self) -> Json:
        """Take a turn, twice: the same values give the same reply."""
        found = self.memory.get("run-3fa9c1d2e0b7")
        first, second = (
            advance_run(self.plan, parse_run(found) if found else PlanRun(request="3fa9c1d2e0b7"), self.values)
            for _ in range(2)
        )
        assert first == second
        self.memory |= {update["key"]: update["value"] for update in first["memory_updates"]}
        self.asked += [
            {"id": f"{len(self.asked)}", "to": entry["payload"]["target"], "payload": entry["payload"],
             "end": None, "answer": None}
            for entry in first["outbox_entries"] if entry["kind"] == "request"
        ]  # fmt: skip
        self.replies.append(first)
        self.tick += 1
        return first

    @property
    def open(self) -> list[str]:
        """Who has not answered."""
        return [asked["to"] for asked in self.asked if asked["end"] is None]

    def answer(self, to: str, text: str = "", end: str = "answered", **fields: Any) -> None:
        """Answer what somebody was asked first."""
        asked = next(asked for asked in self.asked if asked["to"] == to and asked["end"] is None)
        asked["end"], asked["answer"] = end, {"text": text, "reply_to": asked["id"], **fields}

    def text_for(self, to: str) -> str:
        """Return what somebody was asked last."""
        return str(next(asked for asked in reversed(self.asked) if asked["to"] == to)["payload"]["text"])

    @property
    def response(self) -> Json | None:
        """What the request was answered; None while it is open."""
        said = [entry["payload"] for entry in self.replies[-1]["outbox_entries"] if entry["kind"] == "response"]
        return said[0] if said else None
