"""What a person says while an agent works: shown before the next question to its model, recorded, and never lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from optional_parts import uses
from sampling import KILL_STRIDE

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import list_replayable_ticks, replay_into, replay_ticks
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.engine_events import Event
from lemming.kernel.journal.journal_records import ModelReplied
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.tick.tick_counter import load_tick
from lemming.libraries.outbox_files import write_person_entry
from lemming.messages import write_outbox_entry
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines, make_org, resume, say, tree

PEOPLE = {"human": {"provider": "human"}}
READ = {"tool": "memory_read", "args": {"key": "x"}}
WORKS = say("working", tool_calls=[READ])


def organisation(base: Path, *script: dict[str, Any], org: dict[str, Any] | None = None, **blocks: Any) -> Path:
    may = {"read_outboxes": ["*"], "tools": ["memory_read"]}
    ada = resume("ada", **{"permissions": may, "turn": {"max_steps": 3}, "schedule": {"wake": "changed"}, **blocks})
    lines = [*script, {"agent": "ada", "step": 0, "reply": WORKS}, {"reply": say("done")}]
    return make_org(base, ada, resume("human", model={"key": "human"}), script=lines, models=PEOPLE, org=org)


def tell(base: Path, text: str, *, author: str = "human", **more: Any) -> str:
    payload = {"text": text, "target": "ada", "urgent": True, **more}
    at = "2026-11-29T12:00:00.000Z"  # later than the clock of the tick
    entry = write_person_entry(
        base, author, tick=load_tick(base), kind="message", payload=payload, tags=[], created_at=at
    )
    return entry.identity


def after_answer(call: int, act: Callable[[], object]) -> Callable[[Event], None]:
    """Return an observer that acts once the model's answer number `call` is recorded."""

    def observe(event: Event) -> None:
        if isinstance(event, ModelReplied) and event.call == call:
            act()

    return observe


def run(base: Path, notify: Callable[[Event], None] | None = None) -> Any:
    return run_once(base, clock=FrozenClock(), **({"notify": notify} if notify else {}))


def told(base: Path, tick: int) -> list[dict[str, Any]]:
    return [line for line in journal_lines(base, tick) if line["type"] == "turn_told"]


def replay(base: Path) -> int:
    """Replay every tick in place and from the first one, and return how many there were."""
    ticks = list_replayable_ticks(base, None)
    assert len([*replay_ticks(base, ticks)]) == len(ticks)
    with TemporaryDirectory() as folder:
        return len([*replay_into(base, Path(folder), ticks)])


def test_a_word_to_a_running_turn_is_shown_before_its_next_question(base: Path) -> None:
    organisation(base, {"agent": "ada", "contains": "Stop there.", "reply": say("stopped")})
    identities: list[str] = []
    report = run(base, after_answer(0, lambda: identities.append(tell(base, "Stop there."))))
    records = told(base, 1) or told(base, 0)
    assert [list(record["entries"]) for record in records] == [identities]
    assert records[0]["call"] == 1
    assert report.turns[0].entries[-1]["kind"] == "message"
    texts = [json.loads(content)["payload"]["text"] for path, content in tree(base).items() if "ada/outbox" in path]
    assert sorted(texts) == ["stopped", "working"]
    assert f"told while it worked: {identities[0]}" in report.turns[0].remarks


def test_a_word_that_a_turn_has_shown_is_read(base: Path) -> None:
    organisation(base)
    run(base, after_answer(0, lambda: tell(base, "Stop there.")))
    assert run(base).turns[0].status == "skipped"


def test_a_word_after_the_last_question_is_shown_in_the_next_turn(base: Path) -> None:
    organisation(base, {"agent": "ada", "contains": "Stop there.", "reply": say("stopped")})
    first = run(base, after_answer(1, lambda: tell(base, "Stop there.")))
    assert told(base, first.tick) == []
    second = run(base)
    assert second.turns[0].entries
    assert "stopped" in "".join(map(str, tree(base).values()))


@pytest.mark.parametrize("turn", [{"max_steps": 3, "repairs": 0}])
def test_a_word_to_a_turn_that_fails_stays_unread(base: Path, turn: dict[str, Any]) -> None:
    organisation(base, {"agent": "ada", "contains": "Stop there.", "step": 1, "reply": "no reply"}, turn=turn)
    identities: list[str] = []
    first = run(base, after_answer(0, lambda: identities.append(tell(base, "Stop there."))))
    assert first.turns[0].status == "failed"
    assert identities[0] not in read_state(base, "ada").read.also
    start = next(line for line in [*journal_lines(base, run(base).tick)] if line["type"] == "turn_started")
    assert "Stop there." in start["prompt"][-1]["content"]


def test_a_question_without_an_answer_leaves_a_word_unread(base: Path) -> None:
    credits = {"max_credits": 1}
    organisation(base, credits=credits)
    models = json.loads((base / "config/models.json").read_text())
    models["scripted"]["per_call"] = 1
    fs.write_atomic(base, "config/models.json", dump_pretty(models))
    identities: list[str] = []
    report = run(base, after_answer(0, lambda: identities.append(tell(base, "Stop there."))))
    assert told(base, report.tick)
    assert report.turns[0].end == "out_of_credits"
    assert identities[0] not in read_state(base, "ada").read.also


def test_only_a_persons_urgent_message_to_the_agent_is_told(base: Path) -> None:
    organisation(base)
    fs.write_atomic(base, "agents/bob/resume.json", dump_pretty(resume("bob", schedule={"run_every_n_ticks": 50})))

    def write() -> None:
        tell(base, "no hurry", urgent=False)
        tell(base, "hurry", urgent="yes")
        tell(base, "to bob", target="bob")
        tell(base, "to all", target="*")
        tell(base, "later", not_before="2099-01-01T00:00:00Z")
        payload = {"text": "I say so", "target": "ada", "urgent": True}
        entry = write_person_entry(
            base, "bob", tick=load_tick(base), kind="message", payload=payload, tags=[], created_at=""
        )
        write_outbox_entry(base, "bob", entry)

    report = run(base, after_answer(0, write))
    assert told(base, report.tick) == []


def test_a_request_and_an_answer_are_not_told(base: Path) -> None:
    organisation(base)
    payload = {"text": "how many?", "target": "ada", "urgent": True}

    def write() -> None:
        for kind in ("request", "response"):
            write_person_entry(base, "human", tick=load_tick(base), kind=kind, payload=payload, tags=[], created_at="")  # type: ignore[arg-type]

    assert told(base, run(base, after_answer(0, write)).tick) == []


def test_an_agent_that_may_not_read_the_person_is_not_told(base: Path) -> None:
    organisation(base, permissions={"read_outboxes": [], "tools": ["memory_read"]})
    assert told(base, run(base, after_answer(0, lambda: tell(base, "Stop."))).tick) == []


def test_a_turn_for_a_request_is_told_what_waited_in_the_inbox(base: Path) -> None:
    organisation(
        base, {"agent": "ada", "step": 1, "reply": say("seven", kind="response")}, turn={"take": "one", "max_steps": 3}
    )
    tell(base, "In words.")
    payload = {"text": "how many?", "target": "ada", "conversation": ""}
    write_person_entry(base, "human", tick=load_tick(base), kind="request", payload=payload, tags=[], created_at="")
    report = run(base)
    if not report.turns[0].request:  # the inbox came first
        pytest.fail("the turn must serve the request")
    assert [record["call"] for record in told(base, report.tick)] == [1]


@uses("approvals", "gates")
@pytest.mark.parametrize("then", ["block", "ask"])
def test_a_word_that_a_gate_does_not_let_in_waits_for_the_gate(base: Path, then: str) -> None:
    gate = {"at": "in", "when": {"field": "text", "op": "contains", "value": "secret"}, "then": then}
    organisation(base, org={"gates": [gate]})
    report = run(base, after_answer(0, lambda: (tell(base, "a secret"), tell(base, "a plain word"))))
    lines = [*told(base, report.tick)[0]["entries"].values()]
    assert len(lines) == 1
    assert "a plain word" in lines[0]


@uses("trust")
def test_a_word_has_its_trust_label_and_lowers_that_of_no_turn(base: Path) -> None:
    rules = {"trust": {"rules": [{"from": "guest", "is": "outside"}]}}
    organisation(base, org=rules)
    fs.write_atomic(base, "agents/guest/resume.json", dump_pretty(resume("guest", model={"key": "human"})))
    report = run(base, after_answer(0, lambda: (tell(base, "mine"), tell(base, "theirs", author="guest"))))
    lines = [*told(base, report.tick)[0]["entries"].values()]
    assert len(lines) == 1
    assert '"trust": "owner"' in lines[0]
    assert "mine" in lines[0]


def test_whenever_the_engine_dies_the_word_is_told_or_unread(tmp_path: Path) -> None:
    number = 0
    while True:
        number += KILL_STRIDE
        base = organisation(tmp_path / f"org{number}")
        identities: list[str] = []
        hear = after_answer(0, lambda base=base, identities=identities: identities.append(tell(base, "Stop there.")))  # type: ignore[misc]
        try:
            with crash_at(number):
                run(base, hear)
        except Crash:
            if not identities:
                continue
            tick = load_tick(base)
            recorded = told(base, tick)
            run(base)
            if recorded:
                assert told(base, tick) == recorded, number
                assert identities[0] in read_state(base, "ada").read.also, number
            run(base)
            is_read = read_state(base, "ada").read.also | {
                line
                for t in range(tick + 2)
                for record in journal_lines(base, t)
                if record["type"] == "turn_started"
                for line in record["entries"]
            }
            assert identities[0] in is_read or identities[0].rpartition("_")[2] in is_read, number
            replay(base)
            continue
        break
    assert number > 10


def test_a_replay_tells_what_was_told(base: Path) -> None:
    organisation(base, schedule={"run_every_n_ticks": 1})
    run(base, after_answer(0, lambda: tell(base, "Stop there.")))
    run(base)
    assert replay(base) == 2
