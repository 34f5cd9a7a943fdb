"""Mistakes in the code of a capability are refused with the place, and none of them passes in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.plugins.capability_errors import HookError
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.kernel.turn.effect_chain import EffectChain, Interceptor
from lemming.kernel.turn.turn_effects import AskPerson, CallTool, Event
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

HEAD = """
from dataclasses import replace
from lemming.ext import AskPerson, CapabilityStatus, Capability, Rejected, WriteEntry, register_capability

@register_capability
class Rule(Capability):
    name = "rule"
"""
HANDLES = "    handles = (WriteEntry,)\n"
ASKS = "    asks_persons = True\n"
PASSES = "    def intercept(self, effect, turn): return None\n"
DECLARED = {
    "misspelled hook": (HANDLES + "    def intercpt(self, effect, turn): return None\n", "did you mean 'intercept'?"),
    "misspelled attribute": ("    handle = (WriteEntry,)\n" + PASSES, "did you mean 'handles'?"),
    "handles of texts": ("    handles = ('WriteEntry',)\n" + PASSES, "must list classes of effects in `handles`"),
    "handles no effect": ("    handles = (CapabilityStatus,)\n" + PASSES, "must list classes of effects in `handles`"),
    "handles no tuple": ("    handles = WriteEntry\n" + PASSES, "must have a tuple as `handles`"),
    "after is a text": (HANDLES + PASSES + "    after = 'gates'\n", "must have a tuple as `after`, got 'gates'"),
    "handles, no intercept": (HANDLES, "has `handles` and no `intercept`"),
    "intercept, no handles": (PASSES, "has `intercept` and no `handles`"),
    "no turn": (
        HANDLES + "    def intercept(self, effect): return None\n",
        "must declare intercept(self, effect, turn)",
    ),
    "no parameter": ("    def prepare(self): return {}\n", "must declare prepare(self, turn)"),
    "two of one name": (
        HANDLES + PASSES + "@register_capability\nclass Other(Capability):\n    name = 'rule'\n",
        '.Other cannot be the capability "rule"',
    ),
}
IN_TURN = {
    "an effect": ("return replace(effect, tags=[])", "got WriteEntry: write `return (yield ...)`"),
    "a text": ("return 'no'", "must return None, an outcome, or a generator that yields effects, got str"),
    "a class": ("return Rejected", "got the class Rejected: write Rejected(...)"),
    "an undeclared question": ("yield AskPerson(subject=effect, reason='r')", "without `asks_persons = True`"),
    "yields a text": ("return (yield 'no')", "must yield effects, got str"),
    "yields nothing": ("yield", "must yield effects, got NoneType"),
}
STATES = {"None": "None", "a list": "[1]", "a set": "{'a': {1}}", "a number as key": "{1: 2}", "inf": "{'a': 1e999}"}
Take = Callable[[str], TurnReport]


@pytest.fixture(autouse=True)
def _for_one_test() -> Iterator[None]:
    yield
    unregister("capability", "rule")


@pytest.fixture
def take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Take:
    """Take a turn of ada under a capability with the given class body."""
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"mistaken_{tmp_path.name}"

    def take_turn(body: str) -> TurnReport:
        (tmp_path / f"{module}.py").write_text(HEAD + body)
        people = [
            resume(name, model={"key": "human"}, permissions={"read_outboxes": ["ada"]}) for name in ("ann", "bob")
        ]
        make_org(
            tmp_path / "org",
            resume("ada", permissions={"read_outboxes": ["ann", "bob"]}),
            *people,
            org={"plugins": [module], "capabilities": {"rule": {}}},
            models={"human": {"provider": "human"}},
            script=[{"reply": say("hello")}],
        )
        return next(turn for turn in run_once(tmp_path / "org", clock=FrozenClock()).turns if turn.agent == "ada")

    return take_turn


def intercept(*lines: str, head: str = HANDLES) -> str:
    return head + "    def intercept(self, effect, turn):\n" + "".join(f"        {line}\n" for line in lines)


@pytest.mark.parametrize(("body", "message"), DECLARED.values(), ids=[*DECLARED])
def test_a_wrong_declaration_stops_the_run_with_its_place(take: Take, body: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        take(body)
    assert message in str(caught.value)
    assert "mistaken_" in str(caught.value)


@pytest.mark.parametrize(("line", "message"), IN_TURN.values(), ids=[*IN_TURN])
def test_a_wrong_value_fails_the_turn_with_its_place(take: Take, line: str, message: str, tmp_path: Path) -> None:
    report = take(intercept(line))
    assert report.status == "failed"
    assert message in report.reason
    assert f"rule.intercept ({tmp_path}" in report.reason
    assert "fix the capability" in report.reason
    assert read_outbox_entries(tmp_path / "org", "ada") == []


@pytest.mark.parametrize("value", STATES.values(), ids=[*STATES])
def test_a_state_that_is_no_json_object_fails_the_turn(take: Take, value: str, tmp_path: Path) -> None:
    report = take(HANDLES + PASSES + f"    def reduce(self, state, event, turn): return {value}\n")
    assert report.status == "failed"
    assert "rule.reduce (" in report.reason
    assert read_state(tmp_path / "org", "ada").credits == 1.0


def test_a_snapshot_that_is_no_json_fails_the_turn(take: Take) -> None:
    report = take(HANDLES + PASSES + "    def prepare(self, turn): return {'a': {1}}\n")
    assert "got set at /a: convert it to JSON" in report.reason


@pytest.mark.parametrize("prepare", ["", "    def prepare(self, turn): return {}\n"], ids=["none", "empty"])
def test_a_capability_without_a_snapshot_of_its_own_takes_part(take: Take, prepare: str, tmp_path: Path) -> None:
    take(intercept("return Rejected('no')") + prepare)
    assert read_outbox_entries(tmp_path / "org", "ada") == []
    (started,) = (line for line in journal_lines(tmp_path / "org", 1) if line["type"] == "turn_started")
    assert started["given"]["rule"] == {}


def test_a_question_without_a_name_goes_to_its_persons_alone(take: Take, tmp_path: Path) -> None:
    body = intercept("yield AskPerson(subject=effect, reason='r', persons=['bob'])", head=HANDLES + ASKS)
    take(body)
    (request,) = read_outbox_entries(tmp_path / "org", "ada")
    assert request.payload["target"] == "bob"
    assert request.payload["call"]["gate"] == "rule"


def test_persons_as_a_text_fail_the_turn(take: Take) -> None:
    body = intercept("yield AskPerson(subject=effect, reason='r', persons='bob')", head=HANDLES + ASKS)
    assert "persons of AskPerson must be a list of names, got 'bob'" in take(body).reason


def test_the_answer_to_a_question_is_no_outcome_of_the_effect() -> None:
    def ask(effect: CallTool) -> Iterator[Any]:
        return (yield AskPerson(subject=effect, reason="loud"))

    events: list[Event] = []
    chain = EffectChain([Interceptor("rule", (CallTool,), (), ask)], lambda effect: "done", events.append)
    with pytest.raises(HookError, match="got the answer of AskPerson"):
        chain.dispatch(CallTool(tool="bell", args={}))
