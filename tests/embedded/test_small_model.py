"""Small models that act, for real: one action a reply, under a grammar.

The organisation of three on Qwen2.5-Coder 0.5B takes minutes: `make crash` runs it, where its weights are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.org.model_entries import LOCAL_MODEL
from lemming.testing import journal_lines, make_org, resume, say


@pytest.mark.model
@pytest.mark.usefixtures("weights")
def test_a_grammar_holds_the_embedded_model_to_one_action(base: Path) -> None:
    small = {"provider": "local", "model": LOCAL_MODEL, "prompt": "brief", "max_output_tokens": 120}
    org = make_org(
        base,
        resume("bob"),
        resume("ada", model={"key": "small"}, permissions={"read_outboxes": ["bob"], "tools": ["file_read"]}),
        models={"small": {**small, "deadline_s": 600}},
        script=[{"agent": "bob", "reply": say("Say hello to me.")}],
    )
    run_once(org)
    lines = [line for line in journal_lines(org, 1) if line.get("agent") == "ada"]
    replies = [json.loads(line["text"]) for line in lines if line["type"] == "model_replied"]
    assert replies[0]["do"] in ("send", "file_read", "done")


@pytest.mark.model
@pytest.mark.long
def test_three_agents_on_the_smallest_qwen_read_compute_and_write(base: Path, qwen: dict[str, Any]) -> None:
    grants = {"allow_read": ["./shared"], "allow_write": ["./shared"]}

    def worker(name: str, tools: list[str], read: list[str], task: str) -> dict[str, Any]:
        may = {"tools": tools, "read_outboxes": read, "file_access": grants}
        blocks = {"permissions": may, "instructions": task, "turn": {"max_steps": 4}}
        return resume(name, model={"key": "qwen"}, **blocks)

    read = "Read the file shared/n.txt, then send a message with the number in it."
    count = "Take the number that reader sends, double it, and send the result."
    write = "Write the number that counter sends into the file shared/out.txt."
    org = make_org(
        base,
        worker("reader", ["file_read"], [], read),
        worker("counter", [], ["reader"], count),
        worker("writer", ["file_write"], ["counter"], write),
        models={"qwen": {**qwen, "prompt": "tools"}},
    )
    (base / "shared").mkdir(exist_ok=True)
    (base / "shared/n.txt").write_text("The number is 21.\n")
    reports = [run_once(org) for _ in range(3)]
    tools = [tool for report in reports for turn in report.turns for tool in turn.tools]
    assert {"file_read", "file_write"} <= {tool["tool"] for tool in tools if tool["success"]}
    assert (base / "shared/out.txt").read_text().strip()
    assert [replayed.tick for replayed in replay_ticks(org, [1, 2, 3])] == [1, 2, 3]
