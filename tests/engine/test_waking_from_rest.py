"""An agent at rest wakes when anything it reads changes, and only then."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rested import CHANGED, told_by, wait_for_rest, write

from lemming.engine import load_tick, run_once
from lemming.kernel.agents import survey_agents
from lemming.kernel.files import fs
from lemming.kernel.files.stat_cache import FINE_GRANULE_NS, open_folder
from lemming.kernel.inboxes.entry_index import EntryIndex
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.outbox_files import write_person_entry
from lemming.operations.turns.idle_cache import IdleCache
from lemming.testing import make_org, resume, say

pytestmark = pytest.mark.usefixtures("stamps")


def resting(base: Path) -> Organisation:
    """An organisation whose agent has nothing new, which the engine has found out and may remember."""
    script: list[dict[str, Any]] = [{"reply": say("x")}]
    make_org(
        base,
        resume("human", model={"key": "human"}),
        resume("zoe", model={"key": "human"}),
        resume(
            "ada",
            schedule=CHANGED,
            context=[{"file": "./shared/facts/today.txt"}],
            permissions={"read_outboxes": ["human"], "file_access": {"allow_read": ["./shared"], "allow_write": []}},
        ),
        script=script,
    )
    fs.write_atomic(base, "shared/facts/today.txt", b"sunny")
    fs.write_atomic(base, "agents/ada/memory/note.json", b'{"key": "note", "value": 1}')
    org = Organisation(base)
    run_once(org)
    while not _has_come_to_rest(base):  # by the file system's clock, which no test can turn
        os.sched_yield()
    for _ in range(2):
        assert run_once(org).is_quiet
    idle = org.get_cache(IdleCache).for_settings(survey_agents(org), load_config(org), load_tick(base))
    assert [*idle._entries] == ["ada"]
    return org


def _has_come_to_rest(base: Path) -> bool:
    latest = max(path.stat().st_ctime_ns for path in (base / "agents/ada").rglob("*"))
    return time.time_ns() - latest > 2 * FINE_GRANULE_NS


def say_something(base: Path) -> None:
    tick = load_tick(base)
    write_person_entry(base, "human", tick=tick, kind="message", payload={}, tags=[], created_at="x")


def change_the_resume(base: Path) -> None:
    file = base / "agents/ada/resume.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "title": "another"}))


def link_the_folder(base: Path) -> None:
    (base / "shared/facts").rename(base / "shared/elsewhere")
    (base / "shared/facts").symlink_to(base / "shared/elsewhere")


CHANGES: dict[str, Callable[[Path], object]] = {
    "an entry": say_something,
    "an entry of an earlier tick": lambda base: write(base, "human", 1, "late"),
    "a memory": lambda base: fs.write_atomic(base, "agents/ada/memory/new.json", b'{"key": "new", "value": 1}'),
    "a memory edited": lambda base: (base / "agents/ada/memory/note.json").write_bytes(b'{"key": "note", "value": 2}'),
    "a memory gone": lambda base: (base / "agents/ada/memory/note.json").unlink(),
    "the memory gone": lambda base: shutil.rmtree(base / "agents/ada/memory"),
    "a context file": lambda base: (base / "shared/facts/today.txt").write_text("rainy"),
    "a link in the place of a folder": link_the_folder,
    "the resume": change_the_resume,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("change", CHANGES)
def test_an_agent_at_rest_wakes_when_anything_it_reads_changes(base: Path, change: str) -> None:
    org = resting(base)
    CHANGES[change](base)
    assert [turn.status for turn in run_once(org).turns if turn.agent == "ada"] != ["skipped"]


def test_a_memory_wakes_one_that_had_none(base: Path) -> None:
    org = resting(base)
    shutil.rmtree(base / "agents/ada/memory")
    run_once(org)
    assert [run_once(org).is_quiet for _ in range(3)] == [True] * 3
    fs.write_atomic(base, "agents/ada/memory/note.json", b'{"key": "note", "value": 1}')
    assert not run_once(org).is_quiet


def test_agents_that_are_due_in_turns_are_woken_each_in_its_own_tick(base: Path) -> None:
    make_org(
        base,
        resume("human", model={"key": "human"}),
        *(
            resume(
                name,
                schedule={**CHANGED, "run_every_n_ticks": 2, "phase_offset": phase},
                permissions={"read_outboxes": ["human"]},
            )
            for phase, name in enumerate(("ada", "bob"))
        ),
        script=[{"reply": say("x")}],
    )
    org = Organisation(base)
    for _ in range(2):
        run_once(org)
    assert [run_once(org).is_quiet for _ in range(6)] == [True] * 6
    say_something(base)
    assert [run_once(org).is_quiet for _ in range(4)] == [False, False, True, True]


def test_an_outbox_is_told_by_its_folder_and_one_that_is_not_there_by_the_folder_above(tmp_path: Path) -> None:
    index = EntryIndex(Organisation(tmp_path))
    for author in ("ada", "bob", "zoe"):
        (tmp_path / "agents" / author).mkdir(parents=True)
    write(tmp_path, "ada", 1, "a")
    wait_for_rest(tmp_path)
    (tmp_path / "agents/zoe/outbox").symlink_to(tmp_path / "agents/ada/outbox")
    assert [told_by(index, tmp_path, author) for author in ("ada", "bob", "zoe")] == [
        "agents/ada/outbox",
        "agents/bob/.",
        None,
    ]
    before = index.list_outbox("ada")
    write(tmp_path, "ada", 2, "b")
    index.list_outbox("ada")
    with open_folder(tmp_path) as root:
        assert index.capture_state("ada", before, root) is None


def test_an_agent_at_rest_is_not_woken_by_what_it_may_not_read(base: Path) -> None:
    org = resting(base)
    write(base, "zoe", 1, "aside")
    assert run_once(org).is_quiet


def test_an_entry_of_a_tick_to_come_wakes_when_its_tick_comes(base: Path) -> None:
    org = resting(base)
    tick = load_tick(base)
    write(base, "human", tick + 2, "ahead")
    assert [run_once(org).is_quiet for _ in range(3)] == [True, True, False]


def test_an_entry_that_was_unusable_wakes_when_it_is_mended(base: Path) -> None:
    org = resting(base)
    path = write(base, "human", 1, "broken")
    whole = path.read_bytes()
    path.write_bytes(b"{")
    run_once(org)
    assert run_once(org).is_quiet
    path.write_bytes(whole)
    assert not run_once(org).is_quiet
