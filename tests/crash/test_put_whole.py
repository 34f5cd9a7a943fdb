"""A fork or a restore that is killed at any change of the disk leaves a whole organisation, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fault_injection
import pytest

from lemming.engine import run_once
from lemming.journal_tools.fork import fork
from lemming.journal_tools.journal_history import open_past
from lemming.kernel.base.errors import LemmingError, UsageError
from lemming.kernel.org.organisation import Organisation
from lemming.operations.backup_archive import restore_backup
from lemming.operations.backup_writer import create_backup
from lemming.testing import FrozenClock, make_org, resume, tree


def forked(base: Path, folder: Path) -> None:
    past = open_past(base)
    fork(past, past.resolve_state("1"), folder, [])


def restored(base: Path, folder: Path) -> None:
    file = base.parent / "kept.tar.gz"
    if not file.exists():
        create_backup(Organisation.from_path(base), file, wait_s=0)
    restore_backup(file, folder)


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
    left, target = list[fault_injection.CrashPoint](), tmp_path / "watched" / "org"
    target.mkdir(parents=True)
    with fault_injection.watch_crash_points(target, "kill", left.append):
        put(base, target)
    assert len(left) >= 10
    assert tree(target) == whole
    halves = 0
    for point in left:
        folder = fault_injection.restore_image(point.image, tmp_path / f"left {point.number}")
        if (folder / "agents").exists():
            assert tree(folder) == whole
            continue
        with pytest.raises(LemmingError):
            run_once(folder, clock=FrozenClock())
        assert not (folder / "tick.json").exists() or not (folder / "agents").exists()
        if any(folder.iterdir()):
            halves += 1
            with pytest.raises(UsageError, match="holds an unfinished `lemming"):
                put(base, folder)
    assert halves
