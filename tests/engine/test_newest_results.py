"""How many results of calls the next turn is shown: the newest that a prompt has room for."""

from __future__ import annotations

from typing import Any

import pytest

from lemming.kernel.turn.tool_results import RESULTS_CHARS
from lemming.kernel.turn.turn_end import newest_results


def results(*lengths: int) -> tuple[dict[str, Any], ...]:
    return tuple({"number": number, "output": "x" * length} for number, length in enumerate(lengths))


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [
        ((), []),
        ((1, 2), [0, 1]),
        ((RESULTS_CHARS - 2, 2), [0, 1]),
        ((RESULTS_CHARS - 1, 2), [1]),
        ((1, RESULTS_CHARS - 2, 2), [1, 2]),
        ((1, 1, RESULTS_CHARS), [2]),
        ((1, RESULTS_CHARS + 1), []),
    ],
)
def test_the_newest_results_are_kept_that_fit(lengths: tuple[int, ...], kept: list[int]) -> None:
    assert [it["number"] for it in newest_results(results(*lengths))] == kept
