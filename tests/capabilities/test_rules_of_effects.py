"""What capabilities of plugins must and may not do, in real organisations. They import public modules only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from effect_plugins import Plugin, call, calling, make, rule, rung, texts, tick

from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import read_outbox_entries, write_person_entry
from lemming.testing import FrozenClock, say, tree

CLOSED = """
@register_capability
class Closed(Here):
    name, handles = "closed", (WriteEntry,)

    def intercept(self, effect, turn):
        return Rejected("closed")
"""
SPEAKER = """
@register_capability
class Speaker(Here):
    name = "speaker"

    def wrap_turn(self, turn, run):
        end = run()
        turn.write_entry(NewEntry("message", {"text": "spoken"}, []), "2026-01-01T00:00:00Z")
        return end
"""
CAUSES: dict[str, tuple[str, dict[str, Any]]] = {
    "a reply": ("hello", {"reply": say("hello")}),
    "a reminder": ("later", {"reply": calling(call("remind_me", text="later", after="1h"))}),
    "a function": ("loud", {"reply": calling(call("shout", text="loud"))}),
    "a team's tool": ("yours?", {"reply": calling(call("ask_bob", message="yours?")), "team": {"ask": ["bob"]}}),
    "a strategy": ("acted", {"turn": {"strategy": "acting"}, "reply": calling()}),
    "a capability": ("spoken", {}),
}


def org_that_writes(base: Path, plugin: Plugin, cause: str, *names: str) -> Path:
    blocks = CAUSES[cause][1]
    names = (*names, "speaker") if cause == "a capability" else names
    return make(base, plugin, *names, **blocks)


@pytest.mark.parametrize("cause", CAUSES)
def test_every_entry_that_an_agent_causes_passes_the_interceptors(cause: str, base: Path, plugin: Plugin) -> None:
    plugin.write(SPEAKER)
    org_that_writes(base, plugin, cause, "watch")
    assert tick(base).status != "failed"
    assert ("WriteEntry", CAUSES[cause][0]) in plugin.seen
    assert CAUSES[cause][0] in texts(base)


@pytest.mark.parametrize("cause", CAUSES)
def test_no_entry_is_written_where_all_are_rejected(cause: str, base: Path, plugin: Plugin) -> None:
    plugin.write(SPEAKER + CLOSED)
    org_that_writes(base, plugin, cause, "watch", "closed")
    assert tick(base).status != "failed"
    assert texts(base) == []
    assert [item.turns for item in replay_ticks(base, [1])] == [1]


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_what_a_plan_asks_passes_the_interceptors(is_closed: bool, base: Path, plugin: Plugin) -> None:
    plugin.write(CLOSED)
    names = ("watch", "closed") if is_closed else ("watch",)
    make(base, plugin, *names, model={"key": "plan"}, schedule={"wake": "addressed"}, turn={})
    steps = [
        {"name": "ring", "tool": "bell", "args": {"text": "planned"}},
        {"name": "facts", "ask": "bob", "task": "?"},
    ]
    fs.write_atomic(base, "agents/ada/plan.json", dump_pretty({"steps": steps}))
    payload = {"text": "go", "target": "ada"}
    write_person_entry(
        base, "human", tick=load_tick(base), kind="request", payload=payload, tags=[], created_at="2026-01-01T00:00:00Z"
    )
    for _ in range(3):
        run_once(base, clock=FrozenClock())
    seen = plugin.seen
    assert ("CallTool", "bell") in seen
    assert is_closed or any(kind == "WriteEntry" for kind, _ in seen), "closed comes first, by name"
    asked = [entry for entry in read_outbox_entries(base, "ada") if entry.payload.get("target") == "bob"]
    assert bool(asked) is not is_closed


LOCKED = """
@register_capability
class Rule(Here):
    name, handles = "rule", (CallTool,)

    def intercept(self, effect, turn):
        return Rejected("locked")
"""
RINGS_ITSELF = """
@register_capability
class Speaker(Here):
    name = "speaker"

    def wrap_turn(self, turn, run):
        end = run()
        turn.call_tool("bell", {"text": "itself"}, "2026-01-01T00:00:00Z")
        return end
"""


@pytest.mark.parametrize("is_locked", [False, True], ids=["open", "locked"])
@pytest.mark.parametrize("cause", ["reply", "strategy", "capability"])
def test_every_call_passes_the_interceptors(cause: str, is_locked: bool, base: Path, plugin: Plugin) -> None:
    plugin.write(RINGS_ITSELF + LOCKED)
    names = ["watch", *(["rule"] if is_locked else []), *(["speaker"] if cause == "capability" else [])]
    reply = calling(call("bell", text="replied")) if cause == "reply" else say("hello")
    turn = {"turn": {"strategy": "acting"}} if cause == "strategy" else {}
    make(base, plugin, *names, reply=reply, **turn)
    tick(base)
    assert bool(rung(base)) is not is_locked
    if not is_locked:
        assert ("CallTool", "bell") in plugin.seen
        assert len(rung(base)) == 1


APPROVED_ONES = LOCKED.replace('return Rejected("locked")', 'return Rejected("locked") if effect.grant else None')


@pytest.mark.parametrize("is_locked", [False, True], ids=["open", "locked"])
def test_a_call_that_a_person_has_approved_passes_them_too(is_locked: bool, base: Path, plugin: Plugin) -> None:
    plugin.write(APPROVED_ONES)
    gates = [{"at": "call", "tool": "bell", "then": "ask"}]
    script = [{"tick": 1, "reply": calling(call("bell", text="asked"))}, {"reply": say("seen")}]
    names = ("watch", "rule") if is_locked else ("watch",)
    make(base, plugin, *names, script=script, org={"gates": gates})
    tick(base)
    (request,) = [entry for entry in read_outbox_entries(base, "ada") if entry.kind == "request"]
    assert plugin.seen == [("CallTool", "bell")], "the request to the person is no entry of the agent"
    assert run(["-C", str(base), "approve", request.id, "--as", "human"]) == 0
    tick(base)
    assert is_locked or ("CallTool", "bell") in plugin.seen
    assert rung(base) == ([] if is_locked else ["asked"])
    assert [item.turns for item in replay_ticks(base, [1, 2])] == [1, 1]


UNSEEN = "allowed what later capabilities have not seen: reject it, or pass it on, `return (yield effect)`"
FORBIDDEN = {
    "a fact of others": (
        rule("WriteEntry", 'return (yield replace(effect, facts={"trust": "high"}))'),
        "rule altered facts of others: trust; list its own in `facts`",
    ),
    "a fact of others in another effect": (
        rule(
            "WriteEntry",
            'return (yield effect) if (yield WriteMemory(memory_key="k", value=1, facts={"trust": "high"})) else None',
        ),
        "rule altered facts of others: trust; list its own in `facts`",
    ),
    "an entry that nobody saw": (rule("WriteEntry", "return Allowed(effect)"), f"rule {UNSEEN}"),
}


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_an_interceptor_that_breaks_a_rule_writes_nothing_and_the_model_is_told(
    kind: str, base: Path, plugin: Plugin
) -> None:
    code, reason = FORBIDDEN[kind]
    plugin.write(code)
    make(base, plugin, "rule")
    assert tick(base).status != "failed"
    assert texts(base) == []
    assert not [*base.glob("agents/ada/memory/*")]
    (result,) = read_state(base, "ada").results
    assert (result["success"], result["output"]) == (False, reason)
    assert [item.turns for item in replay_ticks(base, [1])] == [1]


def test_a_memory_is_the_value_that_the_rest_of_the_chain_has_seen(base: Path, plugin: Plugin) -> None:
    lines = ("outcome = yield effect", 'return Allowed(outcome.effect, "something else")')
    plugin.write(rule("WriteMemory", *lines))
    make(base, plugin, "rule", reply=say("hello", memory_updates=[{"key": "k", "value": "v"}]))
    report = tick(base)
    assert not [*base.glob("agents/ada/memory/*")]
    assert f"not kept: rule {UNSEEN}" in report.remarks


@pytest.mark.parametrize(
    "code",
    [
        rule("CallTool", 'return Suspended(AskPerson(subject=effect, reason="loud"))'),
        rule(
            "CallTool",
            'yield AskPerson(subject=effect, reason="loud")',
            "return (yield effect)",
            head='name, asks_persons = "rule", True',
        )
        + rule("AskPerson", "return Suspended(effect)", head='name = "second"'),
    ],
    ids=["by itself", "for another"],
)
def test_a_call_that_is_suspended_while_nobody_is_asked_is_not_made(code: str, base: Path, plugin: Plugin) -> None:
    plugin.write(code)
    make(base, plugin, "rule", *(["second"] if '"second"' in code else []), reply=calling(call("bell", text="loud")))
    tick(base)
    assert rung(base) == []
    (result,) = read_state(base, "ada").results
    assert (result["success"], "asked" in result["output"]) == (False, True)
    assert [item.turns for item in replay_ticks(base, [1])] == [1]


BREAKS_LATE = rule("WriteMemory", 'raise KeyError("late")')


def test_an_interceptor_that_raises_fails_the_turn_and_nothing_of_it_is_written(base: Path, plugin: Plugin) -> None:
    plugin.write(BREAKS_LATE)
    reply = say("hello", tool_calls=[call("file_write", path="a.txt", content="x")])
    make(base, plugin, "rule", reply={**reply, "memory_updates": [{"key": "k", "value": "v"}]})
    before = tree(base)
    report = tick(base)
    assert (report.status, report.error) == ("failed", "TurnBroke")
    assert "KeyError: 'late', in the capability watch or rule" in report.reason
    after = tree(base)
    changed = {path for path in after.keys() | before.keys() if after.get(path) != before.get(path)}
    assert changed == {"tick.json", "agents/ada/turns.jsonl"}
