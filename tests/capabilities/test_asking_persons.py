"""Capabilities of plugins that ask persons about calls: a quota, and the approval of two persons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.messages import OutboxEntry
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

HEAD = """
from lemming.ext import AskPerson, Capability, EffectPerformed, CallTool, RunTool, register_capability
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult

class Bell(Tool):
    name = "bell"
    description = "Rings a bell."
    parallel = repeatable = True

    def execute(self, agent_name, base_path, text):
        with open(base_path / "rung.txt", "a") as file:
            file.write(text + "\\n")
        return ToolResult(True, f"rang {text}")

ToolRegistry.register(Bell())
"""
QUOTA = """
@register_capability
class Quota(Capability):
    name, asks_persons, handles = "quota", True, (CallTool, RunTool)  # `reduce` sees what it handles

    def prepare(self, turn):
        return {"made": turn.state.get("made", 0)}

    def intercept(self, effect, turn):
        if isinstance(effect, CallTool):
            return (yield effect)
        made = turn.snapshot["made"] + sum(item.outcome == "ok" for item in turn.live.results.values())
        if made >= 1:
            yield AskPerson(subject=effect, asked_by="quota", reason=f"{made} calls were made")
        return (yield effect)

    def reduce(self, state, event, turn):
        if isinstance(event, EffectPerformed) and isinstance(event.effect, CallTool) and event.answer.success:
            return {"made": state.get("made", 0) + 1}
        return state
"""
TWO = """
@register_capability
class Two(Capability):
    name, asks_persons, handles = "two", True, (RunTool,)

    def prepare(self, turn):
        return {"persons": ["ann", "bob"]}

    def intercept(self, effect, turn):
        for person in turn.snapshot["persons"]:
            yield AskPerson(subject=effect, asked_by=f"two of {person}", reason="it is loud", persons=(person,))
        return (yield effect)
"""
EARLY_QUOTA = """
def count_made(made, event):
    is_made = isinstance(event, EffectPerformed) and isinstance(event.effect, CallTool) and event.answer.success
    return made + is_made

@register_capability
class Quota(Capability):
    name, asks_persons, handles = "quota", True, (CallTool,)

    def prepare(self, turn):
        return {"made": turn.state.get("made", 0)}

    def intercept(self, effect, turn):
        made = turn.snapshot["made"] + turn.fold(count_made, 0)
        if made >= 1:
            yield AskPerson(subject=effect, asked_by="quota", reason=f"{made} calls were made")
            turn.remark("a person has approved the call")
        return (yield effect)

    def reduce(self, state, event, turn):
        return {"made": count_made(state.get("made", 0), event)}
"""
TWO_FOR_ENTRIES = """
from lemming.ext import WriteEntry

@register_capability
class Two(Capability):
    name, asks_persons, handles = "two", True, (WriteEntry,)

    def prepare(self, turn):
        return {"persons": ["ann", "bob"]}

    def intercept(self, effect, turn):
        for person in turn.snapshot["persons"]:
            yield AskPerson(subject=effect, asked_by=f"two of {person}", reason="it is read", persons=(person,))
        return (yield effect)
"""
EARLY_TWO = TWO.replace("RunTool", "CallTool")


@pytest.fixture(autouse=True)
def _for_one_test() -> Iterator[None]:
    yield
    for name in ("quota", "two"):
        unregister("capability", name)
    unregister("tool", "bell")


def make(base: Path, code: str, name: str, monkeypatch: pytest.MonkeyPatch, *texts: str, **org: Any) -> Path:
    """Return an organisation in which ada rings once for each text, under a capability of a plugin."""
    folder, module = base.parent / "code", f"asks_{name}_{base.parent.name}"
    folder.mkdir(parents=True)
    (folder / f"{module}.py").write_text(HEAD + code)
    monkeypatch.syspath_prepend(str(folder))
    may = {"tools": ["bell"], "read_outboxes": ["ann", "bob"]}
    persons = [resume(it, model={"key": "human"}, permissions={"read_outboxes": ["ada"]}) for it in ("ann", "bob")]
    calls = [{"tool": "bell", "args": {"text": text}} for text in texts]
    return make_org(
        base,
        resume("ada", permissions=may, schedule={"wake": "changed"}),
        *persons,
        org={"plugins": [module], "capabilities": {name: {}}, **org},
        models={"human": {"provider": "human"}},
        script=[{"tick": 1, "step": 0, "reply": say("calling", tool_calls=calls)}, {"reply": say("seen")}],
    )


def tick(base: Path) -> None:
    run_once(base, clock=FrozenClock())


def requests(base: Path) -> list[OutboxEntry]:
    return [entry for entry in read_outbox_entries(base, "ada") if entry.kind == "request"]


def rung(base: Path) -> list[str]:
    file = base / "rung.txt"
    return file.read_text().split() if file.exists() else []


def outcomes(base: Path, number: int) -> list[str]:
    return [line["outcome"] for line in journal_lines(base, number) if line["type"] == "tool_finished"]


def approve(base: Path, request: OutboxEntry, person: str) -> Any:
    return run(["-C", str(base), "approve", request.id, "--as", person])


@pytest.mark.parametrize("code", [QUOTA, EARLY_QUOTA], ids=["as it is made", "as it is requested"])
def test_a_quota_asks_a_person_about_the_call_beyond_it(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = make(tmp_path / "org", code, "quota", monkeypatch, "one", "two")
    tick(base)
    assert (rung(base), outcomes(base, 1)) == (["one"], ["ok", "pending"])
    (request,) = requests(base)
    assert request.payload["call"]["why"] == "1 calls were made"
    assert approve(base, request, "bob") == 0
    tick(base)
    assert (rung(base), outcomes(base, 2)) == (["one", "two"], ["ok"])
    assert read_state(base, "ada").kept["quota"] == {"made": 2}
    assert [it.turns for it in replay_ticks(base, [1, 2])] == [1, 1]
    assert rung(base) == ["one", "two"]


def test_code_after_a_question_runs_only_once_a_person_has_approved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = make(tmp_path / "org", EARLY_QUOTA, "quota", monkeypatch, "one", "two")
    tick(base)
    assert "a person has approved" not in str(journal_lines(base, 1))
    approve(base, requests(base)[0], "ann")
    tick(base)
    assert "a person has approved" in str(journal_lines(base, 2))


@pytest.mark.parametrize("code", [TWO, EARLY_TWO], ids=["as it is made", "as it is requested"])
def test_a_call_that_two_persons_must_approve_keeps_the_first_approval(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = make(tmp_path / "org", code, "two", monkeypatch, "loud")
    tick(base)
    (for_ann,) = requests(base)
    assert for_ann.payload["target"] == "ann"
    assert approve(base, for_ann, "bob") != 0
    assert approve(base, for_ann, "ann") == 0
    tick(base)
    assert (rung(base), outcomes(base, 2)) == ([], ["pending"])
    (_, for_bob) = requests(base)
    assert for_bob.payload["target"] == "bob"
    held = read_state(base, "ada").requests[0].open_sub_requests[0].held["approvals"]
    assert [(grant["by"], grant["gate"]) for grant in held["grants"]] == [("ann", "two of ann")]
    assert approve(base, for_bob, "bob") == 0
    tick(base)
    assert (rung(base), outcomes(base, 3)) == (["loud"], ["ok"])
    (finished,) = (line for line in journal_lines(base, 3) if line["type"] == "tool_finished")
    grant = finished["kept"]["approvals"]
    assert [grant["by"], *(item["by"] for item in grant["grants"])] == ["ann", "bob"]
    assert [it.turns for it in replay_ticks(base, [1, 2, 3])] == [1, 1, 1]


def test_one_denial_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = make(tmp_path / "org", TWO, "two", monkeypatch, "loud")
    tick(base)
    approve(base, requests(base)[0], "ann")
    tick(base)
    assert run(["-C", str(base), "deny", requests(base)[1].id, "--as", "bob", "--reason", "too loud"]) == 0
    tick(base)
    tick(base)
    assert rung(base) == []


def test_an_entry_that_two_persons_must_approve_is_written_once_both_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = make(tmp_path / "org", TWO_FOR_ENTRIES, "two", monkeypatch)
    texts: list[list[str]] = []
    for person in ("ann", "bob", ""):
        tick(base)
        texts.append([entry.payload["text"] for entry in read_outbox_entries(base, "ada") if entry.kind != "request"])
        if person:
            assert [entry.payload["target"] for entry in requests(base)][-1] == person
            assert approve(base, requests(base)[-1], person) == 0
    assert texts == [[], [], ["calling"]]
    assert [it.turns for it in replay_ticks(base, [1, 2, 3])] == [1, 1, 1]


def test_a_quota_counts_the_same_however_many_calls_run_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for executor in ("serial", "threads"):
        base = make(tmp_path / executor / "org", QUOTA, "quota", monkeypatch, "one", "two", "three", executor=executor)
        tick(base)
        made.append((rung(base), outcomes(base, 1)))
    assert made == [(["one"], ["ok", "pending", "pending"])] * 2
