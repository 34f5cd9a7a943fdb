"""What the disk does not say of a file is not taken for a file that is as it was."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import pytest
from approvals_org import Ring, make
from fault_injection import fail_nth_lookup, restore_image, take_image
from refused import asked_with_each_look_refused

from lemming.engine import run_once
from lemming.kernel.agents import Agent, load_agent
from lemming.kernel.base.errors import DiskError
from lemming.kernel.files.stat_cache import path_exists
from lemming.kernel.obligations.grants import find_changed_files
from lemming.kernel.org.config import OrgSettings
from lemming.kernel.tools import ToolRegistry
from lemming.obligations.file_bindings import MISSING_FILE, ApprovalBinding, compute_binding
from lemming.testing import FrozenClock, make_org, resume, say

FILES = {"allow_read": ["shared/"], "allow_write": ["shared/"]}


def bound(base: Path, path: str) -> ApprovalBinding:
    return compute_binding(load_agent(base, "ada"), base, "write", {"path": path}, {})


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("path", ["shared/a.txt", "shared/link.txt", "shared/none.txt"])
def test_a_look_that_is_refused_binds_a_call_to_nothing_else(tmp_path: Path, path: str, number: int) -> None:
    permissions = {"tools": ["file_write"], "read_outboxes": [], "file_access": FILES}
    base = make_org(tmp_path / "org", resume("ada", permissions=permissions))
    (base / "shared").mkdir(exist_ok=True)
    (base / "shared/a.txt").write_text("a")
    (base / "shared/link.txt").symlink_to("a.txt")
    asked_with_each_look_refused(base, number, lambda: bound(base, path))


def test_a_file_that_cannot_be_read_any_more_is_not_one_that_is_not_there() -> None:
    assert find_changed_files({}, {"shared/a.txt": MISSING_FILE}) == ["shared/a.txt"]
    assert find_changed_files({"shared/a.txt": MISSING_FILE}, {"shared/a.txt": MISSING_FILE}) == []


class Watched(Ring):
    """A bell that may be rung while nothing stands in its way."""

    name = "watched"

    def __init__(self, base: Path) -> None:
        self.base = base

    def refusal_reason(self, agent: Agent, settings: OrgSettings) -> str:
        return "it is shut" if path_exists(f"{self.base}/shared/shut") else super().refusal_reason(agent, settings)


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_has_no_call_made_that_nobody_approved(base: Path, number: int) -> None:
    gates = [{"at": "call", "tool": "watched", "then": "ask"}]
    calls = [{"tool": "watched", "args": {"text": "once"}}]
    may = {"read_outboxes": ["human"], "tools": ["watched"]}
    make(base, gates=gates, permissions=may, script=[{"reply": say("calling", tool_calls=calls)}])
    image = take_image(base)

    def run(folder: str, at: int) -> list[str]:
        org = restore_image(image, base.parent / folder)
        ToolRegistry.register(Watched(org))
        with fail_nth_lookup(org, at, number) as looks, suppress(DiskError):
            run_once(org, clock=FrozenClock())
        return looks

    meant = [at for at, look in enumerate(run("calm", 0), start=1) if look.endswith("shared/shut")]
    assert len(meant) > 1
    for at in meant:
        run(f"again {at}", at)
    assert Ring.rung == []
