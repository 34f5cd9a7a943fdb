"""A look that the disk refuses is no proof that nothing is there: the tick stops, and goes on afterwards."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from refused import run_with_each_look_refused

from lemming.engine import run_once
from lemming.kernel.base.errors import DiskError
from lemming.kernel.journal.file import last_record, read_journal, read_plan
from lemming.testing import FrozenClock, make_org, resume, say
from lemming.testing.faults import refuse_look

PLACES = (
    "agents/ada/resume.json",
    "agents/bob/turns.jsonl",
    "agents/bob/memory",
    "agents/ada/outbox",
    "config/org.json",
    "config/models.json",
    "tick.json",
)


@pytest.fixture
def org(base: Path) -> Path:
    remembering = say("news", memory_updates=[{"key": "last", "value": 1}])
    agents = resume("ada"), resume("bob", permissions={"read_outboxes": ["ada"]})
    make_org(base, *agents, org={"max_parallel": 1}, script=[{"reply": remembering}])
    run_once(base, clock=FrozenClock())
    return base


@pytest.mark.parametrize("refusal", [errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE])
@pytest.mark.parametrize("place", PLACES)
def test_a_refused_look_stops_the_tick_or_changes_nothing(org: Path, place: str, refusal: int) -> None:
    run_with_each_look_refused(org, refusal, lambda look: look.endswith(f" {place}"))


@pytest.mark.parametrize("refusal", [errno.EIO, errno.EMFILE])
def test_a_journal_that_the_disk_refuses_to_show_is_the_disks_trouble(org: Path, refusal: int) -> None:
    for look in (read_journal, last_record, read_plan):
        with refuse_look(org, 1, refusal) as looks, pytest.raises(DiskError):
            look(org, 1)
        assert looks == ["open logs/ticks/00000001.jsonl"]


@pytest.mark.parametrize("refusal", [errno.EIO, errno.EMFILE])
def test_a_refused_look_of_a_file_tool_is_never_a_result(base: Path, refusal: int) -> None:
    access = {"allow_read": ["./workspace", "./shared"], "allow_write": ["./workspace", "./shared"]}
    tools = ["file_read", "file_write", "file_list", "file_search"]
    calls = [
        {"tool": "file_read", "args": {"path": "shared/x.txt"}},
        {"tool": "file_write", "args": {"path": "shared/y.txt", "content": "y"}},
        {"tool": "file_list", "args": {"path": "shared"}},
        {"tool": "file_search", "args": {"text": "x"}},
    ]
    ada = resume("ada", permissions={"read_outboxes": [], "tools": tools, "file_access": access})
    make_org(base, ada, org={"durability": "off"}, script=[{"reply": say("", tool_calls=calls)}])
    for place in ("shared", "agents/ada/workspace"):
        (base / place).mkdir(parents=True, exist_ok=True)
        (base / place / "x.txt").write_text("x")
    about = ("shared", "workspace", "x.txt", "y.txt")
    run_with_each_look_refused(base, refusal, lambda look: look.split("/")[-1].endswith(about))
