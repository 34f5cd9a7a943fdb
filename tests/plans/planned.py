"""Organisations with an agent whose brain is a plan, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.testing import make_org, resume


def step(name: str, ask: str = "", **more: Any) -> dict[str, Any]:
    """Return a step that asks somebody; `task` need not be given."""
    asking = {"ask": ask, "task": "{{start}}"} if ask else {}
    return {"name": name, **asking, **more}


def write_plan(base: Path, *steps: dict[str, Any], agent: str = "desk", **more: Any) -> None:
    """Write an agent's plan."""
    fs.write_atomic(base, f"agents/{agent}/plan.json", dump_pretty({"steps": [*steps], **more}))


def planned_org(base: Path, *steps: dict[str, Any], script: list[dict[str, Any]] | None = None, **more: Any) -> Path:
    """Make an organisation: a plan `desk`, agents `ada` and `bob`, and a person. `more` is of the plan."""
    may = {"read_outboxes": ["*"], "tools": ["shell", "file_write"]}
    make_org(
        base,
        resume("desk", model={"key": "plan"}, permissions=may),
        resume("ada"),
        resume("bob"),
        resume("human", model={"key": "human"}),
        script=script,
    )
    write_plan(base, *steps, **more)
    return base
