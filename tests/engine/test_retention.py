"""Retention removes no entry that somebody who is due has not been shown, or says so."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from sampling import KILL_STRIDE
from test_addressed import QUIET, prompt_of
from test_inbox import seen, speak

from lemming.engine import run_once, ticks
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.inboxes import entry_index
from lemming.kernel.journal.engine_events import ProblemFound
from lemming.kernel.journal.ledger import AgentState, read_state, write_state
from lemming.kernel.journal.open_requests import OpenRequest
from lemming.kernel.messages import OutboxEntry, entry_id, list_outbox
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.messages import write_outbox_entry
from lemming.queries.org_validation import validate_agents
from lemming.testing import Crash, FrozenClock, crash_at, journal_lines, make_org, resume, say, tree

HUMAN = {"human": {"provider": "human"}}


def org(base: Path, *, retention: int, every: int, **reader: Any) -> Path:
    """An agent that speaks in every tick, and one that reads it less often."""
    return make_org(
        base,
        resume("ada", permissions={}),
        resume("reader", schedule={"run_every_n_ticks": every}, permissions={"read_outboxes": ["*"]}, **reader),
        script=[{"agent": "ada", "reply": say("x")}, {"reply": QUIET}],
        org={"retention_ticks": retention},
    )


def run(base: Path, ticks: int) -> list[ProblemFound]:
    """Run some ticks, and return what people were told."""
    told: list[ProblemFound] = []
    for _ in range(ticks):
        hear = lambda event: told.append(event) if isinstance(event, ProblemFound) else None  # noqa: E731
        run_once(base, clock=FrozenClock(), notify=hear)
    return told


def expired(base: Path, tick: int) -> list[dict[str, Any]]:
    return [record for record in journal_lines(base, tick) if record["type"] == "entries_expired"]


def test_entries_wait_for_a_reader_that_is_due_less_often_than_they_are_kept(base: Path) -> None:
    org(base, retention=3, every=10)
    assert run(base, 20) == []
    assert seen(base, 10, "reader") == [entry_id(tick, "ada", 0) for tick in range(1, 11)]
    assert seen(base, 20, "reader") == [entry_id(tick, "ada", 0) for tick in range(11, 21)]
    assert [name.tick for name in list_outbox(base, "ada")] == [17, 18, 19, 20]
    assert not expired(base, 9)


def test_what_nobody_waits_for_goes_at_its_age(base: Path) -> None:
    org(base, retention=3, every=1)
    run(base, 8)
    assert [name.tick for name in list_outbox(base, "ada")] == [5, 6, 7, 8]


def test_what_expires_unread_is_said_everywhere(base: Path) -> None:
    org(base, retention=1, every=20)
    told = run(base, 19)
    assert [name.tick for name in list_outbox(base, "ada")] == list(range(9, 20))  # ten times the retention
    assert len(told) == 8
    assert str(told[0].problem.message) == "1 entry expired in tick 12 before reader was shown it"
    assert "entry expired in tick 12" in (base / "logs/engine.log").read_text()
    assert expired(base, 19)[0]["unread"] == {"reader": 1}
    assert read_state(base, "reader").expired_unread == 8
    run(base, 1)
    assert "8 entries expired unread" in prompt_of(base, 20, "reader")
    assert read_state(base, "reader").expired_unread == 0
    assert not [finding for finding in verify_org(base).findings if finding.is_error]


def test_one_that_is_out_of_credits_does_not_keep_everything(base: Path) -> None:
    org(base, retention=3, every=1, credits={"max_credits": 1})
    told = run(base, 12)
    assert [name.tick for name in list_outbox(base, "ada")] == list(range(7, 13))  # two intervals more
    assert read_state(base, "reader").expired_unread == len(told) == 5


def test_what_was_addressed_to_others_is_not_told_as_missed(base: Path) -> None:
    entry = {"kind": "message", "payload": {"text": "x", "target": "cyd"}, "tags": []}
    make_org(
        base,
        resume("ada", permissions={}),
        resume("bob", schedule={"wake": "changed"}),
        resume("cyd"),
        script=[{"agent": "ada", "reply": {**QUIET, "outbox_entries": [entry]}}, {"reply": QUIET}],
        org={"retention_ticks": 2},
    )
    assert run(base, 8) == []
    assert min(name.tick for name in list_outbox(base, "ada")) == 4  # bob is waited for, and was not asked
    assert read_state(base, "bob").tick == 1


def test_a_person_keeps_nothing_from_expiring(base: Path) -> None:
    make_org(
        base, resume("ada", permissions={}), resume("human", model={"key": "human"}),
        models=HUMAN, org={"retention_ticks": 2},
    )  # fmt: skip
    speak(base, "nobody reads this")
    assert run(base, 5) == []
    assert [list_outbox(base, "human"), min(name.tick for name in list_outbox(base, "ada"))] == [[], 3]


@pytest.mark.sample(2)
@pytest.mark.parametrize("durability", ["turn", "tick", "off"])
def test_a_crash_while_entries_expire_unread_leaves_what_no_crash_would(tmp_path: Path, durability: str) -> None:
    whole = org(tmp_path / "whole", retention=1, every=20)
    settings = f'{{"retention_ticks": 1, "durability": "{durability}"}}'
    (whole / "config/org.json").write_text(settings)
    run(whole, 13)
    before = org(tmp_path / "before", retention=1, every=20)
    (before / "config/org.json").write_text(settings)
    run(before, 11)
    number = 0
    while True:
        number += KILL_STRIDE
        base = shutil.copytree(before, tmp_path / str(number))
        with crash_at(number):
            try:
                run(base, 1)
            except Crash:
                pass
            else:
                break
        run(base, 1)
        if read_state(base, "ada").tick == 12:
            run(base, 1)
        assert tree(base) == tree(whole), number
    assert number > 5


NEVER = {"run_every_n_ticks": 1000, "phase_offset": 1}


def of_a_reader_and_idle_agents(base: Path, retention: int) -> Path:
    """Make an organisation in which ada is due in every tick and reads bob; nobody reads cyd and dan."""
    idle = (resume(name, schedule=NEVER, permissions={}) for name in ("bob", "cyd", "dan"))
    ada = resume("ada", permissions={"read_outboxes": ["bob"]})
    return make_org(base, ada, *idle, script=[{"reply": QUIET}], org={"retention_ticks": retention})


def by_hand(base: Path, author: str, tick: int) -> Path:
    entry = OutboxEntry(f"old{tick}", tick, author, "message", {"text": "x"}, [], "")
    return write_outbox_entry(base, author, entry)


def test_a_run_looks_at_an_outbox_when_what_is_in_it_expires(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_a_reader_and_idle_agents(base, retention=5)
    file, looks, now = by_hand(base, "cyd", 3), list[tuple[str, int]](), [0]
    list_again = entry_index.refresh_listing

    def looked(path: str, *rest: Any) -> Any:
        looks.append((path.split("/")[-2], now[0]))
        return list_again(path, *rest)

    monkeypatch.setattr(entry_index, "refresh_listing", looked)
    there = []
    for report in ticks(base, interval_s=0, max_ticks=24, clock=FrozenClock()):
        now[0] = report.tick
        there += [report.tick] if file.exists() else []
    assert there[-1] == 8
    looked_at = {name: [tick + 1 for who, tick in looks if who == name] for name in ("cyd", "dan")}
    assert looked_at == {"cyd": [6, 9, 10, 16, 22], "dan": [6, 12, 18, 24]}


def test_an_old_entry_that_comes_while_an_engine_runs_expires(base: Path) -> None:
    of_a_reader_and_idle_agents(base, retention=5)
    gone = dict[str, int]()
    for report in ticks(base, interval_s=0, max_ticks=20, clock=FrozenClock()):
        if report.tick == 10:  # cyd's outbox was looked at in tick 6, and is looked at again in tick 12
            read, unread = by_hand(base, "bob", 2), by_hand(base, "cyd", 2)
        if report.tick > 10:
            files = {"read": read, "unread": unread}
            gone |= {name: report.tick for name, file in files.items() if not (file.exists() or name in gone)}
    assert gone == {"read": 11, "unread": 12}


def test_what_a_ledger_needs_is_kept_once_somebody_has_mended_it(base: Path) -> None:
    of_a_reader_and_idle_agents(base, retention=5)
    ledger = base / "agents/dan/turns.jsonl"
    first, second = by_hand(base, "cyd", 3), by_hand(base, "cyd", 5)
    needs = AgentState(tick=0, requests=(OpenRequest(request="cyd/00000005_old5"),))
    write_state(base, "dan", needs)
    mended = ledger.read_bytes()
    ledger.write_bytes(b"damaged\n")
    for report in ticks(base, interval_s=0, max_ticks=20, clock=FrozenClock()):
        if report.tick == 9:
            assert not first.exists()  # so ledgers were looked at
            ledger.write_bytes(mended)
    assert second.exists()


def test_old_entries_of_an_agent_that_comes_while_an_engine_runs_expire(base: Path) -> None:
    of_a_reader_and_idle_agents(base, retention=5)
    for report in ticks(base, interval_s=0, max_ticks=11, clock=FrozenClock()):
        if report.tick == 10:
            shutil.copytree(base / "agents/cyd", base / "agents/eve")
            file = by_hand(base, "eve", 2)
    assert not file.exists()


def test_an_engine_trusts_nothing_that_another_run_has_seen(base: Path) -> None:
    org = Organisation(of_a_reader_and_idle_agents(base, retention=5))
    for _ in range(10):
        run_once(org, clock=FrozenClock())
    file = by_hand(base, "cyd", 2)
    run_once(org, clock=FrozenClock())
    assert not file.exists()


def test_what_is_kept_for_how_long_may_change_while_an_engine_runs(base: Path) -> None:
    of_a_reader_and_idle_agents(base, retention=8)
    file = by_hand(base, "cyd", 5)
    for report in ticks(base, interval_s=0, max_ticks=11, clock=FrozenClock()):
        if report.tick == 10:
            assert file.exists()
            (base / "config/org.json").write_text('{"retention_ticks": 4}')
    assert not file.exists()


def test_an_agent_due_less_often_than_entries_are_kept_is_warned_of(base: Path) -> None:
    org(base, retention=3, every=10)
    messages = [str(problem) for problem in validate_agents(base, load_config(base), None)]
    assert any("due every 10 ticks, but entries are kept for 3" in message for message in messages)
    org(base, retention=3, every=3)
    assert list(validate_agents(base, load_config(base), "reader")) == []
