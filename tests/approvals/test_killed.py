"""Killed at every step between asking and making, a call keeps its id, and is made at most once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from approvals_org import ASK, Ring, by_hand, edit, finished, kept_calls, lemming, make, requests, ring, started, tick
from sampling import KILL_STRIDE

from lemming.kernel.journal.checksums import close_line
from lemming.kernel.obligations.grants import action_digest
from lemming.kernel.tools import ToolRegistry
from lemming.testing import Crash, crash_at, say

pytestmark = pytest.mark.crash


def killed(base: Path, folder: Path) -> Iterator[Path]:
    """Yield copies of an organisation, each killed at another change of the disk in its next tick."""
    for number in count(1, KILL_STRIDE):
        copy = folder / str(number)
        shutil.copytree(base, copy)
        Ring.rung.clear()
        try:
            with crash_at(number):
                tick(copy)
        except Crash:
            yield copy
            shutil.rmtree(copy)
        else:
            assert number > 5
            return


def test_killed_while_it_is_asked_for(tmp_path: Path) -> None:
    base = make(tmp_path / "org", ring())
    for copy in killed(base, tmp_path):
        tick(copy)
        assert [it.payload["call"]["id"] for it in requests(copy)] == ["1/ada/0"]
        assert len(kept_calls(copy)) == 1
        assert not Ring.rung
        lemming(copy, "approve", "1/ada/0")
        tick(copy)
        assert Ring.rung == ["once"]


def test_killed_while_it_is_made(tmp_path: Path) -> None:
    base = make(tmp_path / "org", ring())
    tick(base)
    lemming(base, "approve", "1/ada/0")
    outcomes = set()
    for copy in killed(base, tmp_path):
        tick(copy)
        tick(copy)
        ((outcome, _),) = finished(copy, 2)
        outcomes.add(outcome)
        assert Ring.rung == ["once"] or (outcome == "interrupted" and len(Ring.rung) < 2)
        assert len(started(copy, 2)) == 1
        assert kept_calls(copy) == []
        assert len(requests(copy)) == 1
    assert outcomes == {"ok", "interrupted"}


def test_decided_while_the_engine_is_down(tmp_path: Path) -> None:
    base = make(tmp_path / "org", ring())
    for copy in killed(base, tmp_path):
        asked = requests(copy)
        if asked and kept_calls(copy):
            lemming(copy, "deny", asked[0].id)
            tick(copy)
            tick(copy)
            assert not Ring.rung
            assert kept_calls(copy) == []


def test_a_turn_that_fails_after_the_call_makes_it_no_second_time(tmp_path: Path) -> None:
    script = [{"tick": 1, "reply": {"outbox_entries": [], "tool_calls": [ring()], "memory_updates": []}}]
    base = make(tmp_path / "org", script=[*script, {"tick": 2, "reply": "no JSON"}, {"reply": say("")}])
    tick(base)
    lemming(base, "approve", "1/ada/0")
    turn = tick(base)
    assert turn
    assert turn.status == "failed"
    assert Ring.rung == ["once"]
    turn = tick(base)
    assert turn
    assert turn.status == "done"
    assert Ring.rung == ["once"]
    assert kept_calls(base) == []


def test_a_forged_journal_approves_nothing(tmp_path: Path) -> None:
    base = make(tmp_path / "org", ring())
    tick(base)
    by_hand(base, "human", 2, "yes", reply_to=requests(base)[0].id, decision="approve", target="ada")
    for copy in killed(base, tmp_path):
        journal = copy / "logs/ticks/00000002.jsonl"
        if journal.exists() and b'"turn_started"' in journal.read_bytes() and not started(copy, 2):
            yes = copy / "agents/human/outbox/00000002_yes.json"
            yes.write_text(json.dumps({**json.loads(yes.read_text()), "payload": {"text": "what?"}}))
            turn = tick(copy)
            assert not Ring.rung
            assert turn is None or "1/ada/0 was approved, which nobody says now" in turn.reason


@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_turn_that_is_given_up_after_its_call_makes_it_no_second_time(tmp_path: Path, is_ahead: bool) -> None:
    script = [{"tick": 1, "step": 0, "reply": say("calling", tool_calls=[ring()])}]
    if is_ahead:
        script += [{"tick": 2, "step": 0, "reply": say("calling", tool_calls=[ring()])}]
    org = {"max_attempts": 1}
    base = make(tmp_path / "org", script=[*script, {"reply": say("seen")}], org=org, schedule={"run_every_n_ticks": 1})
    if is_ahead:
        lemming(base, "approve", "--ahead", "ada", "ring", '{"text": "once"}')
    else:
        tick(base)
        lemming(base, "approve", "1/ada/0")
    number = 1 if is_ahead else 2
    for copy in killed(base, tmp_path):
        if finished(copy, number) and "turn_committed" not in (copy / journal_of(number)).read_text():
            shutil.copytree(copy, tmp_path / "made", dirs_exist_ok=True)
    given_up = 0
    for copy in killed(tmp_path / "made", tmp_path / "again"):
        assert Ring.rung == []  # it was made before, and the engine ended
        turn = tick(copy)
        given_up += turn is not None and "abandoned so that the tick can continue" in turn.reason
        tick(copy)
        assert Ring.rung == []
        assert len(kept_calls(copy)) == is_ahead  # what was approved in advance is asked about, once used
    assert given_up


def journal_of(number: int) -> str:
    return f"logs/ticks/{number:08d}.jsonl"


def not_a_person(copy: Path) -> None:
    edit(copy, "agents/human/resume.json", model={"key": "scripted"})


def another_call(copy: Path) -> None:
    """Have the journal name another call than the one that was approved."""
    forge(copy, lambda each: each["call"].update(args={"text": "EVIL"}, sha256=action_digest("ring", {"text": "EVIL"})))


def another_person(copy: Path) -> None:
    """Have the journal say that somebody else approved it, who may as well."""
    forge(copy, lambda each: each.update(by="eve"))


def forge(copy: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what the journal says of decisions; it holds together all the same."""
    journal = copy / journal_of(2)
    check, written = b"", b""
    for line in journal.read_bytes().splitlines():
        plain = json.loads(line)
        del plain["check"]
        for each in plain.get("given", {}).get("approvals", {}).get("decided", {}).get("calls", ()):
            change(each)
        whole, check = close_line(json.dumps(plain, separators=(",", ":")).encode()[:-1], check)
        written += whole
    journal.write_bytes(written)


@pytest.mark.parametrize("change", [not_a_person, another_call, another_person])
def test_a_turn_goes_on_only_with_what_was_approved_by_who_may(tmp_path: Path, change: Callable[[Path], None]) -> None:
    base = make(tmp_path / "org", ring(), people=("eve", "human"))
    tick(base)
    lemming(base, "approve", "1/ada/0", "--as", "human")
    tried = 0
    for copy in killed(base, tmp_path):
        journal = copy / "logs/ticks/00000002.jsonl"
        if journal.exists() and b'"turn_started"' in journal.read_bytes() and not started(copy, 2):
            change(copy)
            turn = tick(copy)
            assert Ring.rung == []
            assert turn is not None
            assert "1/ada/0 was approved, which nobody says now" in turn.reason
            tried += 1
    assert tried


YES = {"decision": "approve", "target": "ada"}
FORGERIES: dict[str, dict[str, Any]] = {
    "the entry of somebody else": {"entry": "eve/00000002_yes"},
    "somebody who was not asked": {"by": "eve", "entry": "eve/00000002_yes"},
    "a no": {"entry": "human/00000002_no"},
    "no response": {"entry": "human/00000002_told"},
    "a yes to something else": {"entry": "human/00000002_other"},
    "arguments that nobody gave": {"args": {"text": "EVIL"}},
    "files that nobody named": {"binds": {"x": ""}},
    "an entry that is not there": {"entry": "human/00000002_gone"},
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an organisation whose turn was begun with a call that human approved, and has not made it."""
    ToolRegistry.register(Ring())
    folder = tmp_path_factory.mktemp("begun")
    base = make(folder / "org", ring(), people=("eve", "human"), gates=[{**ASK, "persons": ["human"]}])
    tick(base)
    request = requests(base)[0].id
    by_hand(base, "human", 2, "aye", reply_to=request, **YES)
    by_hand(base, "eve", 2, "yes", reply_to=request, **YES)
    by_hand(base, "human", 2, "no", reply_to=request, **{**YES, "decision": "deny"})
    by_hand(base, "human", 2, "told", kind="message", reply_to=request, **YES)
    by_hand(base, "human", 2, "other", reply_to="another", **YES)
    edit(base, "agents/human/outbox/00000002_aye.json", created_at="2026-01-01T09:00:00.000Z")
    edit(base, "agents/human/outbox/00000002_no.json", created_at="2026-01-01T09:50:00.000Z")
    for copy in killed(base, folder):
        journal = copy / journal_of(2)
        if journal.exists() and b'"turn_started"' in journal.read_bytes():
            return copy
    raise AssertionError("no turn was begun")


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_journal_approves_nothing_that_no_person_who_was_asked_did(begun: Path, tmp_path: Path, forgery: str) -> None:
    copy = shutil.copytree(begun, tmp_path / "copy")
    forge(copy, lambda each: each.update(FORGERIES[forgery]))
    turn = tick(copy)
    assert Ring.rung == []
    assert turn is not None
    assert "1/ada/0 was approved, which nobody says now" in turn.reason


def test_what_the_journal_says_and_a_person_still_does_is_made(begun: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(begun, tmp_path / "copy")
    forge(copy, lambda each: None)
    tick(copy)
    assert Ring.rung == ["once"]


def test_a_turn_goes_on_only_with_what_was_approved_in_advance_by_who_still_may(tmp_path: Path) -> None:
    base = make(tmp_path / "org", ring(), people=("eve", "human"))
    lemming(base, "approve", "--ahead", "ada", "ring", '{"text": "once"}', "--as", "human")
    tried = 0
    for copy in killed(base, tmp_path):
        journal = copy / journal_of(1)
        if journal.exists() and b'"turn_started"' in journal.read_bytes() and not started(copy, 1):
            not_a_person(copy)
            turn = tick(copy)
            assert Ring.rung == []
            assert turn is not None
            assert "approves a call, which it does not now" in turn.reason
            tried += 1
    assert tried
