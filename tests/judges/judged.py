"""Agents whose drafts are judged, and who asks for them to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.journal.turn_report import TurnReport
from lemming.testing import SkippingClock, make_org, resume, say, tree

JUDGED = "Judge the draft"
SENT_BACK = "It did not pass"


def verdict(*, passes: bool, reason: str = "too short", **how: Any) -> dict[str, Any]:
    return {"contains": JUDGED, "reply": {"passes": passes, "reason": reason}, **how}


BAD, GOOD = verdict(passes=False), verdict(passes=True, reason="")
BETTER = {"contains": SENT_BACK, "reply": say("a longer one")}
DRAFT = {"reply": say("short")}
CRITIC = resume("critic", instructions="Only poems pass.", schedule={"wake": "addressed"})


def turn_of(
    base: Path,
    *script: dict[str, Any],
    agents: tuple[dict[str, Any], ...] = (CRITIC,),
    verify: Any = None,
    models: dict[str, Any] | None = None,
    **blocks: Any,
) -> TurnReport:
    """Take one turn of ada, whose work is judged, and return its report."""
    blocks = {"permissions": {"read_outboxes": ["*"], "tools": ["file_write", "file_list"]}, **blocks}
    ada = resume("ada", verify=verify or {"by": "critic"}, **blocks)
    make_org(base, ada, *agents, script=[*script], models=models or {})
    return next(it for it in run_once(base, clock=SkippingClock()).turns if it.agent == "ada")


def entries(base: Path, name: str = "ada") -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(base.glob(f"agents/{name}/outbox/*.json"))]


def texts(base: Path, name: str = "ada") -> list[str]:
    return [entry["payload"]["text"] for entry in entries(base, name)]


def replays(base: Path) -> bool:
    before = tree(base)
    same = run(["-C", str(base), "replay"]) == 0 and run(["-C", str(base), "verify"]) == 0
    return same and tree(base) == before


def program(base: Path, code: str) -> list[str]:
    base.mkdir(parents=True, exist_ok=True)
    (base / "check.py").write_text(f"import json, sys\nasked = json.load(sys.stdin)\n{code}\n")
    return ["python3", "./check.py"]


QUIET = {"wake": "addressed"}
HUMAN = resume("human", model={"key": "human"})
