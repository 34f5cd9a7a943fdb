"""Who raises a limit, and by what: a person who may read the agent, and whom it may read; by an amount."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_more import asking, calls, decide, requests

from lemming.cli import run
from lemming.kernel.base.jsontext import dump_pretty, parse
from lemming.kernel.files import fs
from lemming.kernel.files.fast_decoder import MAX_AMOUNT


def stop_reading(base: Path, reader: str) -> None:
    file = f"agents/{reader}/resume.json"
    plain = parse((base / file).read_bytes())
    fs.write_atomic(base, file, dump_pretty({**plain, "permissions": {"read_outboxes": []}}))


def stop_being_a_person(base: Path, name: str) -> None:
    file = f"agents/{name}/resume.json"
    plain = parse((base / file).read_bytes())
    fs.write_atomic(
        base, file, dump_pretty({**plain, "model": {"key": "scripted"}, "schedule": {"run_every_n_ticks": 999}})
    )


@pytest.mark.parametrize(
    ("change", "who"), [(stop_reading, "human"), (stop_reading, "ada"), (stop_being_a_person, "human")]
)
def test_only_a_person_decides_whom_the_agent_and_who_may_read_each_other(base: Path, change: Any, who: str) -> None:
    asking(base, credits=1, per="agent")
    assert calls(base, 2) == [1, 0]
    decide(base, requests(base)[0], "approve")
    change(base, who)
    assert calls(base, 2) == [0, 0]


@pytest.mark.parametrize("amount", [-3, 0, -0.5, MAX_AMOUNT * 2, "3", True, None, [3]])
def test_what_is_no_amount_raises_nothing(base: Path, amount: Any) -> None:
    asking(base, credits=1, per="agent")
    assert calls(base, 2) == [1, 0]
    decide(base, requests(base)[0], "approve", args={"credits": amount})
    assert calls(base, 2) == [0, 0]
    assert len(requests(base)) == 2  # it is asked about anew


@pytest.mark.parametrize("amount", ["-3", "0", "much", "true"])
def test_a_command_takes_no_amount_that_is_none(base: Path, amount: str, capsys: pytest.CaptureFixture[str]) -> None:
    asking(base, credits=1, per="agent")
    calls(base, 2)
    (request,) = requests(base)
    assert run(["-C", str(base), "approve", request.id, "--edit", f"credits={amount}"]) == 2
    assert "credits" in capsys.readouterr().err


def test_an_amount_that_is_edited_counts_in_place_of_the_one_that_was_asked_for(base: Path) -> None:
    asking(base, credits=2, per="agent")
    assert calls(base, 3) == [1, 1, 0]
    (request,) = requests(base)
    assert run(["-C", str(base), "approve", request.id, "--edit", "credits=1"]) == 0
    assert calls(base, 2) == [1, 0]
