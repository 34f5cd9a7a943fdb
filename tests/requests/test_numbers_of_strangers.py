"""Numbers in the payload of a request, which any agent and any caller of a channel may choose."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from asked import answers, ask, open_of, org_of, tick
from test_taking import ONE, entry, reply
from test_team import QUIET, calls

from lemming.kernel.base.integers import LAST_TICK
from lemming.kernel.journal.journal_file import read_journal
from lemming.kernel.journal.journal_records import TickCommitted
from lemming.kernel.journal.ledger import read_state
from lemming.testing import resume, say

HUGE = 10**4300 - 1  # the longest number that JSON is read with
AT_WORK = reply(entry("status", "working on it"))


@pytest.mark.sample(4)
@pytest.mark.parametrize("key", ["deadline", "hops", "within", "join", "budget", "tick", "step", "spent"])
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(HUGE, id="longest"),
        pytest.param(-(HUGE // 10), id="negative"),
        pytest.param(2**64, id="over-64-bits"),
        pytest.param(True, id="boolean"),
    ],
)
def test_a_turn_for_a_request_with_any_number_leaves_a_ledger_that_is_read(base: Path, key: str, number: Any) -> None:
    org = org_of(base, resume("ada", **QUIET, **ONE), script=[{"reply": AT_WORK}])
    ask(org, "ada", **{key: number})
    tick(org)
    assert read_state(org, "ada").turns == 1
    assert [turn.status for turn in tick(org).turns if turn.agent == "ada"] != ["failed"]


def test_a_deadline_beyond_the_last_tick_ends_with_it(base: Path) -> None:
    script = [{"agent": "desk", "reply": calls(("ask_ann", {"message": "a?"}))}, {"reply": AT_WORK}]
    desk = resume("desk", team={"ask": ["ann"]}, **QUIET)
    org = org_of(base, desk, resume("ann", **QUIET), script=script)
    ask(org, "desk", deadline=HUGE)
    tick(org)
    (begun,) = read_state(org, "desk").requests
    assert [asked.until for asked in begun.asked] == [LAST_TICK]


def test_a_request_with_a_deadline_beyond_the_last_tick_is_answered(base: Path) -> None:
    script = [{"reply": say("here", kind="response")}]
    org = org_of(base, resume("ada", **QUIET, **ONE), script=script)
    request = ask(org, "ada", deadline=HUGE)
    tick(org)
    assert answers(org, "ada")[request.id]["text"] == "here"
    assert open_of(org, "ada") == []


def test_a_journal_that_holds_a_payload_as_deep_as_an_entrys_may_be_is_read(base: Path) -> None:
    desk = resume("desk", team={"hand_to": ["ann"]}, **QUIET)
    org = org_of(base, desk, resume("ann", **QUIET), script=[{"reply": AT_WORK}])
    ask(org, "desk", deep=reduce(lambda inner, _: [inner], range(62), 1))
    for _ in range(2):
        tick(org)
    assert [type(it) for number in (1, 2) for it in read_journal(org, number)[-1:]] == 2 * [TickCommitted]
