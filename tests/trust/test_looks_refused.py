"""Where the disk does not say what a mark is, nothing is trusted more than before."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from test_files import played

from lemming.agents import survey_agents
from lemming.base.errors import DiskError
from lemming.capabilities.trust.authors import Authors
from lemming.capabilities.trust.marks import Marks, mark_effect
from lemming.files.effects import apply_effect
from lemming.org.config import load_config
from lemming.org.organisation import Organisation
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
