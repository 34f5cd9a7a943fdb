"""Ticks, crashes and people in any order: what must hold holds after every step.

Hypothesis looks for an order of events that breaks an invariant, and shows the shortest it finds.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import ClassVar

import pytest
from fault_injection import (
    POWER_LOSS,
    CrashPoint,
    End,
    Image,
    fail_nth_change,
    restore_image,
    take_image,
    watch_crash_points,
)
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sampling import EVERYTHING
from trial import torn_files

from lemming.capabilities.scripted_models.scripted_provider import ScriptedProvider
from lemming.engine import load_tick, run_once
from lemming.kernel.base.errors import AuthenticationFailed, DiskError, OrgBusy
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.journal.journal_file import journal_ticks
from lemming.kernel.journal.turn_report import TickReport, TurnReport
from lemming.kernel.messages import entry_id, list_outbox
from lemming.kernel.providers import Reply, Request, register_provider
from lemming.libraries.outbox_files import write_person_entry
from lemming.operations.open_org import open_org
from lemming.testing import SCRIPT_FILE, Crash, FrozenClock, crash_at, journal_lines, make_org, resume, say

pytestmark = pytest.mark.crash

NAMES = st.sampled_from(["ada", "bob", "eve"])
ANSWERS = ("model_replied", "model_failed")
# Why a turn may fail here: the backend was told to, a resume was broken, the world ended in it three times.
REASONS = {"AuthenticationFailed", "ConfigError", "Interrupted", "Unusable"}


class Moody(ScriptedProvider):
    """A scripted model that counts its calls, and fails as often as it was told to."""

    calls: ClassVar[int] = 0
    failures: ClassVar[int] = 0

    def complete(self, request: Request) -> Reply:
        Moody.calls += 1
        if Moody.failures:
            Moody.failures -= 1
            raise AuthenticationFailed("not today")
        return super().complete(request)


register_provider("moody", Moody)


class Life(RuleBasedStateMachine):
    """An organisation, its people, and everything that may happen to it."""

    @initialize()
    def begin(self) -> None:
        self.above = Path(mkdtemp(prefix="lemming-life-"))
        self.base = make_org(
            self.above / "org",
            resume("ada"),
            resume("bob", schedule={"run_every_n_ticks": 2, "wake": "changed"}),
            resume("human", model={"key": "human"}),
            org={"retention_ticks": 0, "max_parallel": 1},
            models={"scripted": {"provider": "moody", "options": {"file": SCRIPT_FILE}}},
            script=[{"reply": say("hello", memory_updates=[{"key": "last", "value": 1}])}],
        )
        self.clock, self.boots = FrozenClock(boot_id="boot 0"), 0
        self.ends, self.highest, self.noted = 0, 1, 0
        self.expected: dict[str, set[tuple[int, str]]] = {}
        self.removed: set[str] = set()
        self.by_hand = {
            path: content
            for path, content in take_image(self.base).items()
            if content is not None and path.endswith((".json", ".jsonl"))
        }
        Moody.calls = Moody.failures = 0

    def teardown(self) -> None:
        if hasattr(self, "above"):
            shutil.rmtree(self.above)

    @rule()
    def tick(self) -> None:
        self.note(run_once(self.base, clock=self.clock))

    @rule(number=st.integers(1, 70))
    def crash(self, number: int) -> None:
        with contextlib.suppress(Crash), crash_at(number):
            self.note(run_once(self.base, clock=self.clock))
        self.recover_notes()

    @rule(
        number=st.integers(1, 90),
        end=st.sampled_from([end for end in POWER_LOSS if end != "blocks"]),
        seed=st.integers(0, 3),
        killed_at=st.none() | st.integers(1, 70),
    )
    def power_goes(self, number: int, end: End, seed: int, killed_at: int | None) -> None:
        """The power goes during a tick, which may be one that a killed engine had begun; then it is back."""
        left: list[Image] = []
        failures = Moody.failures

        def hear(point: CrashPoint) -> None:
            if not left:
                left.append(point.image)
            raise Crash

        with (
            contextlib.suppress(Crash),
            watch_crash_points(self.base, end, hear, is_wanted=lambda at: at >= number, seed=seed),
        ):
            if killed_at:
                with contextlib.suppress(Crash), crash_at(killed_at):
                    self.note(run_once(self.base, clock=self.clock))
                if not left:
                    self.recover_notes()
            self.note(run_once(self.base, clock=self.clock))
        if left:
            shutil.rmtree(self.base)
            restore_image(left[0], self.base)
            self.boots += 1
            self.clock.boot_id = f"boot {self.boots}"
            self.noted = min(self.noted, load_tick(self.base) - 1)  # the counter's newest name may be lost
        self.ends += failures - Moody.failures  # a call that failed is not synced: it may be made again
        self.recover_notes()
        self.note(run_once(self.base, clock=self.clock))

    @rule(number=st.integers(1, 70), lasting=st.booleans(), half=st.booleans())
    def disk_is_full(self, number: int, lasting: bool, half: bool) -> None:
        with contextlib.suppress(DiskError), fail_nth_change(number, errno.ENOSPC, lasting=lasting, half=half):
            self.note(run_once(self.base, clock=self.clock))
        self.recover_notes()

    @rule(name=NAMES, how=st.sampled_from(["valid", "torn", "bom", "huge"]), every=st.integers(1, 3))
    def person_edits_a_resume(self, name: str, how: str, every: int) -> None:
        plain = dump_pretty(resume(name, schedule={"run_every_n_ticks": every, "wake": "changed"}))
        edits = {
            "valid": plain,
            "torn": plain[: len(plain) // 2],
            "bom": b"\xef\xbb\xbf" + plain,
            "huge": plain[:-2] + b" " * (300 << 10) + plain[-2:],
        }
        self.put_by_hand(f"agents/{name}/resume.json", edits[how])

    @rule(name=NAMES)
    def agent_goes(self, name: str) -> None:
        shutil.rmtree(self.base / "agents" / name, ignore_errors=True)
        self.by_hand.pop(f"agents/{name}/resume.json", None)
        self.expected.pop(name, None)
        self.removed.add(name)

    @rule()
    @precondition(lambda self: len(self.expected.get("human", ())) < 60)
    def person_sends(self) -> None:
        entry = write_person_entry(
            self.base,
            "human",
            tick=load_tick(self.base),
            kind="request",
            payload={"text": "please"},
            tags=[],
            created_at="",
        )
        self.expected.setdefault("human", set()).add((entry.tick, entry.id))

    @rule(times=st.integers(1, 3))
    def backend_fails(self, times: int) -> None:
        Moody.failures = times

    @rule(seconds=st.floats(-1e6, 1e6))
    def clock_jumps(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def second_engine_tries(self) -> None:
        with open_org(self.base), pytest.raises(OrgBusy):
            run_once(self.base)

    @invariant()
    def no_file_is_torn(self) -> None:
        found = take_image(self.base)
        assert torn_files({path: raw for path, raw in found.items() if path not in self.by_hand}) == []

    @invariant()
    def the_tick_never_goes_down(self) -> None:
        tick = load_tick(self.base)
        assert tick >= self.highest
        self.highest = tick

    @invariant()
    def no_entry_is_lost_or_doubled(self) -> None:
        under_way = load_tick(self.base)
        for folder in (self.base / "agents").iterdir():
            found = {(entry.tick, entry.id) for entry in list_outbox(self.base, folder.name)}
            expected = self.expected.get(folder.name, set())
            assert expected <= found
            if folder.name not in self.removed:  # one made anew may get back what the tick under way recorded
                assert all((tick, ident) in expected or tick == under_way for tick, ident in found)

    @invariant()
    def what_people_wrote_is_theirs(self) -> None:
        for path, content in self.by_hand.items():
            assert (self.base / path).read_bytes() == content, path

    @invariant()
    def no_answer_is_paid_twice(self) -> None:
        records = (record for tick in journal_ticks(self.base) for record in journal_lines(self.base, tick))
        answered = sum(record["type"] in ANSWERS for record in records)
        assert answered <= Moody.calls <= answered + self.ends

    def recover_notes(self) -> None:
        """After an end that may have come between `tick.json` and the report: let the journal report.

        Power loss may bring back a counter that is one behind; the journal says that the tick is over, or
        there is a journal of the tick after it.
        """
        self.ends += 1
        records = journal_lines(self.base, self.noted + 1)
        is_over = bool(records) and (
            records[-1]["type"] == "tick_committed" or journal_ticks(self.base)[-1] > self.noted + 1
        )
        if is_over or load_tick(self.base) > self.noted + 1:
            turns = [TurnReport.from_json(item) for item in records if item["type"] == "turn_committed"]
            self.note(TickReport(tick=self.noted + 1, turns=tuple(turns)))

    def note(self, report: TickReport) -> None:
        """Take down what the tick says that it wrote; a turn that is done has written its one entry."""
        assert report.tick == self.noted + 1
        self.noted = report.tick
        for turn in report.turns:
            was_removed = turn.agent in self.removed and "the agent was removed" in turn.reason
            assert turn.status != "failed" or turn.error in REASONS or was_removed, turn
            if turn.status == "done" and turn.agent != "human":
                entry = (report.tick, entry_id(report.tick, turn.agent, 0))
                assert [item["id"] for item in turn.entries] == [entry[1]]
                if (self.base / "agents" / turn.agent).is_dir():  # of one that has gone it is in the journal only
                    self.expected.setdefault(turn.agent, set()).add(entry)

    def put_by_hand(self, path: str, content: bytes) -> None:
        (self.base / path).parent.mkdir(parents=True, exist_ok=True)
        (self.base / path).write_bytes(content)
        self.by_hand[path] = content


Life.TestCase.settings = settings(
    max_examples=200 if EVERYTHING else 6,
    stateful_step_count=30 if EVERYTHING else 14,
    deadline=None,
    derandomize=not EVERYTHING,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TestLife = Life.TestCase
