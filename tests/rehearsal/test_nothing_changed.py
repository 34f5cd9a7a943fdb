"""The organisations of the crash corpus, rehearsed without a change: nobody is asked, nothing differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from bill import Bill
from corpus import CASES, Case
from newsroom import again
from peace import run
from sampling import EVERYTHING

from lemming.testing import tree

NOT_TOLD = {
    "letters": "entries put there by hand are there from when a prompt first shows them",
    "approvals": "as are entries that waited in review",
    "filing": "files that people put there and turns wrote over",
    "keeping": "files that people put there and turns wrote over",
    "sealed": "its older journals are gone, and no tick is left before which it is known how all was",
}
QUICK = {"plain", "tools", "spending", "retention", "failing", "hiring", "asked", "native"}
REHEARSED = [case for case in CASES if case.name not in NOT_TOLD and (EVERYTHING or case.name in QUICK)]


@pytest.mark.sample(3)
@pytest.mark.crash
@pytest.mark.parametrize("case", REHEARSED, ids=[case.name for case in REHEARSED])
def test_nobody_is_asked_and_nothing_differs(case: Case, base: Path, tmp_path: Path) -> None:
    case.build(base, {"max_parallel": case.at_once})
    run(base, case.ticks, Bill())
    before = tree(base, without=())
    found = again(base, tmp_path / "fork")
    assert (found.unrecorded_prompts, found.entries, found.ends, found.files, found.skipped_calls) == (
        [],
        [],
        [],
        [],
        [],
    )
    assert found.reused > 0
    assert tree(base, without=()) == before
