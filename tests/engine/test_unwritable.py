"""An outbox that cannot be written: nothing that was paid for is lost, and nothing is paid for in vain."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lemming.engine import run_once
from lemming.kernel.agents import OwnFolderCheck
from lemming.kernel.base.errors import ConfigError, DiskError
from lemming.kernel.files import fs
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say


def refusing(number: int, place: str) -> Callable[[str, str], None]:
    def refuse(_: str, path: str) -> None:
        if place in path:
            raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("durability", ["tick", "off"])
@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC, errno.EIO, errno.ELOOP])
def test_a_paid_entry_is_written_by_the_run_that_can(base: Path, number: int, durability: str) -> None:
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": say("hello")}], org={"durability": durability})
    for _ in range(2):
        with (
            pytest.raises(DiskError, match=os.strerror(number)) as stopped,
            fs.observe_changes(refusing(number, "ada/outbox/")),
        ):
            run_once(base, clock=FrozenClock())
        assert "agents/ada/outbox/" in stopped.value.where
    report = run_once(base, clock=FrozenClock())
    assert (report.tick, {turn.status for turn in report.turns}) == (1, {"done"})
    assert [it.payload["text"] for it in read_outbox_entries(base, "ada")] == ["hello"]
    replies = [line["agent"] for line in journal_lines(base, 1) if line["type"] == "model_replied"]
    assert sorted(replies) == ["ada", "bob"]
    assert read_state(Organisation.from_path(base), "ada").credits == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="who may do everything is refused nothing")
@pytest.mark.parametrize("folder", ["outbox", "memory"])
def test_who_could_not_write_is_not_asked(base: Path, folder: str) -> None:
    make_org(base, resume("ada"), resume("bob"), script=[{"reply": say("hello")}])
    place = base / "agents/ada" / folder
    place.mkdir(exist_ok=True)
    place.chmod(0o555)
    with pytest.raises(ConfigError, match="may not write here"):
        OwnFolderCheck(Organisation(base)).require_valid("ada")
    report = run_once(base, clock=FrozenClock())
    assert {turn.agent: (turn.status, turn.calls) for turn in report.turns} == {
        "ada": ("failed", 0),
        "bob": ("done", 1),
    }
    place.chmod(0o755)
    assert run_once(base, clock=FrozenClock()).turns[0].status == "done"
