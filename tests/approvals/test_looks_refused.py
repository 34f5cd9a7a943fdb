"""What the disk does not say of a file is not taken for a file that is as it was."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import pytest
from approvals_org import Ring, make
from refused import asked_with_each_look_refused

from lemming.capabilities.approvals.binding import NOT_THERE, Binding, binds_of, changed
from lemming.engine import run_once
from lemming.kernel.agents import Agent, load_agent
from lemming.kernel.base.errors import DiskError
from lemming.kernel.files.stamps import is_there
from lemming.kernel.org.config import Org
from lemming.kernel.tools import ToolRegistry
from lemming.testing import FrozenClock, make_org, resume, say
from lemming.testing.faults import refuse_look, restore, take_image

FILES = {"allow_read": ["shared/"], "allow_write": ["shared/"]}


def bound(base: Path, path: str) -> Binding:
    return binds_of(load_agent(base, "ada"), base, "write", {"path": path}, {})


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
    assert changed({}, {"shared/a.txt": NOT_THERE}) == ["shared/a.txt"]
    assert changed({"shared/a.txt": NOT_THERE}, {"shared/a.txt": NOT_THERE}) == []


class Watched(Ring):
    """A bell that may be rung while nothing stands in its way."""

    name = "watched"

    def __init__(self, base: Path) -> None:
        self.base = base

    def why_refused(self, agent: Agent, settings: Org) -> str:
        return "it is shut" if is_there(f"{self.base}/shared/shut") else super().why_refused(agent, settings)


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_has_no_call_made_that_nobody_approved(base: Path, number: int) -> None:
    gates = [{"at": "call", "tool": "watched", "then": "ask"}]
    calls = [{"tool": "watched", "args": {"text": "once"}}]
    may = {"read_outboxes": ["human"], "tools": ["watched"]}
    make(base, gates=gates, permissions=may, script=[{"reply": say("calling", tool_calls=calls)}])
    image = take_image(base)

    def run(folder: str, at: int) -> list[str]:
        org = restore(image, base.parent / folder)
        ToolRegistry.register(Watched(org))
        with refuse_look(org, at, number) as looks, suppress(DiskError):
            run_once(org, clock=FrozenClock())
        return looks

    meant = [at for at, look in enumerate(run("calm", 0), start=1) if look.endswith("shared/shut")]
    assert len(meant) > 1
    for at in meant:
        run(f"again {at}", at)
    assert Ring.rung == []
