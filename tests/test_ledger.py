"""The ledger: one line a turn, and the last whole line is the state, whatever is done to the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from lemming.kernel.base.errors import CorruptState
from lemming.kernel.journal.ledger import AgentState, read_state, write_state

pytestmark = pytest.mark.usefixtures("stamps")
LEDGER = "agents/ada/turns.jsonl"


def state(tick: int, chars: int = 0) -> AgentState:
    return AgentState(tick=tick, results=({"output": "x" * chars},) if chars else ())


@pytest.mark.parametrize("chars", [0, 5_000, 100_000])
def test_the_state_of_the_last_turn_comes_back_however_long_its_line_is(tmp_path: Path, chars: int) -> None:
    tmp_path.joinpath("agents/ada").mkdir(parents=True)
    for tick in range(1, 12):
        write_state(tmp_path, "ada", state(tick, chars))
        assert read_state(tmp_path, "ada", before_tick=tick + 1) == state(tick, chars)
        assert read_state(tmp_path, "ada", before_tick=tick).tick == (tick - 1 or -1)


@pytest.mark.parametrize("chars", [0, 5_000])
def test_the_same_state_twice_is_one_line(tmp_path: Path, chars: int) -> None:
    for tick in (1, 2, 2):
        write_state(tmp_path, "ada", state(tick, chars))
    assert len((tmp_path / LEDGER).read_bytes().splitlines()) == 2


@pytest.mark.parametrize("kept", [1, 4_500, 9_000])
def test_a_torn_last_line_is_passed_over_and_cut_off(tmp_path: Path, kept: int) -> None:
    for tick in (1, 2):
        write_state(tmp_path, "ada", state(tick, 10_000))
    whole = (tmp_path / LEDGER).read_bytes()
    (tmp_path / LEDGER).write_bytes(whole + whole[:kept])
    assert read_state(tmp_path, "ada").tick == 2
    write_state(tmp_path, "ada", state(3))
    assert (tmp_path / LEDGER).read_bytes().startswith(whole + b'{"tick":3,')


@pytest.mark.parametrize("hole", [slice(0, 64), slice(20, 60), slice(-40, -2)])
def test_a_last_line_with_a_hole_is_cut_off_when_the_interrupted_turn_is_written(tmp_path: Path, hole: slice) -> None:
    for tick in (1, 2):
        write_state(tmp_path, "ada", state(tick))
    whole = (tmp_path / LEDGER).read_bytes()
    line = bytearray(whole.splitlines(keepends=True)[1])
    line[hole] = bytes(len(line[hole]))
    (tmp_path / LEDGER).write_bytes(whole[: -len(line)] + line)
    assert read_state(tmp_path, "ada", before_tick=2) == state(1)
    write_state(tmp_path, "ada", state(2))
    assert (tmp_path / LEDGER).read_bytes() == whole


def test_a_line_of_the_same_tick_that_says_something_else_is_replaced(tmp_path: Path) -> None:
    for content in (state(1), state(2, 10), state(2, 5_000), state(2)):
        write_state(tmp_path, "ada", content)
    assert read_state(tmp_path, "ada") == state(2)
    assert len((tmp_path / LEDGER).read_bytes().splitlines()) == 2


def test_edits_of_one_size_between_turns_are_seen_also_in_one_instant(tmp_path: Path) -> None:
    ledger = tmp_path / LEDGER
    for tick in range(100, 200):
        write_state(tmp_path, "ada", state(tick))
        assert read_state(tmp_path, "ada", before_tick=tick + 1).turns == 0
        ledger.write_text(ledger.read_text().replace('"turns":0', '"turns":7'))
        assert read_state(tmp_path, "ada", before_tick=tick + 1).turns == 7
        with ledger.open("a") as file:
            file.write('{"tick":3')
        write_state(tmp_path, "ada", state(tick + 1))
        assert b'"tick":3' not in ledger.read_bytes()
        ledger.unlink()
        assert read_state(tmp_path, "ada").tick == -1


def test_an_edit_by_hand_of_the_last_line_is_read(tmp_path: Path) -> None:
    write_state(tmp_path, "ada", state(1))
    text = (tmp_path / LEDGER).read_text()
    (tmp_path / LEDGER).write_text(text.replace('"turns":0', '"turns":7'))
    assert read_state(tmp_path, "ada").turns == 7
    (tmp_path / LEDGER).write_text(text)
    assert read_state(tmp_path, "ada").turns == 0


def test_a_line_that_ends_like_the_last_one_is_another_line(tmp_path: Path) -> None:
    write_state(tmp_path, "ada", state(1))
    (tmp_path / LEDGER).write_text("x" + (tmp_path / LEDGER).read_text())
    with pytest.raises(CorruptState, match="the last line must be a turn"):
        read_state(tmp_path, "ada")


def test_agents_of_two_organisations_with_one_name_have_their_own_states(tmp_path: Path) -> None:
    for tick, base in enumerate((tmp_path / "one", tmp_path / "two"), 1):
        base.mkdir()
        write_state(base, "ada", state(tick))
    assert [read_state(tmp_path / org, "ada").tick for org in ("one", "two")] == [1, 2]
