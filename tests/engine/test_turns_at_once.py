"""Turns at once: the same files as one after another, whoever is slow; and nobody waits without a reason."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE_S
from sampling import EVERYTHING

from lemming.engine import run_once
from lemming.kernel.agents import Agent, survey_agents
from lemming.kernel.base.errors import DiskError
from lemming.kernel.files.json_documents import to_value
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.journal_records import TurnEnded, TurnStarted
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.providers import LLMProvider, register_provider
from lemming.kernel.tick.turn_threads import TurnLock
from lemming.kernel.tools import Places, Tool, ToolRegistry, ToolResult, get_toolset
from lemming.operations.turns.parallel_turns import run_turns
from lemming.operations.turns.turn_dependencies import TurnDependencies, TurnWaits, find_waits
from lemming.queries.forecast import explain_dependency, find_longest_chain
from lemming.testing import SCRIPT_FILE, FrozenClock, journal_lines, make_org, resume, say, tree

TICKS = 3
SHARED = {"allow_read": ["./workspace", "./shared"], "allow_write": ["./workspace", "./shared"]}
NAMES = [f"a{number}" for number in range(9)]


def waits_of(
    agents: Mapping[str, Agent], org: OrgSettings, base: Path, order: list[str] | None = None
) -> dict[str, TurnWaits]:
    """Return whom each turn waits for, with the tools of an organisation that has these settings."""
    connections = TurnDependencies(agents, org, get_toolset(org), base)
    return find_waits([*agents] if order is None else order, connections)


def reasons(later: Agent, earlier: Agent, org: OrgSettings, base: Path) -> list[str]:
    """Return why one turn waits for another."""
    agents = {agent.name: agent for agent in (later, earlier)}
    return explain_dependency(later, earlier, TurnDependencies(agents, org, get_toolset(org), base))


def permissions(chance: random.Random) -> dict[str, Any]:
    """Return what one agent of a random organisation may do."""
    readable = chance.choice([[], ["*"], chance.sample(NAMES, 2), chance.sample(NAMES, 3)])
    changing = ["file_append", "file_edit", "file_move", "file_search", "search"]
    all_of_them = ["file_read", "file_write", "file_list", *changing]
    tools = chance.choice([[], [], ["file_read"], ["file_write"], changing, all_of_them])
    return {"read_outboxes": readable, "tools": tools, "file_access": chance.choice([{}, SHARED])}


def reply(name: str, tick: int, chance: random.Random) -> dict[str, Any]:
    """Return what a model says: now and then it lists the shared folder and writes into it."""
    calls = [
        {"tool": "file_list", "args": {"path": "shared"}},
        {"tool": "file_write", "args": {"path": f"shared/{chance.choice('xyz')}.txt", "content": f"{name} {tick}"}},
        {"tool": "file_read", "args": {"path": f"shared/{chance.choice('xyz')}.txt"}},
        {"tool": "file_append", "args": {"path": f"shared/{chance.choice('xyz')}.txt", "content": name}},
        {"tool": "file_edit", "args": {"path": f"shared/{chance.choice('xyz')}.txt", "old": "a", "new": "b"}},
        {"tool": "file_search", "args": {"text": "a"}},
        {"tool": "file_move", "args": {"path": "shared/x.txt", "to": "shared/y.txt", "over": True}},
        {"tool": "search", "args": {"query": name}},
    ]
    return say(
        f"{name} says {chance.randint(0, 99)}",
        tool_calls=chance.sample(calls, chance.randint(0, 4)),
        memory_updates=[{"key": "last", "value": tick}],
    )


WIDE = {"wide": {"provider": "scripted", "options": {"file": SCRIPT_FILE}, "max_concurrent": 5}}


def random_org(base: Path, seed: int, **org: Any) -> Path:
    """Make an organisation whose models take their time, each time another one; one takes many calls."""
    chance = random.Random(seed)
    resumes = [
        resume(
            name,
            model={"key": "wide" if name in NAMES[::2] else "scripted"},
            permissions=permissions(chance),
            schedule={"run_every_n_ticks": 2, "phase_offset": chance.randint(0, 1)},
            turn={"max_steps": 2},
        )
        for name in NAMES
    ]
    script = [
        {"agent": name, "tick": tick, "step": step, "reply": reply(name, tick, chance)}
        for name in NAMES
        for tick in range(TICKS + 1)
        for step in range(3)
    ]
    slow = random.Random()
    for line in script:
        line["delay_s"] = slow.choice([0, 0, 0.002, 0.01])
    return make_org(base, *resumes, script=script, org=org, models=WIDE)


def files_after(base: Path) -> dict[str, bytes]:
    for _ in range(TICKS):
        run_once(base, clock=FrozenClock())
    return tree(base, without=(".lemming", "logs", "config"))


@pytest.mark.sample(6)
@pytest.mark.parametrize("durability", ["off", "tick"])
@pytest.mark.parametrize("visibility", ["order", "tick"])
@pytest.mark.parametrize("seed", range(3))
def test_the_files_are_those_of_one_after_another(seed: int, visibility: str, durability: str, tmp_path: Path) -> None:
    settings_ = {"visibility": visibility, "durability": durability}
    alone = files_after(random_org(tmp_path / "1", seed, max_parallel=1, **settings_))
    for at_once in (2, 8, 64):
        together = files_after(random_org(tmp_path / str(at_once), seed, max_parallel=at_once, **settings_))
        assert together == alone


def test_prompts_are_those_of_one_after_another(tmp_path: Path) -> None:
    def prompts(base: Path) -> dict[str, Any]:
        run_once(base, clock=FrozenClock())
        return {r["agent"]: r["prompt"] for r in journal_lines(base, 1) if r["type"] == "turn_started"}

    for seed in range(4):
        alone = prompts(random_org(tmp_path / f"{seed}-1", seed, max_parallel=1))
        assert prompts(random_org(tmp_path / f"{seed}-8", seed, max_parallel=8)) == alone


class Meeting(LLMProvider):
    """A model that answers once three ask it at the same time."""

    together = threading.Barrier(3)

    def call(self, model_name: str, messages: list[Any], temperature: float | None, **_: Any) -> str:
        Meeting.together.wait(timeout=PATIENCE_S)
        return json.dumps(say("here"))


def test_who_reads_nobody_waits_for_nobody(base: Path) -> None:
    register_provider("meeting", Meeting)
    resumes = [resume(f"a{n}", permissions={}, model={"key": "meeting"}) for n in range(3)]
    make_org(base, *resumes, models={"meeting": {"provider": "meeting"}}, org={"max_parallel": 3})
    report = run_once(base)
    assert [turn.status for turn in report.turns] == ["done"] * 3


def test_a_full_disk_in_one_turn_ends_the_tick_and_the_next_run_finishes_it(base: Path) -> None:
    resumes = [resume(f"a{n}", permissions={}) for n in range(6)]
    make_org(base, *resumes, org={"max_parallel": 3})

    def refuse(event: Event) -> None:
        if isinstance(event, TurnStarted) and event.agent == "a4":
            raise DiskError("the disk is full")

    with pytest.raises(DiskError, match="full"):
        run_once(base, notify=refuse)
    report = run_once(base)
    assert [turn.agent for turn in report.by_status("done")] == [f"a{n}" for n in range(6)]
    answers = [record for record in journal_lines(base, 1) if record["type"] == "model_replied"]
    assert len(answers) == 6, "nothing was paid for twice"


def test_a_stop_lets_running_turns_end_and_begins_no_other(base: Path) -> None:
    make_org(base, *(resume(f"a{n}", permissions={}) for n in range(8)), org={"max_parallel": 2})
    stop = threading.Event()

    def hear(event: Event) -> None:
        if isinstance(event, TurnEnded):
            stop.set()

    report = run_once(base, notify=hear, stop=stop)
    assert not report.is_complete
    assert 1 <= len(report.turns) <= 2
    assert run_once(base).totals["done"] == 8


# --- who waits for whom ------------------------------------------------------------------------

agents_strategy = st.lists(
    st.tuples(
        st.sampled_from([[], ["*"], ["a0"], ["a1", "a3"], ["a2"]]),
        st.sampled_from([[], ["file_read"], ["file_write"], ["list_agents"], ["file_read", "file_write"]]),
        st.sampled_from([["./workspace"], ["./shared"], ["./shared/in"], ["/data"], ["/data/x", "./shared"]]),
        st.sampled_from([["./workspace"], ["./shared"], ["./shared/out"], ["/data/x"], ["/"]]),
    ),
    min_size=1,
    max_size=6,
)


@given(agents_strategy, st.sampled_from(["order", "tick"]))
@settings(max_examples=100 if EVERYTHING else 15, deadline=None)
def test_a_turn_waits_for_another_exactly_if_a_permission_says_so(
    drawn: list[tuple[list[str], list[str], list[str], list[str]]], visibility: str
) -> None:
    agents: dict[str, Agent] = {}
    for number, (readable, tools, reads, writes) in enumerate(drawn):
        plain = resume(f"a{number}")
        plain["permissions"] = {
            "read_outboxes": readable,
            "tools": tools,
            "file_access": {"allow_read": reads, "allow_write": writes},
        }
        agents[f"a{number}"] = to_value(Agent, plain)
    org = OrgSettings(visibility=visibility)  # type: ignore[arg-type]
    base, order = Path("/org"), list(agents)
    waits = waits_of(agents, org, base, order)
    reach: dict[str, set[str]] = {}
    expected: dict[str, set[str]] = {}
    for rank, name in enumerate(order):
        direct = set(order[:rank]) if waits[name].everyone else set(waits[name].names)
        reach[name] = direct.union(*(reach[other] for other in direct))
        asked = {other for other in order[:rank] if reasons(agents[name], agents[other], org, base)}
        expected[name] = asked.union(*(expected[other] for other in asked))
        assert direct <= set(order[:rank])
    assert reach == expected
    chain = find_longest_chain(order, waits)
    assert all(one in reach[other] for one, other in pairwise(chain))


def test_a_reason_names_the_permission(base: Path) -> None:
    make_org(
        base,
        resume("ada", permissions={"tools": ["file_write"], "file_access": {"allow_write": ["./shared"]}}),
        resume("bob", permissions={"read_outboxes": ["*"]}),
        resume("cyd", permissions={"tools": ["file_read"], "file_access": {"allow_read": ["./shared"]}}),
    )
    agents = survey_agents(base).agents
    assert reasons(agents["bob"], agents["ada"], OrgSettings(), base) == [
        'bob may read its outbox: permissions.read_outboxes has "*"'
    ]
    assert reasons(agents["cyd"], agents["ada"], OrgSettings(), base) == [
        "cyd may read what it changes: file_access.allow_read ./shared; ada: file_access.allow_write ./shared"
    ]
    assert reasons(agents["ada"], agents["cyd"], OrgSettings(visibility="tick"), base) != []
    assert reasons(agents["bob"], agents["ada"], OrgSettings(visibility="tick"), base) == []


# --- the executor ------------------------------------------------------------------------------


def test_a_tool_that_says_what_it_touches_lets_the_others_run_at_once(base: Path) -> None:
    class Board(Tool):
        name = "board"
        description = "Pins a note to the board."

        def execute(self, agent_name: str, base_path: Path) -> ToolResult:
            return ToolResult(True)

        def write_paths(self, agent: Agent, org: OrgSettings) -> Places:
            return {"shared/board": "tool board"}

    reading = {"allow_read": ["./shared/board"], "allow_write": []}
    resumes = (
        resume("ada", permissions={"tools": ["board"], "read_outboxes": []}),
        resume("bob", permissions={"tools": ["file_read"], "read_outboxes": [], "file_access": reading}),
        resume("cyd", permissions={"read_outboxes": []}),
    )
    agents = survey_agents(make_org(base, *resumes)).agents
    ToolRegistry.register(Board())
    try:
        waits = waits_of(agents, OrgSettings(), base)
        assert waits == {"ada": TurnWaits(), "bob": TurnWaits(frozenset({"ada"})), "cyd": TurnWaits()}
        assert reasons(agents["bob"], agents["ada"], OrgSettings(), base) == [
            "bob may read what it changes: file_access.allow_read ./shared/board; ada: tool board"
        ]
    finally:
        ToolRegistry.unregister("board")


def test_every_name_is_called_once_after_those_it_waits_for() -> None:
    chance = random.Random(7)
    order = [f"n{number}" for number in range(200)]
    waits = {
        name: TurnWaits(frozenset(chance.sample(order[:rank], min(rank, 2))), everyone=chance.random() < 0.02)
        for rank, name in enumerate(order)
    }
    over: list[str] = []
    running: set[str] = set()
    most = 0

    def work(name: str) -> None:
        nonlocal most
        rank = order.index(name)
        needed = order[:rank] if waits[name].everyone else waits[name].names
        assert set(needed) <= set(over)
        running.add(name)
        most = max(most, len(running))
        running.discard(name)
        over.append(name)

    run_turns(order, waits, work, max_parallel=5, turn_lock=TurnLock(), stop=threading.Event())
    assert sorted(over) == sorted(order)
    assert most <= 5


def test_an_error_of_one_is_raised_after_the_running_ones_are_over() -> None:
    began, stop, ended = threading.Event(), threading.Event(), []
    turn_lock = TurnLock()

    def work(name: str) -> None:
        if name == "bad":
            with turn_lock.waiting:
                assert began.wait(PATIENCE_S)
            raise ValueError("no")
        began.set()
        ended.append(name)

    waits = {"bad": TurnWaits(), "good": TurnWaits()}
    with pytest.raises(ValueError, match="no"):
        run_turns(["bad", "good"], waits, work, max_parallel=2, turn_lock=turn_lock, stop=stop)
    assert ended == ["good"]
    assert stop.is_set()
