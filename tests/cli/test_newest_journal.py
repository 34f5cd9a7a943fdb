"""Commands that look, beside a newest journal as a kill or a full disk leaves it: empty, or torn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from terminal import typed_at

from lemming.engine import run_once
from lemming.kernel.base import paths
from lemming.kernel.files import fs
from lemming.testing import FrozenClock, make_org, resume

LOOKS = [
    "status", "status --check", "tick", "tick 2", "findings", "plan", "prompt ada", "inbox ada", "outbox ada",
    "logs", "agents list", "agents show ada", "memory list ada", "credits show", "models list", "validate",
    "cost", "cost --by tick", "requests", "approvals", "waiting", "events", "metrics", "graph", "plans",
    "calendar", "channels", "gates list", "skills list", "tools list", "replay", "verify",
]  # fmt: skip
NEW, NEWEST = paths.journal_file(3), paths.journal_file(2)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An organisation that has run two ticks."""
    base = make_org(tmp_path_factory.mktemp("looked") / "org", resume("ada"), resume("bob"))
    run_once(base, clock=FrozenClock())
    run_once(base, clock=FrozenClock())
    return base


@pytest.fixture(params=["empty", "torn first line", "torn last line"])
def left(ran: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The same as an end of the engine left it."""
    whole, counter = (ran / NEWEST).read_bytes(), (ran / paths.TICK_FILE).read_bytes()
    if request.param == "torn last line":
        fs.write_atomic(ran, NEWEST, whole[:-20])
        fs.write_atomic(ran, paths.TICK_FILE, counter.replace(b"3", b"2"))
    else:
        fs.write_atomic(ran, NEW, whole[:60] if request.param == "torn first line" else b"")
    yield ran
    fs.write_atomic(ran, NEWEST, whole)
    fs.write_atomic(ran, paths.TICK_FILE, counter)
    fs.remove(ran, NEW)


@pytest.mark.sample(3)
def test_every_look_works_beside_a_newest_journal_that_is_empty_or_torn(
    left: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lemming = typed_at(left, capsys)
    is_begun = not (left / NEW).exists()
    for words in LOOKS:
        ran = lemming(*words.split())
        is_told = is_begun and words in ("status --check", "verify")  # a tick that was interrupted
        assert "LMG-" not in ran.err or is_told, (words, ran.err)
        assert ran.status == 0 or is_told, (words, ran.out, ran.err)


def test_a_tick_that_has_not_begun_has_not_been_run(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fs.write_atomic(ran, NEW, b"")
    told = typed_at(ran, capsys)("tick", "3")
    fs.remove(ran, NEW)
    assert told.status == 2
    assert "tick 3 has not run" in told.err
    assert "name a tick up to 2" in told.err
