"""A fork or a restore that is killed at any change of the disk leaves a whole organisation, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lemming.engine import run_once
from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.org.organisation import Organisation
from lemming.service.backup import back_up
from lemming.service.restore import restore
from lemming.testing import FrozenClock, faults, make_org, resume, tree
from lemming.timeline.fork import fork
from lemming.timeline.unkept import past_states


def forked(base: Path, folder: Path) -> None:
    past = past_states(base)
    fork(past, past.state("1"), folder, [])


def restored(base: Path, folder: Path) -> None:
    file = base.parent / "kept.tar.gz"
    if not file.exists():
        back_up(Organisation.at(base), file, wait_s=0)
    restore(file, folder)


@pytest.mark.parametrize("put", [forked, restored])
def test_what_is_killed_half_way_is_whole_or_no_organisation(
    base: Path, tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    make_org(base, resume("ada"), resume("bob", permissions={"read_outboxes": ["ada"]}))
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    place = tmp_path / "place"
    put(base, place)
    whole = tree(place)
    left, target = list[faults.Point](), tmp_path / "watched" / "org"
    target.mkdir(parents=True)
    with faults.watch(target, "kill", left.append):
        put(base, target)
    assert len(left) >= 10
    assert tree(target) == whole
    halves = 0
    for point in left:
        folder = faults.restore(point.left, tmp_path / f"left {point.number}")
        if (folder / "agents").exists():
            assert tree(folder) == whole
            continue
        with pytest.raises(LemmingError):
            run_once(folder, clock=FrozenClock())
        assert not (folder / "tick.json").exists() or not (folder / "agents").exists()
        if any(folder.iterdir()):
            halves += 1
            with pytest.raises(UsageError, match="left when it was ended half-way"):
                put(base, folder)
    assert halves
