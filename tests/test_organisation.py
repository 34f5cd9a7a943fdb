"""Two organisations in one process do not touch each other, and what is known of one goes with it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from lemming.engine import load_tick, run_once
from lemming.kernel.agents import survey_agents
from lemming.kernel.files.stat_cache import CACHE_LIMIT_BYTES, FileCache, file_identity, has_stable_mtime
from lemming.kernel.memory import load_memory
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, make_org, resume, say, tree

pytestmark = pytest.mark.usefixtures("stamps")


def made(base: Path, word: str) -> Organisation:
    """An organisation whose agents and files have the names of any other's, and say another word."""
    script = [{"reply": say(word, notes=word, memory_updates=[{"key": "note", "value": word}])}]
    readable = {"read_outboxes": ["*"]}
    make_org(
        base,
        resume("ada", title=word, permissions=readable),
        resume("zed", title=word, permissions=readable),
        org={"retention_ticks": len(word)},
        script=script,
    )
    return Organisation(base)


def said(org: Organisation) -> set[object]:
    """Every word that an organisation's files say."""
    words = {agent.title for agent in survey_agents(org).agents.values()}
    entries = read_outbox_entries(org, "ada", 50)
    return {*words, *(entry.payload["text"] for entry in entries), load_memory(org, "ada", "note")}


def test_two_organisations_that_run_in_turns_do_not_touch_each_other(tmp_path: Path) -> None:
    clock = FrozenClock()
    alone = made(tmp_path / "alone", "red")
    red, green = made(tmp_path / "red", "red"), made(tmp_path / "green", "green")
    for _ in range(4):
        assert [run_once(org, clock=clock).turns[0].status for org in (alone, red, green)] == ["done"] * 3
        assert (said(red), said(green)) == ({"red"}, {"green"})
    assert tree(red.base) == tree(alone.base)
    assert [load_config(org).org.retention_ticks for org in (red, green)] == [3, 5]


@pytest.mark.parametrize("is_kept", [True, False], ids=["the same Organisation", "another Organisation"])
def test_an_organisation_made_anew_at_the_same_path_has_nothing_of_the_one_before(base: Path, is_kept: bool) -> None:
    clock = FrozenClock()
    org = made(base, "red")
    for _ in range(4):
        run_once(org, clock=clock)
    shutil.rmtree(base)
    anew = made(base, "tan")
    org = org if is_kept else anew
    assert [load_tick(base), load_memory(org, "ada", "note")] == [1, None]
    for _ in range(4):
        assert run_once(org, clock=clock).turns[0].status == "done"
        assert said(org) == {"tan"}
    there = made(base.with_name("elsewhere"), "tan")
    for _ in range(4):
        run_once(there, clock=clock)
    assert tree(base) == tree(there.base)


def test_what_belongs_to_an_organisation_is_made_once_for_each(tmp_path: Path) -> None:
    class Notes:
        def __init__(self, org: Organisation) -> None:
            self.base = org.base

    one, other = Organisation(tmp_path / "one"), Organisation(tmp_path / "other")
    assert one.get_cache(Notes) is one.get_cache(Notes)
    assert [org.get_cache(Notes).base for org in (one, other)] == [one.base, other.base]
    assert Organisation.from_path(one) is one
    assert Organisation.from_path(str(one)).base == one.base


def test_what_is_kept_of_files_stays_within_its_bytes_and_the_latest_stay(tmp_path: Path) -> None:
    files, reads = FileCache(tmp_path), []

    def decode(raw: bytes) -> str:
        reads.append(raw[:2])
        return raw.decode()

    large = CACHE_LIMIT_BYTES // 4
    for name in "abcde":
        (tmp_path / name).write_text(name * large)
    wait_for_rest(tmp_path)
    for name in "abcdeea":
        assert files.get_value(name, decode, limit_bytes=CACHE_LIMIT_BYTES) == name * large
    assert reads == [b"aa", b"bb", b"cc", b"dd", b"ee", b"aa"]


def wait_for_rest(folder: Path) -> None:
    """Wait until no file in a folder has changed a moment ago, by the file system's clock."""
    while not all(has_stable_mtime(file_identity(str(path)), time.time_ns()) for path in folder.iterdir()):
        os.sched_yield()
