"""Whatever somebody writes into a journal, a look at it says what is wrong, and shows the other ticks."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from test_cost import busy

from lemming.engine import run_once
from lemming.kernel.journal.journal_file import journal_ticks, raw_journal
from lemming.read_model import read_model
from lemming.read_model.tick_rows import fold_tick_rows, insert_tick, restore_turn


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The journal of a tick with several turns."""
    base = busy(tmp_path_factory.mktemp("edited") / "org")
    run_once(base)
    return raw_journal(base, journal_ticks(base)[-1])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"task":null', b'"task":{"request":{"a":1}}'),
        (b'"tick_started",', b'"tick_started","after":1000000000000000000000,'),
        (b'"at":"', b'"at":"x'),
    ],
)
def test_a_value_of_a_wrong_type_is_a_problem_of_its_tick(journal: bytes, before: bytes, after: bytes) -> None:
    raw = journal.replace(b',"after":', b',"before":')
    raw = raw.replace(b'"type":"turn_started",', b'"type":"turn_started","task":null,') if b"task" in before else raw
    rows = fold_tick_rows(2, raw.replace(before, after))
    assert "problem" in rows.tick[-1]
    insert_tick(read_model._connect(":memory:"), "journal", rows)


WRONG_VALUES: list[Any] = [None, 5, -1, 10**30, 1e308, "x", "", [], {}, [1], [[1]], {"a": 1}, True, "../x", [None]]


def list_places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places in a JSON value."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*place, key)
        yield from list_places(value[key], (*place, key))


def test_whatever_a_hand_edit_leaves_in_a_line_can_be_looked_at(journal: bytes) -> None:
    connection, choice, problems = read_model._connect(":memory:"), random.Random(4), 0
    whole = f"[{','.join(journal.decode().splitlines())}]"
    places = [place for place in list_places(json.loads(whole)) if 1 < len(place) < 5]
    for _ in range(400):
        lines, place = json.loads(whole), choice.choice(places)
        target = lines
        for key in place[:-1]:
            target = target[key]
        target[place[-1]] = choice.choice(WRONG_VALUES)
        rows = fold_tick_rows(2, "".join(f"{json.dumps(line)}\n" for line in lines).encode())
        insert_tick(connection, "journal", rows)
        for agent, request, *texts in connection.execute("SELECT agent, request, costs, facts, report FROM turn"):
            assert restore_turn(agent, request, *map(json.loads, texts)).final_ledger.credits >= 0, place
        problems += "problem" in rows.tick[-1]
        read_model.remove_source(connection, "journal")
    assert 80 < problems < 400
