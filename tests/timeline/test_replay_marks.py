"""Replay compares the read marks of two turns: a renamed author is the only reason for a difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from recorded import rewrite_journal

from lemming.engine import run_once
from lemming.journal_tools.agent_rename import rename_agent
from lemming.journal_tools.replay.replay_runtime import ReplayMismatch
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.files.field_types import Json
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.ledger import read_state
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import FrozenClock, make_org, resume, say

TICKS = 3
AT = "2026-01-01T00:00:00.000Z"


@pytest.fixture(params=["names", "all"])
def org(request: pytest.FixtureRequest, base: Path) -> Path:
    """An organisation in which ada has read bob and cid for three ticks, each by name or both by `*`."""
    reads = ["bob", "cid"] if request.param == "names" else ["*"]
    writers = [resume(name, permissions={"read_outboxes": []}) for name in ("bob", "cid", "eve")]
    ada = resume("ada", permissions={"read_outboxes": reads})
    make_org(base, ada, *writers, script=[{"reply": say("news")}] * 40)
    write_person_entry(base, "cid", tick=1, kind="message", payload={"text": "x"}, tags=[], created_at=AT)
    for _ in range(TICKS):
        run_once(base, clock=FrozenClock())
    return base


def rename(base: Path, *renames: tuple[str, str]) -> None:
    for old, new in renames:
        rename_agent(base, old, new)
    run_once(base, clock=FrozenClock())


RENAMES = {
    "one": [("bob", "zed")],
    "two": [("bob", "zed"), ("cid", "kai")],
    "in a row": [("cid", "kai"), ("bob", "cid")],
    "twice": [("bob", "zed"), ("zed", "amy")],
}


@pytest.mark.parametrize("renames", RENAMES.values(), ids=[*RENAMES])
def test_authors_that_were_renamed_between_two_ticks_are_no_difference(
    renames: list[tuple[str, str]], org: Path
) -> None:
    rename(org, *renames)
    ticks = journal_ticks(org)
    assert [result.tick for result in replay_ticks(org, ticks)] == ticks


def test_a_renamed_author_with_the_name_of_a_former_one_is_no_difference(org: Path) -> None:
    (org / "agents/cid").rename(org.parent / "cid")
    rename(org, ("bob", "cid"))
    ticks = journal_ticks(org)
    assert [result.tick for result in replay_ticks(org, ticks)] == ticks


def test_a_renamed_author_keeps_its_mark_where_a_former_one_had_the_name(base: Path) -> None:
    ada = resume("ada", permissions={"read_outboxes": ["bob", "cid"]})
    cid = resume("cid", schedule={"run_every_n_ticks": 9}, permissions={"read_outboxes": []})
    make_org(base, ada, resume("bob", permissions={"read_outboxes": []}), cid, script=[{"reply": say("x")}] * 9)
    run_once(base, clock=FrozenClock())
    state = read_state(base, "ada")
    state.read.through = {"bob": 7, "cid": 3}
    assert state.read.rename_author("bob", "cid", []).through == {"cid": 7}
    assert state.read.rename_author("cid", "bob", []).through == {"bob": 3}


def other_tick(read: Json) -> None:
    read["through"] = {author: tick - 1 for author, tick in read["through"].items()}


def lost_author(read: Json) -> None:
    read["through"].popitem()


def strange_author(read: Json) -> None:
    read["through"] = {**read["through"], "nobody": TICKS}


def exchanged_author(read: Json) -> None:
    _, tick = read["through"].popitem()
    read["through"] = {**read["through"], "eve": tick}


def strange_entry(read: Json) -> None:
    read["also"] = [*read["also"], "nobody/00000001_x"]


def early_entry(read: Json) -> None:
    read["also"] = [*read["also"], "zed/00000009_0a1b2c3d"]


def unusable_entry(read: Json) -> None:
    read["unusable"] = ["bob/00000001_x"]


MARKS = [other_tick, lost_author, strange_author, exchanged_author, strange_entry, early_entry, unusable_entry]


@pytest.mark.parametrize("is_renamed", [False, True], ids=["same names", "renamed"])
@pytest.mark.parametrize("spoil", MARKS)
def test_a_wrong_mark_is_told(spoil: Callable[[Json], None], is_renamed: bool, org: Path) -> None:
    rename(org, *([("bob", "zed")] if is_renamed else []))

    def change(record: Json) -> Json:
        if record["type"] == "turn_started" and record["agent"] == "ada":
            spoil(record["state"]["read"])
        return record

    rewrite_journal(org, TICKS + 1, change)
    with pytest.raises(ReplayMismatch, match="state before the turn differs: read"):
        list(replay_ticks(org, journal_ticks(org)))
