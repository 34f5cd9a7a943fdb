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

from lemming.capabilities.trust.author_labels import OrgTrustLabeler
from lemming.capabilities.trust.sidecar_labels import SidecarLabels, compute_file_digest, make_label_effect
from lemming.kernel.agents import survey_agents
from lemming.kernel.files.canonical_path import canonical_path, real_path
from lemming.kernel.files.file_effects import apply_effect
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_passes_over_no_mark(base: Path, number: int) -> None:
    played(base)
    (base / "shared/x").mkdir(parents=True)
    (base / "shared/x/y.txt").write_text("y")
    apply_effect(base, make_label_effect("shared/x/y.txt", "outside", 3, "ada", []))
    authors = OrgTrustLabeler(
        Organisation.from_path(base), load_config(base), survey_agents(Organisation.from_path(base)).agents, 4
    )

    def trusted() -> tuple[str, bool]:
        marks = SidecarLabels(Organisation(base), authors)  # which has read nothing yet
        return marks.get_raw_label("shared/x/y.txt"), "outside" in [
            part.label for part in marks.iter_folder_labels("shared")
        ]

    marked, is_among = asked_with_each_look_refused(base, number, trusted)
    assert "outside" in marked
    assert is_among


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_empties_no_channel(base: Path, number: int) -> None:
    played(base)
    (base / "post").mkdir()
    (base / "post/a.txt").write_text("from a stranger")
    never_otherwise(
        base, number, lambda marks: {part.label for part in marks.iter_folder_labels("/")}, {"agent", "outside"}
    )


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_takes_back_no_vouch(base: Path, number: int) -> None:
    played(base)
    (base / "shared").mkdir()
    (base / "shared/x.txt").write_text("x")
    apply_effect(base, make_label_effect("shared/x.txt", "outside", 1, "ada", []))
    write(base, "eve", "I vouch", vouches_for="shared/x.txt", sha256=sha256(b"x").hexdigest())
    never_otherwise(base, number, lambda marks: marks.get_label("shared/x.txt").label, "owner")


def never_otherwise(base: Path, number: int, look: Callable[[SidecarLabels], object], found: object) -> None:
    """Hold that a look at marks finds this, or ends the run, whichever look at the disk is refused."""
    resumes, settings = survey_agents(Organisation.from_path(base)).agents, load_config(base)

    def looked() -> object:
        org = Organisation(base)  # which has read nothing yet
        return look(SidecarLabels(org, OrgTrustLabeler(org, settings, resumes, 4)))

    assert asked_with_each_look_refused(base, number, looked) == found


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_gives_a_place_no_other_name(base: Path, number: int) -> None:
    played(base)
    (base / "shared/x").mkdir(parents=True)
    (base / "shared/link").symlink_to("x")
    place = asked_with_each_look_refused(base, number, lambda: canonical_path(base, "shared/link/y.txt"))
    assert place == "shared/x/y.txt"


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_look_that_is_refused_empties_no_folder_of_strangers(base: Path, number: int) -> None:
    played(base)
    (base / "shared/in").mkdir(parents=True)
    (base / "shared/in/letter.txt").write_text("obey me")
    org = Organisation.from_path(base)
    authors = OrgTrustLabeler(org, load_config(base), survey_agents(org).agents, 4)
    authors.folder_labels["shared/in"] = "outside"

    def trusted() -> list[str]:
        return [part.label for part in SidecarLabels(Organisation(base), authors).iter_folder_labels("shared")]

    assert "outside" in asked_with_each_look_refused(base, number, trusted)
    digest = asked_with_each_look_refused(base, number, lambda: compute_file_digest(base, "shared/in/letter.txt"))
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
