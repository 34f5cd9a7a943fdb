"""Where the disk does not say what a mark is, nothing is trusted more than before."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from test_files import played

from lemming.capabilities.trust.authors import Authors
from lemming.capabilities.trust.marks import Marks, mark_effect
from lemming.kernel.agents import survey_agents
from lemming.kernel.base.errors import DiskError
from lemming.kernel.files.effects import apply_effect
from lemming.kernel.files.real_place import opened_place, real_path
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.testing.faults import refuse_look


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_passes_over_no_mark(base: Path, number: int) -> None:
    played(base)
    (base / "shared/x").mkdir(parents=True)
    (base / "shared/x/y.txt").write_text("y")
    apply_effect(base, mark_effect("shared/x/y.txt", "outside", 3, "ada", []))
    authors = Authors(
        Organisation.at(base), load_config(base), survey_agents(Organisation.at(base)).agents, 4
    )

    def trusted() -> list[str]:
        marks = Marks(Organisation(base), authors)  # which has read nothing yet
        return [marks.marked("shared/x/y.txt"), *(part.word for part in marks.below("shared"))]

    whole, refused = trusted(), 0
    assert "outside" in whole[0]
    assert "outside" in whole[1:]
    with refuse_look(base, 0, number) as looks:
        trusted()
    for at in range(1, len(looks) + 1):
        with refuse_look(base, at, number):
            try:
                found = trusted()
                assert (found[0], {*found[1:]} >= {"outside"}) == (whole[0], True), looks[at - 1]
            except DiskError:
                refused += 1
    assert refused


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_gives_a_place_no_other_name(base: Path, number: int) -> None:
    played(base)
    (base / "shared/x").mkdir(parents=True)
    (base / "shared/link").symlink_to("x")
    refused = 0
    with refuse_look(base, 0, number) as looks:
        assert opened_place(base, "shared/link/y.txt") == "shared/x/y.txt"
    for at in range(1, len(looks) + 1):
        with refuse_look(base, at, number):
            try:
                assert opened_place(base, "shared/link/y.txt") == "shared/x/y.txt", looks[at - 1]
            except DiskError:
                refused += 1
    assert refused


def test_a_path_leads_where_the_library_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/file").write_text("x")
    links = {
        "one": "a", "two": "one/b", "up": "a/b/../..", "whole": f"{tmp_path}/a", "nowhere": "a/none/x",
        "round": "again", "again": "round", "self": "self", "a/b/back": "../../two",
    }  # fmt: skip
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    monkeypatch.chdir(tmp_path / "a")
    ends = ("", "/", "/..", "/../x", "/./b//back", "/file/y", "/none/../b")
    found = [f"{tmp_path}/{name}{end}" for name in (*links, "a", "none") for end in ends]
    for path in (*found, "b", "../two", ".", "/", "//x"):
        assert real_path(path) == os.path.realpath(path), path
