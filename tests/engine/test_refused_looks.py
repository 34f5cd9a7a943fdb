"""A look that the disk refuses is no proof that nothing is there: the tick stops, and goes on afterwards."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_injection import fail_nth_lookup
from parts import by_hand
from refused import asked_with_each_look_refused, run_with_each_look_refused

from lemming.engine import run_once
from lemming.kernel.agents import load_agent
from lemming.kernel.base.errors import ConfigError, DiskError
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.journal.journal_file import Journal, last_record, load_tick_started, read_journal
from lemming.kernel.journal.journal_records import TickStarted
from lemming.kernel.journal.ledger import AgentState, write_state
from lemming.kernel.journal.open_requests import OpenRequest, SubRequest
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.context_builder import build_tick_context
from lemming.kernel.tick.firing_plan import PauseCheck
from lemming.kernel.tick_context import TickContext
from lemming.obligations.request_deadlines import DeadlineExtensions
from lemming.operations.pending_work import find_pending_work, is_stalled, restrict_to_pending_work
from lemming.operations.turns.running_tick import find_refused_paths
from lemming.testing import FrozenClock, make_org, resume, say

PLACES = (
    "agents/ada/resume.json",
    "agents/bob/turns.jsonl",
    "agents/bob/memory",
    "agents/ada/outbox",
    "config/org.json",
    "config/models.json",
    "tick.json",
)


@pytest.fixture
def org(base: Path) -> Path:
    remembering = say("news", memory_updates=[{"key": "last", "value": 1}])
    agents = resume("ada"), resume("bob", permissions={"read_outboxes": ["ada"]})
    make_org(base, *agents, org={"max_parallel": 1}, script=[{"reply": remembering}])
    run_once(base, clock=FrozenClock())
    return base


@pytest.mark.sample(7)
@pytest.mark.parametrize("refusal", [errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE])
@pytest.mark.parametrize("place", PLACES)
def test_a_refused_look_stops_the_tick_or_changes_nothing(org: Path, place: str, refusal: int) -> None:
    run_with_each_look_refused(org, refusal, lambda look: look.endswith(f" {place}"))


@pytest.mark.parametrize("refusal", [errno.EIO, errno.EMFILE])
def test_a_journal_that_the_disk_refuses_to_show_is_the_disks_trouble(org: Path, refusal: int) -> None:
    for look in (read_journal, last_record, load_tick_started):
        with fail_nth_lookup(org, 1, refusal) as looks, pytest.raises(DiskError):
            look(org, 1)
        assert looks == ["open logs/ticks/00000001.jsonl"]


@pytest.mark.parametrize("refusal", [errno.EIO, errno.EMFILE])
def test_a_refused_look_of_a_file_tool_is_never_a_result(base: Path, refusal: int) -> None:
    access = {"allow_read": ["./workspace", "./shared"], "allow_write": ["./workspace", "./shared"]}
    tools = ["file_read", "file_write", "file_list", "file_search"]
    calls = [
        {"tool": "file_read", "args": {"path": "shared/x.txt"}},
        {"tool": "file_write", "args": {"path": "shared/y.txt", "content": "y"}},
        {"tool": "file_list", "args": {"path": "shared"}},
        {"tool": "file_search", "args": {"text": "x"}},
    ]
    ada = resume("ada", permissions={"read_outboxes": [], "tools": tools, "file_access": access})
    make_org(base, ada, org={"durability": "off"}, script=[{"reply": say("", tool_calls=calls)}])
    for place in ("shared", "agents/ada/workspace"):
        (base / place).mkdir(parents=True, exist_ok=True)
        (base / place / "x.txt").write_text("x")
    about = ("shared", "workspace", "x.txt", "y.txt")
    run_with_each_look_refused(base, refusal, lambda look: look.split("/")[-1].endswith(about))


@pytest.mark.parametrize("refusal", [errno.EIO, errno.EMFILE])
def test_a_refused_look_keeps_no_file_of_a_turn_from_being_written(base: Path, refusal: int) -> None:
    access = {"allow_read": ["./shared"], "allow_write": ["./shared"]}
    ada = resume("ada", permissions={"tools": ["file_write"], "file_access": access})
    calls = [{"tool": "file_write", "args": {"path": f"shared/{name}.txt", "content": "y"}} for name in "ab"]
    make_org(base, ada, script=[{"reply": say("", tool_calls=calls)}])
    run_once(base, clock=FrozenClock())
    tick_context, records = build_tick_context(Organisation(base), load_config(base), 2), read_journal(base, 1)
    agent = tick_context.survey.agents["ada"]
    refused = asked_with_each_look_refused(base, refusal, lambda: find_refused_paths(tick_context, agent, records))
    assert refused == {}


@pytest.mark.parametrize("refusal", [errno.EIO, errno.EMFILE])
def test_a_refused_look_leaves_nothing_to_go_on_with_undone(base: Path, refusal: int) -> None:
    person = resume("human", model={"key": "human"}, permissions={"read_outboxes": ["*"]})
    one = {"permissions": {"read_outboxes": ["human"]}, "turn": {"take": "one"}}
    ada = resume("ada", schedule={"wake": "addressed"}, **one)
    bob = resume("bob", schedule={"wake": "addressed", "run_every_n_ticks": 5}, **one)
    make_org(base, ada, bob, person, models={"human": {"provider": "human"}})
    by_hand(base, "human", 2, "more", kind="request", text="and this", target="ada")
    waits = SubRequest(request="bob/00000001_0123456789ab", to="human", until=9)
    begun = OpenRequest(request="human/00000000_x", asked=(waits,), enough=(1,), turns=1, stands_still=True)
    write_state(base, "bob", AgentState(tick=1, requests=(begun,)))

    def now() -> TickContext:
        org = Organisation(base)
        return build_tick_context(org, load_config(org), 3)

    asks: dict[str, Callable[[], object]] = {
        "who goes on": lambda: find_pending_work(now()).due_now,
        "at once": lambda: restrict_to_pending_work(now()).plan.at_once,
        "stands still": lambda: is_stalled(Organisation(base), "bob"),
    }
    found = {name: asked_with_each_look_refused(base, refusal, ask) for name, ask in asks.items()}
    assert found == {"who goes on": ["ada"], "at once": True, "stands still": True}


@pytest.mark.parametrize("refusal", [errno.EIO, errno.EMFILE])
def test_a_refused_look_makes_nobody_wait_for_a_person_less_long(base: Path, refusal: int) -> None:
    make_org(base, resume("ada"))
    for tick in (1, 2, 3):
        with Journal(base, tick, epoch=1, durability="off") as journal:
            journal.append(TickStarted(at="2026-01-01T00:00:00Z", tick=tick, order=["ada"], at_once=tick < 3))

    def last_tick() -> int:
        return DeadlineExtensions(Organisation(base)).extend_last_tick(0, 1, current_tick=4)

    assert asked_with_each_look_refused(base, refusal, last_tick) == 3


@pytest.mark.parametrize("refusal", [errno.EIO, errno.EMFILE])
def test_a_refused_look_passes_over_no_pause(base: Path, refusal: int) -> None:
    make_org(base, resume("ada"))
    org = Organisation(base)
    tick_context = build_tick_context(org, load_config(org), 1)
    (base / "agents/ada/resume.json").write_bytes(dump_pretty(resume("ada", paused="not now")))
    assert "not now" in asked_with_each_look_refused(
        base, refusal, lambda: tick_context.get_cache(PauseCheck).pause_reason("ada")
    )


@pytest.mark.parametrize("refusal", [errno.EIO, errno.EMFILE])
def test_a_refused_look_makes_no_folder_of_its_own_of_a_link(base: Path, refusal: int) -> None:
    make_org(base, resume("ada"))
    (base / "agents/ada").rename(base / "elsewhere")
    (base / "agents/ada").symlink_to("../elsewhere")

    def why() -> str:
        try:
            return load_agent(Organisation(base), "ada").title
        except ConfigError as error:
            return error.message

    assert "link" in asked_with_each_look_refused(base, refusal, why)
