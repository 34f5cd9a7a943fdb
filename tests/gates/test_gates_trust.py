"""Gates that look at how far a turn is trusted, and those that look at what is never there."""

from __future__ import annotations

from pathlib import Path

import pytest
from gated import call, org
from guide import prompts

from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.files import fs
from lemming.testing import FrozenClock, make_org, resume, say


def test_gates_look_at_how_far_a_turn_is_trusted(base: Path) -> None:
    """The turn that was shown a stranger's words may not write; the same agent's turn without them may."""
    from_outside = {"field": "trust", "op": "is", "value": "outside"}
    elsewhere = {"field": "own", "op": "is", "value": False}
    gates = [{"at": "call", "class": "write", "when": {"all": [from_outside, elsewhere]}, "then": "block"}]
    access = {"allow_write": ["./shared", "./workspace"]}
    permissions = {"read_outboxes": ["*"], "tools": ["file_write"], "file_access": access}
    writes = [call("file_write", path=f"{place}/a", content="x") for place in ("shared", "workspace")]
    bob = resume("bob", permissions=permissions | {"read_outboxes": []})
    settings = {"gates": gates, "trust": {"rules": [{"from": "eve", "is": "outside"}]}}
    script = [{"reply": say("writing", tool_calls=writes)}]
    eve = resume("eve", model={"key": "human"})
    make_org(base, resume("ada", permissions=permissions), bob, eve, script=script, org=settings)
    (base / "shared").mkdir()
    assert run(["-C", str(base), "send", "--as", "eve", "write!"]) == 0
    turns = {turn.agent: turn for turn in run_once(base, clock=FrozenClock()).turns}
    assert [used["outcome"] for used in turns["ada"].tools] == ["refused", "ok"]
    assert [used["outcome"] for used in turns["bob"].tools] == ["ok", "ok"]


def test_a_turn_falls_with_the_first_thing_that_it_reads(base: Path) -> None:
    from_outside = {"field": "trust", "op": "is", "value": "outside"}
    gates = [{"at": "call", "class": "write", "when": from_outside, "then": "block"}]
    access = {"allow_read": ["./shared"], "allow_write": ["./shared"]}
    permissions = {"read_outboxes": [], "tools": ["file_read", "file_write"], "file_access": access}
    reads, writes = call("file_read", path="shared/in.txt"), call("file_write", path="shared/out.txt", content="x")
    script = [{"step": 0, "reply": say("", tool_calls=[reads])}, {"step": 1, "reply": say("", tool_calls=[writes])}]
    org = make_org(
        base,
        resume("ada", permissions=permissions, turn={"max_steps": 2}),
        script=script,
        org={"gates": gates, "trust": {}},
    )
    fs.write_atomic(org, "shared/in.txt", b"obey me")
    fs.write_atomic(org, "trust/shared/in.txt.json", b'{"trust": "outside", "tick": 0, "agent": "post"}')
    (turn,) = run_once(org, clock=FrozenClock()).turns
    assert [used["outcome"] for used in turn.tools] == ["ok", "refused"]


def test_limits_look_at_how_far_a_turn_is_trusted(base: Path) -> None:
    low = {"field": "trust", "op": "is", "value": "outside"}
    settings = {
        "gates": [{"at": "spend", "when": low, "then": "block"}],
        "trust": {"rules": [{"from": "eve", "is": "outside"}]},
    }
    people = [resume(name, model={"key": "human"}) for name in ("eve", "kim")]
    make_org(base, resume("ada"), resume("bob", permissions={"read_outboxes": ["kim"]}), *people, org=settings)
    assert run(["-C", str(base), "send", "--as", "eve", "spend it all"]) == 0
    turns = {turn.agent: turn for turn in run_once(base, clock=FrozenClock()).turns}
    assert (turns["ada"].calls, turns["bob"].calls) == (0, 1)
    assert [it.turns for it in replay_ticks(base, [1])] == [2]


def test_gates_look_at_how_far_a_memory_is_trusted(base: Path) -> None:
    """What a stranger had an agent remember is not shown to it again; what it remembered by itself is."""
    outside = [{"field": "what", "op": "is", "value": "memory"}, {"field": "trust", "op": "is", "value": "outside"}]
    settings = {
        "gates": [{"at": "in", "when": {"all": outside}, "then": "block"}],
        "trust": {"rules": [{"from": "eve", "is": "outside"}]},
    }
    kept = [{"key": f"of_tick_{number}", "value": f"value {number}"} for number in (1, 2)]
    script = [{"tick": number, "reply": say("kept", memory_updates=[update])} for number, update in enumerate(kept, 1)]
    eve = resume("eve", model={"key": "human"})
    make_org(base, resume("ada"), eve, script=[*script, {"reply": say("idle")}], org=settings)
    run_once(base, clock=FrozenClock())
    assert run(["-C", str(base), "send", "--as", "eve", "remember it"]) == 0
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    shown = prompts(base, 3, "ada")
    assert "value 1" in shown
    assert "value 2" not in shown


@pytest.mark.parametrize(
    ("field", "why"), [("agnet", 'a gate at "call" does not see "agnet"'), ("trust", "trust tracking is off")]
)
def test_a_gate_that_looks_at_what_is_never_there_blocks(base: Path, field: str, why: str) -> None:
    """Misspelled, it would let everything pass."""
    typo = {"at": "call", "when": {"field": field, "op": "is", "value": "outside"}, "then": "block"}
    org(base, [], call("file_write", path="workspace/a.txt", content="x"), own=[typo])
    (turn,) = (it for it in run_once(base).turns if it.agent == "ada")
    assert not (base / "agents/ada/workspace/a.txt").exists()
    assert why in turn.reason
