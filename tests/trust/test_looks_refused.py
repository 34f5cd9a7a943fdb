"""Where the disk does not say what a mark is, nothing is trusted more than before."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from refused import asked_with_each_look_refused
from test_files import played
from tracked import write

from lemming.capabilities.trust.authors import Authors
from lemming.capabilities.trust.marks import Marks, digest_of, mark_effect
from lemming.kernel.agents import survey_agents
from lemming.kernel.files.effects import apply_effect
from lemming.kernel.files.real_place import opened_place, real_path
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_passes_over_no_mark(base: Path, number: int) -> None:
    played(base)
    (base / "shared/x").mkdir(parents=True)
    (base / "shared/x/y.txt").write_text("y")
    apply_effect(base, mark_effect("shared/x/y.txt", "outside", 3, "ada", []))
    authors = Authors(
        Organisation.at(base), load_config(base), survey_agents(Organisation.at(base)).agents, 4
    )

    def trusted() -> tuple[str, bool]:
        marks = Marks(Organisation(base), authors)  # which has read nothing yet
        return marks.marked("shared/x/y.txt"), "outside" in [part.word for part in marks.below("shared")]

    marked, is_among = asked_with_each_look_refused(base, number, trusted)
    assert "outside" in marked
    assert is_among


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_empties_no_channel(base: Path, number: int) -> None:
    played(base)
    (base / "post").mkdir()
    (base / "post/a.txt").write_text("from a stranger")
    never_otherwise(
        base, number, lambda marks: {part.word for part in marks.below("/")}, {"agent", "outside"}
    )


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_takes_back_no_vouch(base: Path, number: int) -> None:
    played(base)
    (base / "shared").mkdir()
    (base / "shared/x.txt").write_text("x")
    apply_effect(base, mark_effect("shared/x.txt", "outside", 1, "ada", []))
    write(base, "eve", "I vouch", vouches_for="shared/x.txt", sha256=sha256(b"x").hexdigest())
    never_otherwise(base, number, lambda marks: marks.of("shared/x.txt").word, "owner")


def never_otherwise(base: Path, number: int, look: Callable[[Marks], object], found: object) -> None:
    """Hold that a look at marks finds this, or ends the run, whichever look at the disk is refused."""
    resumes, settings = survey_agents(Organisation.at(base)).agents, load_config(base)

    def looked() -> object:
        org = Organisation(base)  # which has read nothing yet
        return look(Marks(org, Authors(org, settings, resumes, 4)))

    assert asked_with_each_look_refused(base, number, looked) == found


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_gives_a_place_no_other_name(base: Path, number: int) -> None:
    played(base)
    (base / "shared/x").mkdir(parents=True)
    (base / "shared/link").symlink_to("x")
    place = asked_with_each_look_refused(base, number, lambda: opened_place(base, "shared/link/y.txt"))
    assert place == "shared/x/y.txt"


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_empties_no_folder_of_strangers(base: Path, number: int) -> None:
    played(base)
    (base / "shared/in").mkdir(parents=True)
    (base / "shared/in/letter.txt").write_text("obey me")
    org = Organisation.at(base)
    authors = Authors(org, load_config(base), survey_agents(org).agents, 4)
    authors.homes["shared/in"] = "outside"

    def trusted() -> list[str]:
        return [part.word for part in Marks(Organisation(base), authors).below("shared")]

    assert "outside" in asked_with_each_look_refused(base, number, trusted)
    digest = asked_with_each_look_refused(base, number, lambda: digest_of(base, "shared/in/letter.txt"))
    assert digest == sha256(b"obey me").hexdigest()


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
