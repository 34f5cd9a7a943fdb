"""Entries that wait for a moment: nobody is shown them before, and then they are new to whom they are for."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import list_replayable_ticks, replay_into, replay_ticks
from lemming.journal_tools.verify.file_verification import verify_org
from lemming.kernel.base.clock import timestamp
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.messages import list_outbox
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.libraries.outbox_files import write_person_entry
from lemming.queries.tick_preview import preview_tick
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say, tree

START = datetime(2026, 11, 23, 8, tzinfo=UTC)
QUIET = {"run_every_n_ticks": 1, "wake": "changed"}


class Watched:
    """An organisation with a person, whose clock a test moves: held as by an engine that runs on."""

    def __init__(self, base: Path, *resumes: dict[str, Any], **more: Any) -> None:
        human = resume("human", model={"key": "human"})
        self.base, self.clock = make_org(base, human, *resumes, **more), FrozenClock(START)
        self.org, self.number = Organisation(base), 0

    def send(self, text: str, *, hours: float, to: str | None = None, at_tick: int = 1) -> str:
        moment = timestamp(START + timedelta(hours=hours))
        payload = {"text": text, "not_before": moment} | ({"target": to} if to else {})
        return write_person_entry(
            self.base, "human", tick=at_tick, kind="message", payload=payload, tags=[], created_at=""
        ).id

    def tick(self, *, hours: float = 0) -> dict[str, list[str]]:
        """Run a tick so much later; return the ids of what was new to those who took a turn."""
        self.clock.advance(hours * 3600)
        report = run_once(self.org, clock=self.clock)
        self.number = report.tick
        lines = journal_lines(self.base, report.tick) if not report.is_quiet else []
        return {line["agent"]: line["entries"] for line in lines if line["type"] == "turn_started"}

    def prompt(self, agent: str) -> str:
        lines = journal_lines(self.base, self.number)
        started = next(it for it in lines if it["type"] == "turn_started" and it["agent"] == agent)
        return str(started["prompt"][-1]["content"])


def test_an_entry_is_new_to_its_target_in_the_first_tick_at_or_after_its_moment(base: Path) -> None:
    script = [{"reply": say("x", outbox_entries=[])}]
    org = Watched(base, resume("ada", schedule=QUIET), resume("bob", schedule=QUIET), script=script)
    org.tick()
    waits = org.send("at ten", hours=2, to="ada", at_tick=2)
    assert org.tick(hours=1) == {}
    assert org.tick(hours=1) == {"ada": [waits]}
    assert org.tick(hours=1) == {}


def test_later_entries_of_the_same_author_do_not_make_it_count_as_seen(base: Path) -> None:
    org = Watched(base, resume("ada"))
    waits = org.send("at ten", hours=2)
    for number in range(1, 4):
        said = write_person_entry(
            base, "human", tick=number, kind="message", payload={"text": "now"}, tags=[], created_at=""
        )
        assert org.tick()["ada"] == [said.id]
        assert "at ten" not in org.prompt("ada")
    assert org.tick(hours=2)["ada"] == [waits]
    assert org.tick()["ada"] == []
    assert "at ten" in org.prompt("ada")  # it knows it now


def test_everybody_who_may_read_it_is_shown_it_when_it_is_for_all(base: Path) -> None:
    of_human = {"read_outboxes": ["human"]}
    org = Watched(base, resume("ada", permissions=of_human), resume("bob", permissions=of_human))
    waits = org.send("at ten", hours=2)
    assert org.tick() == {"ada": [], "bob": []}
    assert org.tick(hours=2) == {"ada": [waits], "bob": [waits]}


def test_a_clock_set_back_shows_nothing_a_second_time(base: Path) -> None:
    org = Watched(base, resume("ada"))
    waits = org.send("at ten", hours=2)
    assert org.tick(hours=2)["ada"] == [waits]
    assert org.tick(hours=-1)["ada"] == []
    assert org.tick(hours=1)["ada"] == []
    assert org.tick(hours=1)["ada"] == []


def test_an_entry_by_hand_waits_too_and_a_moment_that_is_none_holds_nothing_up(base: Path) -> None:
    org = Watched(base, resume("ada"))
    for ident, moment in (("hand1", "2026-11-23T11:00+01:00"), ("hand2", "tomorrow")):
        payload = {"text": ident, "not_before": moment}
        entry = {"id": ident, "tick": 1, "agent": "human", "kind": "message", "payload": payload}
        file = f"agents/human/outbox/00000001_{ident}.json"
        fs.write_atomic(base, file, dump_pretty({**entry, "tags": [], "created_at": ""}))
    assert org.tick()["ada"] == ["hand2"]
    assert org.tick(hours=2)["ada"] == ["hand1"]


def test_an_agent_may_write_what_another_is_to_see_later(base: Path) -> None:
    moment = timestamp(START + timedelta(hours=2))
    later = {"kind": "message", "payload": {"text": "later", "target": "bob", "not_before": moment}, "tags": []}
    script = [
        {"agent": "ada", "tick": 1, "reply": say("x", outbox_entries=[later])},
        {"reply": say("x", outbox_entries=[])},
    ]
    org = Watched(base, resume("ada"), resume("bob", schedule=QUIET), script=script)
    assert org.tick() == {"ada": [], "bob": []}
    assert org.tick(hours=1) == {"ada": []}
    [written] = list_outbox(base, "ada")
    assert org.tick(hours=1) == {"ada": [], "bob": [written.id]}


def remind(**args: str) -> dict[str, Any]:
    return say("x", outbox_entries=[], tool_calls=[{"tool": "remind_me", "args": {"text": "call Bo", **args}}])


def reminded(base: Path, *, wake: str = "changed", **args: str) -> Watched:
    script = [{"agent": "ada", "tick": 1, "reply": remind(**args)}, {"reply": say("x", outbox_entries=[])}]
    ada = resume("ada", schedule={"wake": wake}, permissions={"read_outboxes": [], "tools": ["remind_me"]})
    return Watched(base, ada, script=script, org={"timezone": "Europe/Berlin"})


@pytest.mark.parametrize("args", [{"at": "11:00"}, {"after": "2h"}, {"at": "today 11:00"}])
def test_an_agent_reminds_itself_and_wakes_for_it(base: Path, args: dict[str, str]) -> None:
    org = reminded(base, **args)
    org.tick()
    [entry] = list_outbox(base, "ada")
    result = journal_lines(base, 1)[3]
    assert "you will be reminded on Mon 23 Nov 2026 11:00 CET" in result["output"]
    assert [org.tick(hours=0.5) for _ in range(3)] == [{}, {}, {}]
    assert org.tick(hours=0.5) == {"ada": [entry.id]}
    assert "call Bo" in org.prompt("ada")
    assert [org.tick(hours=0.5) for _ in range(3)] == [{}, {}, {}]


def test_a_reminder_is_shown_once_as_new_and_not_before_among_the_agents_own_latest(base: Path) -> None:
    org = reminded(base, wake="always", after="2h")
    org.tick()
    org.tick()
    assert "call Bo" not in org.prompt("ada").replace("remind_me", "").partition("# Results")[0]
    [entry] = list_outbox(base, "ada")
    assert org.tick(hours=2) == {"ada": [entry.id]}
    assert org.tick(hours=1) == {"ada": []}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({}, "name either at or after"),
        ({"at": "10:00", "after": "1h"}, "name either at or after"),
        ({"at": "yesterday"}, 'expected a time, got "yesterday" (write "tomorrow 9:00"'),
        ({"after": "soon"}, 'expected a duration, got "soon" (write 90s'),
        ({"at": "2026-11-23T08:00Z"}, "has passed; it is Mon 23 Nov 2026 09:00 CET"),
        ({"after": "400d"}, "is more than 366 days ahead"),
    ],
)
def test_a_reminder_that_cannot_be_is_refused_in_words(base: Path, args: dict[str, str], says: str) -> None:
    org = reminded(base, **args)
    org.tick()
    result = next(line for line in journal_lines(base, 1) if line["type"] == "tool_finished")
    assert not result["success"]
    assert says in result["output"]
    assert list_outbox(base, "ada") == []


def test_only_so_many_reminders_may_wait(base: Path) -> None:
    calls = [{"tool": "remind_me", "args": {"text": f"{n}", "after": "1h"}} for n in range(3)]
    script = [{"reply": say("x", outbox_entries=[], tool_calls=calls)}]
    ada = resume("ada", permissions={"tools": ["remind_me"]})
    org = Watched(base, ada, script=script, org={"reminders": {"max_open": 2}})
    org.tick()
    assert len(list_outbox(base, "ada")) == 2
    assert "2 reminders are waiting" in journal_lines(base, 1)[5]["output"]
    org.tick(hours=1)
    assert len(list_outbox(base, "ada")) == 4


def test_an_entry_that_waits_outlives_its_retention_which_counts_from_its_moment(base: Path) -> None:
    org = Watched(base, resume("ada"), org={"retention_ticks": 3})
    waits = org.send("at ten", hours=2)
    file = base / f"agents/human/outbox/00000001_{waits}.json"
    for _ in range(8):
        org.tick()
    assert file.exists()
    assert org.tick(hours=2)["ada"] == [waits]
    for _ in range(3):
        org.tick()
        assert file.exists()
    org.tick()
    assert not file.exists()


def test_the_next_prompt_of_a_preview_shows_what_is_due_by_now(base: Path) -> None:
    org = Watched(base, resume("ada"))
    org.send("long ago", hours=-24)
    org.send("in a hundred years", hours=24 * 36_500)
    prompt = preview_tick(base, load_config(base)).build_prompt("ada").inputs.prompt[-1]["content"]
    assert "long ago" in prompt
    assert "hundred years" not in prompt


def test_replay_and_a_run_on_a_copy_agree(base: Path, tmp_path: Path) -> None:
    org = reminded(base, after="2h")
    org.send("at nine", hours=1)
    for _ in range(6):
        org.tick(hours=0.5)
    assert not verify_org(base).findings
    ticks = list_replayable_ticks(base, None)
    assert list(replay_ticks(base, ticks))
    assert list(replay_into(base, tmp_path / "again", ticks))
    assert tree(tmp_path / "again") == tree(base)


def test_what_nobody_uses_leaves_no_key_in_a_ledger_or_journal(base: Path) -> None:
    org = Watched(base, resume("ada"))
    org.tick()
    assert "not_before" not in json.dumps(journal_lines(base, 1))
