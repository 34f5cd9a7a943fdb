"""What becomes of effects under capabilities of plugins: outcomes, states, and the same after a kill and in parallel."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from effect_plugins import MAY, Plugin, call, calling, make, rule, rung, texts, tick
from sampling import KILL_STRIDE

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.journal_tools.verify.state_root import load_state_root
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.tick.tick_counter import load_tick
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines, make_org, resume, say, tree


@pytest.mark.parametrize(("outcome", "end"), [("Deferred", "step_limit"), ("Rejected", "repeats")])
def test_not_yet_is_no_repetition(outcome: str, end: str, base: Path, plugin: Plugin) -> None:
    plugin.write(rule("CallTool", f'return {outcome}("busy")'))
    make(base, plugin, "rule", reply=calling(call("bell", text="x")), turn={"max_steps": 8})
    report = tick(base)
    assert report.end == end
    assert rung(base) == []
    assert [item.turns for item in replay_ticks(base, [1])] == [1]


def test_a_generator_sees_what_became_of_its_effect(base: Path, plugin: Plugin) -> None:
    watching = ("outcome = yield effect", "SEEN.append(type(outcome).__name__)", "return outcome")
    refusing = ('return Rejected("no") if effect.payload["text"] == "bad" else None',)
    changing = (
        'is_short = len(effect.payload["text"]) < 3',
        'return (yield replace(effect, payload={**effect.payload, "text": "longer"}) if is_short else effect)',
    )
    second = rule("WriteEntry", *refusing, head='name, after = "second", ("rule",)')
    third = rule("WriteEntry", *changing, head='name, after = "third", ("second",)')
    plugin.write(rule("WriteEntry", *watching) + second + third)
    entries = [say(text)["outbox_entries"][0] for text in ("good", "bad", "x")]
    make(base, plugin, "rule", "second", "third", reply={**say(""), "outbox_entries": entries})
    tick(base)
    assert plugin.seen == ["Allowed", "Rejected", "Allowed"], "Replaced is the kernel's, at the end of the chain"
    assert texts(base) == ["good", "longer"]


FINISHED = """
    def reduce(self, state, event, turn):
        if isinstance(event, EffectFinished) and isinstance(event.effect, WriteEntry):
            return {"outcomes": [*state.get("outcomes", ()), type(event.outcome).__name__]}
        return state
"""


def test_what_was_changed_is_told_as_replaced_and_nothing_else_is(base: Path, plugin: Plugin) -> None:
    changing = (
        'text = effect.payload["text"]',
        'return (yield replace(effect, payload={**effect.payload, "text": text.lower()}))',
    )
    plugin.write(rule("WriteEntry", *changing) + FINISHED)
    entries = [say(text)["outbox_entries"][0] for text in ("low", "HIGH")]
    make(base, plugin, "rule", reply={**say(""), "outbox_entries": entries})
    tick(base)
    assert texts(base) == ["low", "high"]
    assert read_state(base, "ada").kept["rule"] == {"outcomes": ["Allowed", "Replaced"]}


def test_an_entry_that_an_interceptor_adds_passes_the_chain_from_its_top(base: Path, plugin: Plugin) -> None:
    lines = (
        'if effect.payload["text"] == "hello":',
        '    SEEN.append((yield WriteEntry(kind="report", payload={"text": "added"}, tags=[])).answer.payload["text"])',
        "return (yield effect)",
    )
    adding = rule("TakeReply", *[line.replace('effect.payload["text"] == "hello"', "True") for line in lines])
    plugin.write(adding + rule("WriteEntry", 'SEEN.append(("first", effect.payload["text"]))', head='name = "second"'))
    make(base, plugin, "rule", "second", "watch")
    tick(base)
    seen = plugin.seen
    assert seen[:3] == [("first", "added"), ("WriteEntry", "added"), "added"]
    assert texts(base) == ["added", "hello"]


COUNTS = """
def add(count, event):
    SEEN.append("add")
    return count + 1

@register_capability
class Rule(Here):
    name, handles = "rule", (WriteEntry,)

    def intercept(self, effect, turn):
        count = turn.fold(add, 0)
        outcome = yield effect
        SEEN.append((count, turn.fold(add, 0)))
        return outcome
"""


def test_a_fold_reads_each_event_once(base: Path, plugin: Plugin) -> None:
    plugin.write(COUNTS)
    entries = [say(f"{number}")["outbox_entries"][0] for number in range(4)]
    make(base, plugin, "rule", reply={**say(""), "outbox_entries": entries})
    tick(base)
    seen = plugin.seen
    # Started and performed are seen after the effect; finished is an event of the next look.
    assert [item for item in seen if item != "add"] == [(0, 2), (3, 5), (6, 8), (9, 11)]
    assert seen.count("add") == 11


REDUCES = """
@register_capability
class Rule(Here):
    name, handles = "rule", (AskModel, CallTool, WriteEntry, WriteMemory)

    def intercept(self, effect, turn):
        if isinstance(effect, WriteMemory) and effect.value == "stop":
            return Rejected("stop", is_final=True)

    def reduce(self, state, event, turn):
        return {"events": [*state.get("events", ()), type(event).__name__ + " " + type(event.effect).__name__]}
"""


def test_of_a_failed_turn_only_calls_and_answers_count(base: Path, plugin: Plugin) -> None:
    plugin.write(REDUCES)
    replies = [
        say("hello", tool_calls=[call("bell", text="x")], memory_updates=[{"key": "k", "value": value}])
        for value in ("stop", "go")
    ]
    script = [{"tick": number, "agent": "ada", "reply": reply} for number, reply in enumerate(replies, 1)]
    make(base, plugin, "rule", script=script)
    assert tick(base).status == "failed"
    assert read_state(base, "ada").kept["rule"]["events"] == ["EffectPerformed AskModel", "EffectPerformed CallTool"]
    assert tick(base).status != "failed"
    events = read_state(base, "ada").kept["rule"]["events"][2:]
    kinds = ("AskModel", "WriteEntry", "CallTool", "WriteMemory")
    assert events == [f"Effect{step} {kind}" for kind in kinds for step in ("Started", "Performed", "Finished")]
    assert [item.turns for item in replay_ticks(base, [1, 2])] == [1, 1]


PAIR = """
@register_capability
class Second(Here):
    name, handles, facts = "second", (WriteEntry, CallTool), ("colour",)

    def intercept(self, effect, turn):
        return (yield replace(effect, facts={**effect.facts, "colour": "red" if turn.agent.name < "c" else "blue"}))

    def reduce(self, state, event, turn):
        if isinstance(event, EffectPerformed) and isinstance(event.effect, CallTool):
            return {"made": state.get("made", 0) + 1}
        return state

def count_entries(count, event):
    return count + (isinstance(event, EffectPerformed) and isinstance(event.effect, WriteEntry))

@register_capability
class Third(Here):
    name, after, handles, reads = "third", ("second",), (WriteEntry, CallTool), ("colour",)

    def prepare(self, turn):
        return {"before": turn.state.get("written", 0)}

    def intercept(self, effect, turn):
        if isinstance(effect, CallTool):
            return Deferred("not now") if effect.args["text"] == "later" else None
        number = turn.snapshot["before"] + turn.fold(count_entries, 0)
        text = f'{effect.payload["text"]} {effect.facts["colour"]} {number}'
        return (yield replace(effect, payload={**effect.payload, "text": text}))

    def reduce(self, state, event, turn):
        return {"written": count_entries(state.get("written", 0), event)}
"""


def pair(base: Path, plugin: Plugin, **org: Any) -> Path:
    """Return an organisation of four agents under two capabilities."""
    calls = [call("shout", text="loud"), call("shout", text="later")]
    script = [{"step": 0, "reply": say("calling", tool_calls=calls)}, {"reply": say("seen")}]
    settings = {"plugins": [plugin.name], "capabilities": {"second": {}, "third": {}}, "visibility": "tick", **org}
    agents = [resume(name, permissions=MAY, turn={"max_steps": 2}) for name in ("ada", "bob", "cid", "dan")]
    return make_org(base, *agents, org=settings, script=script)


def files(base: Path) -> dict[str, bytes]:
    return tree(base, without=("config", ".lemming", "logs"))


def run_ticks(base: Path, count: int = 2) -> Path:
    while load_tick(base) <= count:  # it begins with 1
        run_once(base, clock=FrozenClock())
    return base


def test_two_capabilities_write_the_same_however_many_turns_run_at_once(tmp_path: Path, plugin: Plugin) -> None:
    plugin.write(PAIR)
    serial = run_ticks(pair(tmp_path / "serial", plugin, executor="serial"))
    assert texts(serial, "bob")[:3] == ["calling red 0", "loud red 1", "seen red 2"]
    assert texts(serial, "dan")[3:] == ["calling blue 3", "loud blue 4", "seen blue 5"]
    assert read_state(serial, "dan").kept == {"second": {"made": 2}, "third": {"written": 6}}
    for at_once in (1, 2, 8):
        base = run_ticks(pair(tmp_path / f"of{at_once}", plugin, max_parallel=at_once))
        assert files(base) == files(serial), at_once
    assert [item.turns for item in replay_ticks(serial, [1, 2])] == [4, 4]


@pytest.mark.long
def test_killed_at_any_change_of_the_disk_a_run_comes_to_the_same(tmp_path: Path, plugin: Plugin) -> None:
    plugin.write(PAIR)
    start = pair(tmp_path / "start", plugin, executor="serial")
    whole = tmp_path / "whole"
    shutil.copytree(start, whole)
    run_ticks(whole, 1)
    number, is_over = 0, False
    while not is_over:
        number += KILL_STRIDE
        tried = tmp_path / "tried"
        shutil.rmtree(tried, ignore_errors=True)
        shutil.copytree(start, tried)
        try:
            with crash_at(number):
                run_once(tried, clock=FrozenClock())
            is_over = True
        except Crash:
            run_ticks(tried, 1)
        assert load_state_root(tried) == load_state_root(whole), number
    assert number > 20
    started = [line for line in journal_lines(whole, 1) if line["type"] == "turn_started"]
    assert [line["given"]["third"] for line in started] == [{"before": 0}] * 4
