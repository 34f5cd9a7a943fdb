"""`lemming repair --restore`: files that are gone, written again from the record."""

from __future__ import annotations

import shutil
from pathlib import Path

from broken import Repair, damage, journal

from lemming.engine import run_once
from lemming.journal_tools.repair.damage_repair import find_repairs
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.testing import make_org, resume, say, tree


def remembering(base: Path) -> Path:
    said = say("news", memory_updates=[{"key": "last", "value": 1}])
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": said}])
    for _ in range(3):
        run_once(base)
    return base


def entries(base: Path, agent: str) -> list[Path]:
    return sorted((base / f"agents/{agent}/outbox").iterdir())


def test_lost_entries_and_memories_are_written_again_when_asked_for(base: Path, repair: Repair) -> None:
    before = tree(remembering(base))
    for file in (*entries(base, "ada")[1:], base / "agents/bob/memory/last.json"):
        file.unlink()
    assert verify_org(base).errors
    told = repair("--json")
    assert told.status == 1
    assert [(one["kind"], one["is_for_a_person"]) for one in told.objects] == [("lost", False)] * 3
    assert len(entries(base, "ada")) == 1, "nothing comes back before it is asked for"
    assert [one.kind for one in find_repairs(base, newest=20)] == ["lost"] * 3, "which is what doctor tells"
    assert repair("--yes").status == 0
    assert tree(base) == before
    assert verify_org(base).findings == ()
    assert repair().status == 0


def test_what_people_and_retention_removed_stays_removed(base: Path, repair: Repair) -> None:
    said = say("news", memory_updates=[{"key": "last", "value": 1}])
    other = say("more", memory_updates=[{"key": "other", "value": 1}])
    script = [{"tick": 1, "reply": said}, {"reply": other}]
    make_org(base, resume("ada"), org={"retention_ticks": 2}, script=script)
    for _ in range(5):
        run_once(base)
    assert len(entries(base, "ada")) < 5
    (base / "agents/ada/memory/last.json").unlink()  # which no newer turn has written
    assert repair("--yes", "--json").objects == []


def test_nothing_of_an_agent_that_is_gone_comes_back(base: Path, repair: Repair) -> None:
    remembering(base)
    shutil.rmtree(base / "agents/ada")
    assert repair("--yes", "--json").objects == []


def test_another_agent_of_the_same_name_does_not_get_its_entries(base: Path, repair: Repair) -> None:
    remembering(base)
    shutil.rmtree(base / "agents/ada/outbox")
    (base / "agents/ada/turns.jsonl").unlink()
    assert repair("--yes", "--json").objects == []


def test_a_lost_file_of_a_workspace_is_only_told_of(base: Path, repair: Repair) -> None:
    writes = [{"tool": "file_write", "args": {"path": "a.txt", "content": "1"}}]
    files = {"allow_read": ["./workspace"], "allow_write": ["./workspace"]}
    ada = resume("ada", permissions={"tools": ["file_write"], "file_access": files})
    make_org(base, ada, script=[{"reply": say("news", tool_calls=writes)}])
    run_once(base)
    file = base / "agents/ada/workspace/a.txt"
    file.unlink()
    told = repair("--yes", "--json")
    assert [(one["kind"], one["is_for_a_person"]) for one in told.objects] == [("lost", True)]
    assert (told.status, file.exists()) == (0, False)


def test_an_entry_that_a_damaged_tick_may_have_removed_does_not_come_back(base: Path, repair: Repair) -> None:
    remembering(base)
    entries(base, "ada")[0].unlink()
    damage(journal(base, 2), 1)
    assert [one["kind"] for one in repair("--json").objects] == ["journal"]
