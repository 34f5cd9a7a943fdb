"""What the disk does not say of a file is not taken for a file that is as it was."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from refused import asked_with_each_look_refused

from lemming.capabilities.approvals.binding import NOT_THERE, Binding, binds_of, changed
from lemming.kernel.agents import load_agent
from lemming.testing import make_org, resume

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
