"""What turns start from stands in the journals once a segment, and is read back whole."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once, ticks
from lemming.kernel.base.errors import CorruptState
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.journal.journal_file import read_journal
from lemming.kernel.journal.journal_records import TurnStarted
from lemming.testing import Crash, FrozenClock, crash_at, make_org, resume, say

LONG = "The harbour welcomed twelve fishing boats on Monday, and the mayor came to see them all."


def make(base: Path, **org: Any) -> Path:
    answers = [{"agent": name, "reply": say(f"{name}: {LONG}")} for name in ("ada", "bob")]
    make_org(base, resume("ada"), resume("bob"), script=answers, org=org or None)
    return base


def lines_of(base: Path, tick: int) -> list[dict[str, Any]]:
    """Return the lines of a journal as they stand in the file."""
    raw = (base / f"logs/ticks/{tick:08d}.jsonl").read_bytes()
    return [json.loads(line) for line in raw.splitlines()]


def start_of(base: Path, tick: int, agent: str) -> TurnStarted:
    """Return what one turn started from."""
    found = (r for r in read_journal(base, tick) if isinstance(r, TurnStarted) and r.agent == agent)
    return next(found)


def prompts_of(base: Path, last: int) -> list[tuple[str, list[dict[str, str]]]]:
    records = (record for tick in range(1, last + 1) for record in read_journal(base, tick))
    return [(record.agent, record.prompt) for record in records if isinstance(record, TurnStarted)]


def run(base: Path, count: int) -> None:
    """Run so many ticks in one engine."""
    for _ in ticks(base, interval_s=0, max_ticks=count, clock=FrozenClock()):
        pass


def test_a_line_that_many_prompts_show_stands_in_the_journals_once(base: Path) -> None:
    run(make(base), 5)
    raw = b"".join((base / f"logs/ticks/{tick:08d}.jsonl").read_bytes() for tick in range(1, 6))
    shown = sum(text.count(LONG) for _, prompt in prompts_of(base, 5) for text in [prompt[-1]["content"]])
    situations = [line["situation"] for tick in range(1, 6) for line in lines_of(base, tick) if "situation" in line]
    assert shown > 20
    assert sum(json.dumps(part).count(LONG) for parts in situations for part in parts) < 10
    assert raw.count(b"You are ada, ") == 1


def test_the_same_prompts_are_read_back_whether_one_engine_ran_or_each_tick_had_its_own(
    base: Path, tmp_path: Path
) -> None:
    run(make(base), 4)
    other = make(tmp_path / "other")
    for _ in range(4):
        run_once(other, clock=FrozenClock())
    assert prompts_of(base, 4) == prompts_of(other, 4)
    assert "opening" not in {type(line.get("opening")) for line in lines_of(other, 4)}
    assert all(isinstance(line["opening"], dict) for line in lines_of(other, 4) if "opening" in line)


def test_an_agent_whose_resume_changes_is_spelled_out_again(base: Path) -> None:
    make(base)
    plain = json.loads((base / "agents/ada/resume.json").read_bytes())
    for report in ticks(base, interval_s=0, max_ticks=3, clock=FrozenClock()):
        if report.tick == 2:
            changed = {**plain, "instructions": "You are ada, and brief."}
            fs.write_atomic(base, "agents/ada/resume.json", dump_pretty(changed))
    openings = [
        line["opening"]
        for tick in (1, 2, 3)
        for line in lines_of(base, tick)
        if line.get("agent") == "ada" and "opening" in line
    ]
    assert [type(opening) for opening in openings] == [dict, int, dict]
    assert "and brief" in start_of(base, 3, "ada").prompt[0]["content"]


def test_a_new_segment_refers_to_nothing_before_it(base: Path) -> None:
    make(base)
    fs.write_atomic(base, "tick.json", dump_pretty({"current_tick": 98}))
    run(base, 4)
    for tick in (100, 101):
        for line in lines_of(base, tick):
            places = [part for part in line.get("situation", []) if isinstance(part, list)]
            assert all(at >= 100 for part in places for at in part[::2])
    assert all(isinstance(line["opening"], dict) for line in lines_of(base, 100) if "opening" in line)


@pytest.mark.parametrize("number", range(3, 24, 4))
def test_a_turn_that_was_cut_off_is_taken_from_the_prompt_it_had(base: Path, tmp_path: Path, number: int) -> None:
    run(make(tmp_path / "whole"), 5)
    engine = ticks(make(base), interval_s=0, max_ticks=5, clock=FrozenClock())
    for _ in range(3):
        next(engine)
    with pytest.raises(Crash), crash_at(number):
        next(engine)
    run(base, 2)
    assert prompts_of(base, 5) == prompts_of(tmp_path / "whole", 5)


def test_a_journal_that_is_gone_costs_what_later_ones_refer_to_and_no_tick(base: Path) -> None:
    run(make(base), 3)
    (base / "logs/ticks/00000001.jsonl").unlink()
    started = start_of(base, 3, "ada")
    assert started.state["turns"] == 2  # what it says itself is there
    with pytest.raises(CorruptState, match=r"logs/ticks/00000001\.jsonl, which is missing or damaged"):
        _ = started.prompt
    run(base, 2)
    assert start_of(base, 5, "ada").prompt


@pytest.mark.parametrize(
    ("situation", "opening"),
    [
        ([[1, 99]], 1),
        ([[1, -1]], 1),
        ([[9, 0]], 1),
        ([["1", 0]], 1),
        ([[1]], 7),
        (["text"], {}),
        (["text"], {"prompt": "no list"}),
    ],
)
def test_places_that_nobody_wrote_are_refused_when_they_are_asked_for(
    base: Path, situation: list[Any], opening: Any
) -> None:
    from lemming.kernel.journal.checksums import close_line

    run(make(base), 2)
    file, check, forged = base / "logs/ticks/00000002.jsonl", b"", b""
    for line in lines_of(base, 2):
        plain = {key: value for key, value in line.items() if key != "check"}
        if plain["type"] == "turn_started":
            plain |= {"situation": situation, "opening": opening}
        raw, check = close_line(json.dumps(plain).encode()[:-1], check)
        forged += raw
    file.write_bytes(forged)
    with pytest.raises(CorruptState, match="cannot be rebuilt"):
        _ = start_of(base, 2, "ada").prompt


def test_secrets_are_in_no_journal_and_the_prompt_is_there_whole(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-" + "q1w2e3r4" * 4)
    secret = "sk-" + "q1w2e3r4" * 4
    make_org(base, resume("ada", instructions=f"Say {LONG} {secret}"), script=[{"reply": say(LONG)}])
    run(base, 2)
    assert secret.encode() not in (base / "logs/ticks/00000002.jsonl").read_bytes()
    assert re.search("Say The harbour", start_of(base, 2, "ada").prompt[0]["content"])
