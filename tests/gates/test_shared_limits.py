"""Limits that several agents share: families, requests, turns at once."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from limited import HELLO, SCRIPTED, limited, spend, turns
from sampling import EVERYTHING

from lemming.capabilities.gates.tick_spending import group_families
from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import get_toolset
from lemming.kernel.turn.descriptions import OrgQuery, SharedResource
from lemming.kernel.turn.preparation_chain import active_capabilities
from lemming.libraries.outbox_files import write_person_entry
from lemming.operations.turns.turn_dependencies import TurnDependencies, find_waits
from lemming.testing import FrozenClock, make_org, resume, say, tree


def test_a_request_is_limited_with_all_that_was_asked_for_it(base: Path) -> None:
    quiet = {"schedule": {"wake": "addressed"}, "turn": {"take": "one"}}
    asks = [{"tool": f"ask_{name}", "args": {"message": "?"}} for name in ("bob", "cyd")]
    script = [
        {"agent": "ada", "contains": '"output": "', "reply": say("both", kind="response")},
        {"agent": "ada", "reply": {**say("asking"), "outbox_entries": [], "tool_calls": asks}},
        {"reply": say("seven", kind="response")},
    ]
    agents = [
        resume("ada", team={"ask": ["bob", "cyd"]}, **quiet),
        resume("bob", **quiet),
        resume("cyd", **quiet),
        resume("human", model={"key": "human"}),
    ]
    for limit, made in ((1, 1), (2, 2), (3, 3), (4, 4), (9, 4)):
        org = limited(base / str(limit), spend(calls=limit, per="request"), agents=agents, script=script)
        by_hand = {"kind": "request", "payload": {"text": "?", "target": "ada"}, "tags": []}
        entry = {"id": "first", "tick": 0, "agent": "human", "created_at": "2026-01-01T00:00:00.000Z", **by_hand}
        fs.write_atomic(org, "agents/human/outbox/00000000_first.json", dump_pretty(entry))
        ran = [turn for _ in range(6) for turn in turns(org).values()]
        assert sum(turn.calls for turn in ran) == made


def test_agents_that_one_created_share_its_limits(base: Path) -> None:
    new = {"tool": "create_agent", "args": {"name": "eve", "title": "Eve", "instructions": "Work."}}
    hr = resume("hr", permissions={"tools": ["create_agent"]}, gates=[spend(calls=4, per="agent")])
    script = [{"agent": "hr", "tick": 1, "reply": say("hiring", tool_calls=[new])}, *HELLO]
    limited(base, agents=[hr, "bob"], script=script)
    written = None
    made = []
    for _ in range(5):
        ran = turns(base)
        made.append({name: ran[name].calls for name in ("hr", "eve") if name in ran})
        written = json.loads((base / "agents/eve/resume.json").read_bytes())
        assert ran["bob"].calls == 1
    assert sum(sum(it.values()) for it in made) == 4
    assert (written["created_by"], written["gates"]) == ("hr", [spend(calls=4, per="agent")])


def test_agents_share_limits_still_when_their_creator_is_renamed_or_removed(base: Path) -> None:
    def of(base: Path) -> frozenset[str]:
        return group_families(survey_agents(base).agents)["eve"]

    made = [resume(name, created_by=by) for name, by in (("eve", "mid"), ("fay", "hr"), ("mid", "hr"))]
    limited(base, agents=["hr", *made, "bob"])
    assert of(base) == {"hr", "eve", "fay", "mid"}
    assert run(["-C", str(base), "agents", "rm", "mid"]) == 0
    assert of(base) == {"hr", "eve", "fay"}
    assert run(["-C", str(base), "agents", "rename", "hr", "boss"]) == 0
    assert of(base) == {"boss", "eve", "fay"}
    assert run(["-C", str(base), "agents", "rm", "boss"]) == 0
    assert of(base) >= {"eve", "fay"}


def test_how_deep_agents_create_agents_is_limited(base: Path) -> None:
    new = {"tool": "create_agent", "args": {"name": "eve", "title": "Eve", "instructions": "Work."}}
    hr = resume("hr", permissions={"tools": ["create_agent"]}, created_by="boss")
    org = {"create_agent_allowed": ["hr"], "create_agent_max_depth": 1}
    limited(base, agents=[hr, "boss"], script=[{"reply": say("hiring", tool_calls=[new])}], **org)
    turns(base)
    assert not (base / "agents/eve").exists()
    fs.write_atomic(base, "config/org.json", dump_pretty({**org, "create_agent_max_depth": 2}))
    turns(base)
    assert (base / "agents/eve").exists()


NAMES = [f"a{number}" for number in range(8)]


def random_org(base: Path, seed: int, max_parallel: int, durability: str) -> tuple[Path, list[dict[str, Any]]]:
    chance = random.Random(seed)
    gates = [
        spend(
            chance.choice(["block", "block", "warn"]),
            **{chance.choice(["credits", "calls"]): chance.choice([3, 5, 8, 13, 40, 200])},
            per=chance.choice(["organisation", "organisation", "agent", "turn", "request"]),
        )
        for _ in range(3)
    ]
    for gate in gates:
        if gate["per"] != "turn" and chance.random() < 0.5:
            gate["window"] = {"ticks": chance.choice([1, 2, 3])}
    agents = [
        resume(
            name,
            permissions={"read_outboxes": chance.choice([[], [], ["*"], chance.sample(NAMES, 2)])},
            model={"key": chance.choice(["scripted", "dear"])},
            turn={"max_steps": chance.choice([1, 2, 3]), "repairs": chance.choice([0, 1])},
            created_by=chance.choice(["", "", "a0", "a1"]) if name not in ("a0", "a1") else "",
        )
        for name in NAMES
    ]
    look = say("more", tool_calls=[{"tool": "list_agents", "args": {}}])
    slow = random.Random()
    script = [
        {"agent": name, "tick": tick, "step": step, "reply": chance.choice([say("done"), look, look, "no"]),
         "delay_s": slow.choice([0, 0, 0.002, 0.01])}
        for name in NAMES for tick in range(1, 5) for step in range(8)
    ]  # fmt: skip
    models = {"dear": {**SCRIPTED, "model": "dear", "per_call": 1.7, "per_1k_output_tokens": 0.4}}
    org = {"gates": gates, "max_parallel": max_parallel, "durability": durability, "history": "off"}
    return make_org(base, *agents, script=script, models=models, org=org), gates


@pytest.mark.sample(3)
@pytest.mark.crash
@pytest.mark.parametrize("durability", ["off", "tick"])
@pytest.mark.parametrize("seed", range(8 if EVERYTHING else 3))
def test_turns_at_once_write_what_turns_one_after_another_do(tmp_path: Path, seed: int, durability: str) -> None:
    found = []
    for at_once in (1, 2, 8) if EVERYTHING else (1, 8):
        base, gates = random_org(tmp_path / str(at_once), seed, at_once, durability)
        for _ in range(4):
            reports = turns(base)
            for gate in gates:
                if gate["then"] == "block" and gate["per"] == "organisation" and gate.get("window") == {"ticks": 1}:
                    key = "calls" if "calls" in gate else "credits"
                    spent = sum(getattr(turn, key) for turn in reports.values())
                    assert round(spent, 6) <= gate[key]
        found.append(tree(base, without=("logs", ".lemming", "config")))
        assert [replayed.tick for replayed in replay_ticks(base, [1, 2, 3, 4])] == [1, 2, 3, 4]
    assert found[1:] == found[:1] * (len(found) - 1)


@pytest.mark.parametrize(
    ("gates", "waits"),
    [
        ({"org": spend(credits=9, per="organisation")}, {"bob": ["ada"], "cyd": ["bob"]}),
        ({"org": spend("warn", credits=9, per="request")}, {"bob": ["ada"], "cyd": ["bob"]}),
        ({"org": spend(credits=9, per="agent")}, {"cyd": ["ada"]}),
        ({"org": spend(credits=9, per="turn")}, {}),
        ({"org": spend(models=["scripted"])}, {}),
        ({"bob": spend(credits=9, per="organisation")}, {"bob": ["ada"], "cyd": ["bob"]}),
        ({"cyd": spend(credits=9, per="organisation")}, {"cyd": ["ada", "bob"]}),
        ({"cyd": spend(credits=9, per="agent")}, {"cyd": ["ada"]}),
        ({"bob": spend(credits=9, per="agent")}, {}),
    ],
)
def test_turns_that_share_a_limit_wait_for_each_other_and_no_others_do(
    base: Path, gates: dict[str, Any], waits: dict[str, list[str]]
) -> None:
    """Cyd is of ada's family."""
    agents = [
        resume(
            name,
            permissions={"read_outboxes": []},
            gates=[gates[name]] if name in gates else [],
            created_by="ada" if name == "cyd" else "",
        )
        for name in ("ada", "bob", "cyd")
    ]
    limited(base, *([gates["org"]] if "org" in gates else []), agents=agents)
    config, survey = load_config(base), survey_agents(base)
    query = OrgQuery(SharedResource, Organisation.from_path(base), survey.agents, config)
    shared = [resource for capability in active_capabilities(config, survey) for resource in query.ask(capability)]
    found = find_waits(
        [*survey.agents], TurnDependencies(survey.agents, config.org, get_toolset(config.org), base, shared=shared)
    )
    assert {name: sorted(it.names) for name, it in found.items() if it.names} == waits
    assert not any(it.everyone for it in found.values())


def test_a_limit_of_a_request_adds_up_what_its_own_turn_of_several_in_a_tick_asked_for(base: Path) -> None:
    def asks(about: str) -> dict[str, Any]:
        entry = {"kind": "request", "payload": {"target": "bob", "text": f"for {about}"}, "tags": []}
        return {"agent": "desk", "contains": about, "tick": 1, "reply": {"outbox_entries": [entry]}}

    turn = {"take": "one", "requests": 2}
    script = [asks("AAA"), asks("BBB"), {"reply": say("done", kind="response")}]
    models = {
        "human": {"provider": "human"},
        "scripted": {"provider": "scripted", "options": {"file": "config/answers.jsonl"}, "per_call": 1.0},
    }
    limit = {"at": "spend", "credits": 2.5, "per": "request", "then": "block"}
    people = [resume("eve", model={"key": "human"})]
    agents = [resume(name, turn=turn) for name in ("desk", "bob")]
    make_org(base, *agents, *people, models=models, org={"gates": [limit]}, script=script)
    for text in ("AAA", "BBB"):
        asked = {"text": text, "target": "desk"}
        write_person_entry(base, "eve", tick=1, kind="request", payload=asked, tags=[], created_at="")
    run_once(base, clock=FrozenClock())
    reports = [it for it in run_once(base, clock=FrozenClock()).turns if it.agent == "desk"]
    assert [it.verdicts[0]["amounts"]["spent"] for it in reports] == [2.0, 2.0]
