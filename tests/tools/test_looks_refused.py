"""Where the disk does not say where a grant leads, no code is taken for code that no agent may write."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from refused import asked_with_each_look_refused

from lemming.kernel.access.plugin_files import writable
from lemming.kernel.agents import load_agent
from lemming.testing import make_org, resume


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_makes_no_file_safe(tmp_path: Path, number: int) -> None:
    granted = f"{tmp_path}/org/shared/code"
    ada = resume("ada", permissions={"read_outboxes": [], "file_access": {"allow_write": [granted]}})
    (make_org(tmp_path / "org", ada) / "shared/code").mkdir(parents=True)
    base = tmp_path / "named"
    base.symlink_to("org")
    agents = {"ada": load_agent(base, "ada")}

    def problems() -> list[str]:
        return [it.message for it in writable(base, ["shared/code/tools.py"], agents)]

    whole = asked_with_each_look_refused(tmp_path, number, problems)
    assert "ada may write it: permissions.file_access.allow_write" in whole
