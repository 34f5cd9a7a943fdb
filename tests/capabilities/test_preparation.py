"""A capability of somebody else prepares a turn: what makes it due, what it is shown, its prompt and its snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lemming.engine import run_once, ticks
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.journal.turn_report import TurnReport
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.libraries.outbox_files import write_person_entry
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

HEAD = """
from dataclasses import replace
from lemming.ext import *

@register_capability
class Guard(Capability):
    name = "guard"
"""
Take = Callable[..., TurnReport]


@pytest.fixture(autouse=True)
def _for_one_test() -> Iterator[None]:
    yield
    unregister("capability", "guard")


@pytest.fixture
def take(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Take:
    """Returns a function that takes a turn of ada, who reads ben's two entries, with the capability `guard`."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def take_turn(code: str, **own: object) -> TurnReport:
        if not (base / "agents").exists():
            module = f"guard_{base.parent.name}".replace("-", "_")
            (tmp_path / f"{module}.py").write_text(HEAD + code)
            settings = {"plugins": [module], "capabilities": {"guard": {}}}
            ben = resume("ben", schedule={"run_every_n_ticks": 100, "phase_offset": 50})
            make_org(base, resume("ada", **own), ben, org=settings, script=[{"reply": say("seen")}])
            (base / "shared").mkdir(exist_ok=True)
            (base / "shared/weather.txt").write_text("rain")
            for text in ("good news", "SECRET news"):
                at, payload = "2026-01-01T00:00:00Z", {"text": text}
                write_person_entry(base, "ben", tick=0, kind="message", payload=payload, tags=[], created_at=at)
        return next(turn for turn in run_once(base, clock=FrozenClock()).turns if turn.agent == "ada")

    return take_turn


def prompt(base: Path, tick: int = 1) -> str:
    (started,) = (line for line in journal_lines(base, tick) if line["type"] == "turn_started")
    content: str = started["prompt"][-1]["content"]
    return content


DECIDE = """
    handles = ({kinds},)

    def intercept(self, effect, turn):
        return {decision} if "SECRET" in effect.entry.payload["text"] else None
"""


def test_a_deferred_entry_stays_unread_until_it_passes(base: Path, take: Take) -> None:
    code = DECIDE.format(kinds="ReceiveEntry", decision='(Deferred("later") if turn.tick < 2 else None)')
    take(code)
    assert "good news" in prompt(base)
    assert "SECRET" not in prompt(base)
    take(code)
    assert "SECRET news" in prompt(base, 2).split("Entries you have seen before")[0]


def test_a_rejected_entry_is_never_new(base: Path, take: Take) -> None:
    code = DECIDE.format(kinds="ReceiveEntry, ShowEntry", decision='Rejected("no")')
    take(code, schedule={"wake": "changed"})
    assert "good news" in prompt(base)
    assert "SECRET" not in prompt(base)
    take(code)
    assert take(code).status == "skipped"


@pytest.mark.parametrize(
    ("decision", "shown"),
    [
        ('Rejected("no")', ["good news"]),
        ('Rejected("no", is_final=True)', None),
        ("Allowed(replace(effect, entry=replace(effect.entry, payload={'text': 'public news'})))", ["public news"]),
    ],
)
def test_what_is_shown_is_decided_part_by_part(base: Path, take: Take, decision: str, shown: list[str] | None) -> None:
    turn = take(DECIDE.format(kinds="ShowEntry", decision=decision))
    if shown is None:
        assert (turn.status, turn.error) == ("failed", "StoppedByGate")
        return
    assert turn.status == "done"
    assert all(text in prompt(base) for text in shown)
    assert "SECRET" not in prompt(base)


PROMPT = """
    handles = (SelectContext, BuildPrompt, WriteEntry)

    def due(self, turn):
        yield Watch("shared/weather.txt", turn.get_cache(weather))

    def intercept(self, effect, turn):
        if isinstance(effect, SelectContext):
            return (yield replace(effect, sections=(*effect.sections, "Mind the weather.")))
        if isinstance(effect, WriteEntry):
            return None
        return (yield effect.change(time=[*effect.prompt.time, f"Outside: {turn.get_cache(weather)}."]))

    def prepare(self, turn):
        return {"weather": turn.get_cache(weather), "before": turn.state}

    def reduce(self, state, event, turn):
        return {"seen": turn.snapshot["weather"]}

def weather(turn):
    return (turn.org.base / "shared/weather.txt").read_text()
"""


def test_it_adds_to_the_prompt_and_keeps_its_state(base: Path, take: Take) -> None:
    take(PROMPT)
    assert "Outside: rain." in prompt(base)
    (started,) = (line for line in journal_lines(base, 1) if line["type"] == "turn_started")
    assert "Mind the weather." in started["prompt"][0]["content"]
    assert started["given"]["guard"] == {"weather": "rain", "before": {}}
    assert read_state(base, "ada").kept["guard"] == {"seen": "rain"}


def test_a_watched_file_is_news(base: Path, take: Take) -> None:
    own = {"schedule": {"wake": "changed"}}
    take(PROMPT, **own)
    take(PROMPT, **own)
    assert take(PROMPT, **own).status == "skipped"
    (base / "shared/weather.txt").write_text("sun")
    assert take(PROMPT, **own).status == "done"
    assert "Outside: sun." in prompt(base, 4)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "    def prepare(self, turn):\n        return object()\n",
            "must return a JSON object or None, got object",
        ),
        (
            "    def due(self, turn):\n        yield 'now'\n",
            "must yield Wake, Block, Continue or Watch with values of their types, got 'now'",
        ),
        (
            "    handles = (BuildPrompt,)\n    def intercept(self, effect, turn):\n        return Rejected('no')\n",
            "must pass on BuildPrompt, changed or not, got Rejected",
        ),
    ],
)
def test_what_the_kernel_cannot_use_fails_the_turn_in_words(take: Take, code: str, message: str) -> None:
    turn = take(code)
    assert turn.status == "failed"
    assert message in turn.reason


def test_a_reason_of_its_own_wakes_an_agent_without_news(base: Path, take: Take) -> None:
    code = """
    def due(self, turn):
        yield Wake(lambda: turn.tick == 3 and not turn.has_news)
"""
    own = {"schedule": {"wake": "changed"}}
    assert [take(code, **own).status for _ in range(4)] == ["done", "skipped", "done", "skipped"]


def test_an_engine_that_goes_on_asks_again_in_each_tick(base: Path, take: Take) -> None:
    code = """
    handles = (ReceiveEntry,)

    def due(self, turn):
        yield Watch("shared/weather.txt", (turn.org.base / "shared/weather.txt").read_text())
        yield Wake(lambda: turn.tick == 5)

    def intercept(self, effect, turn):
        return Deferred("later") if turn.tick < 8 else None
"""
    take(code, schedule={"wake": "changed"})
    taken = []
    for report in ticks(base, max_ticks=10, interval_s=0, clock=FrozenClock()):
        taken += [report.tick for turn in report.turns if (turn.agent, turn.status) == ("ada", "done")]
        if report.tick == 6:
            (base / "shared/weather.txt").write_text("sun")
    assert taken == [5, 7, 8]
    assert "good news" in prompt(base, 8)
