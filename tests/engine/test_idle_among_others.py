"""Agents to whom nothing is new while others take turns: they are not read again, and none is missed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from sampling import EVERYTHING

from lemming.engine import run_once
from lemming.kernel.agents import survey_agents
from lemming.kernel.files import fs
from lemming.kernel.journal.turn_report import TickReport
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.providers import Backend, Reply, Request, register_provider
from lemming.kernel.tools import get_toolset
from lemming.kernel.turn.descriptions import SharedResource
from lemming.operations.turns.turn_dependencies import TurnDependencies, TurnWaits, find_affected_agents, find_waits
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say, tree

TICKS = 9
NAMES = [f"a{number}" for number in range(7)]
SHARED = {"allow_read": ["./shared"], "allow_write": ["./shared"]}
SEEDS = range(40 if EVERYTHING else 6)


class Talker(Backend):
    """Says and does by its agent's name and the tick, and mostly nothing that others would notice."""

    keeps_deadline = True

    def complete(self, request: Request) -> Reply:
        """Return an entry for somebody, a memory, a file that others have in their context, or nothing."""
        chance = random.Random(f"{request.agent} {request.tick}")
        reply = say("heard", memory_updates=[{"key": "last", "value": chance.randint(0, 2)}])
        reply["outbox_entries"][0]["payload"]["target"] = chance.choice(NAMES)
        if chance.random() < 0.6:
            reply["outbox_entries"] = []
        if chance.random() < 0.3:
            said = {"path": "shared/news.txt", "content": f"{request.agent} {request.tick}"}
            reply["tool_calls"] = [{"tool": "file_write", "args": said}]
        return Reply(text=json.dumps(reply))


def agent(name: str, chance: random.Random) -> dict[str, Any]:
    """Return a resume: some take turns by the clock, most wait for news of one kind or another."""
    schedule = chance.choice(
        [{"run_every_n_ticks": 3}, {"wake": "changed"}, {"wake": "changed"}, {"wake": "addressed"}]
    )
    reads = chance.choice([[], ["*"], chance.sample(NAMES, 2), chance.sample(NAMES, 2)])
    permissions = {
        "read_outboxes": [it for it in reads if it != name],
        "tools": ["file_write"] if schedule.get("run_every_n_ticks") else [],
        "file_access": SHARED,
        "read_memories": [f"{chance.choice(NAMES)}/last"] if chance.random() < 0.4 else [],
    }
    context = [{"file": "./shared/news.txt"}] if chance.random() < 0.3 else []
    return resume(name, model={"key": "talker"}, schedule=schedule, permissions=permissions, context=context)


def made(base: Path, seed: int, **settings: Any) -> Path:
    """Make a random organisation."""
    register_provider("talker", Talker)
    chance = random.Random(seed)
    agents = [agent(name, chance) for name in NAMES]
    visibility = chance.choice(["order", "order", "tick"])
    org = {"visibility": visibility, "durability": chance.choice(["tick", "turn", "off"]), **settings}
    make_org(base, *agents, org=org, models={"talker": {"provider": "talker"}})
    fs.write_atomic(base, "shared/news.txt", b"none yet")
    return base


def ends(report: TickReport) -> dict[str, tuple[str, str]]:
    return {turn.agent: (turn.status, turn.reason) for turn in report.turns}


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_remembered_of_who_was_idle_changes_nothing(tmp_path: Path, seed: int) -> None:
    forgetful = made(tmp_path / "forgetful", seed, executor="serial")
    at_once = made(tmp_path / "at_once", seed, max_parallel=8)
    in_turn = made(tmp_path / "in_turn", seed, max_parallel=1)
    held, also_held = Organisation(at_once), Organisation(in_turn)
    for _ in range(TICKS):
        anew = run_once(forgetful, clock=FrozenClock())
        for org in (held, also_held):
            assert ends(run_once(org, clock=FrozenClock())) == ends(anew)
        trees = [tree(base, without=(".lemming", "logs", "config")) for base in (at_once, in_turn)]
        assert trees == [tree(forgetful, without=(".lemming", "logs", "config"))] * 2


def one_talks(base: Path, **settings: Any) -> Organisation:
    """An agent that takes a turn in every tick, and some that only wake when somebody asks them."""
    idle = [resume(name, schedule={"wake": "addressed"}) for name in ("bob", "cyd")]
    make_org(base, resume("ada", permissions={}), *idle, org=settings)
    return Organisation(base)


@pytest.mark.parametrize("settings", [{}, {"executor": "serial"}])
def test_an_idle_agent_leaves_one_short_line_in_the_journal_and_none_in_logs(
    base: Path, settings: dict[str, Any]
) -> None:
    org = one_talks(base, **settings)
    for _ in range(4):
        run_once(org)
    lines = map(json.loads, (base / "logs/ticks/00000004.jsonl").read_text().splitlines())
    idle = [line for line in lines if line["type"] == "turn_skipped"]
    assert [[*line] for line in idle] == [["type", "epoch", "agent", "status", "reason", "check"]] * 2
    assert not list(base.glob("agents/[bc]*/logs"))
    assert "skipped" not in (base / "logs/engine.log").read_text()


def test_who_has_no_credits_left_is_told_so_in_the_logs(base: Path) -> None:
    make_org(base, resume("ada"), resume("bob", credits={"max_credits": 1}))
    run_once(base)
    run_once(base)
    assert "OutOfCredits" in str(journal_lines(base, 2))
    assert '"skipped"' in (base / "agents/bob/logs/activity.log").read_text()


def test_a_limit_that_all_share_wakes_nobody_who_is_idle(base: Path) -> None:
    make_org(base, *(resume(name, permissions={}) for name in ("ada", "bob", "cyd")))
    org = Organisation(base)
    agents, settings = survey_agents(org).agents, load_config(org).org
    shared = [SharedResource("a limit per organisation", {"ada"}, agents.keys())]
    connections = TurnDependencies(agents, settings, get_toolset(settings), org, shared=shared)
    assert find_waits([*agents], connections)["cyd"] == TurnWaits(frozenset({"ada"}))
    assert find_affected_agents(["ada"], ["bob", "cyd"], connections) == set()
