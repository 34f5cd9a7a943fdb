"""What a turn leaves for the next one is read back before it is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.journal.ledger import AgentState, amend_state, read_state, write_state
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.testing import FrozenClock, make_org, resume, say, tree

KEEPS = """
from lemming.ext import Capability, WriteEntry, register_capability

@register_capability
class Keeps(Capability):
    name = "keeps"
    handles = (WriteEntry,)
    def prepare(self, turn):
        return {{"is": "here"}}
    def reduce(self, state, event, turn):
        return {{"value": {value}}}
"""
VALUES = {"size": "'x' * (9 << 20)", "parts": "['x' * (1 << 20)] * 9"}


@pytest.fixture(autouse=True)
def _for_one_test() -> Iterator[None]:
    yield
    unregister("capability", "keeps")


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for modules that can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def keeping(base: Path, code: Path, value: str) -> Path:
    module = f"keeping_{base.parent.name}".replace("-", "_")
    (code / f"{module}.py").write_text(KEEPS.format(value=value))
    settings = {"plugins": [module], "capabilities": {"keeps": {}}}
    return make_org(base, resume("ada"), org=settings, script=[{"reply": say("hello")}])


@pytest.mark.parametrize("value", VALUES.values(), ids=[*VALUES])
def test_a_turn_that_leaves_what_no_reader_takes_fails_and_is_paid(base: Path, code: Path, value: str) -> None:
    keeping(base, code, value)
    (turn,) = run_once(base, clock=FrozenClock()).turns
    assert (turn.status, turn.error) == ("failed", "TurnBroke")
    assert "the turn's state for the next turn could not be read back" in turn.reason
    assert "the largest part is of keeps" in turn.reason
    state = read_state(base, "ada")
    assert (state.credits, state.kept, state.status) == (1.0, {}, "failed")
    assert read_outbox_entries(base, "ada") == []


def test_what_such_a_turn_came_to_is_verified_and_replayed(base: Path, code: Path) -> None:
    keeping(base, code, VALUES["size"])
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    assert read_state(base, "ada").credits == 2.0
    assert verify_org(base).errors == []
    assert [it.not_repeatable for it in replay_ticks(base, [1, 2])] == [("ada",), ("ada",)]


def test_a_state_that_could_not_be_read_again_is_not_put_in_place_of_another(base: Path) -> None:
    make_org(base, resume("ada"))
    write_state(base, "ada", AgentState(tick=1, status="done"))
    before = tree(base)
    with pytest.raises(ValueError, match="more than 4300 digits"):
        amend_state(base, "ada", AgentState(tick=1, results=({"output": 10**4300},)))
    assert tree(base) == before
