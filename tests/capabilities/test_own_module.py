"""A capability in a module that an organisation names: whose it is, in which order, and when it breaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemming.cli import run
from lemming.engine import run_once
from lemming.journal_tools.replay.tick_replay import replay_ticks
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.journal.capability_queries import CallNote, StateQuery
from lemming.kernel.plugins.plugin_registry import unregister
from lemming.kernel.turn.descriptions import AuxiliaryPrompt
from lemming.kernel.turn.turn_hooks import Capability
from lemming.libraries.outbox_files import read_outbox_entries
from lemming.queries.views.view_registry import build_view
from lemming.testing import FrozenClock, journal_lines, make_org, resume, say

HEAD = """
from dataclasses import replace
from lemming.ext import CallTool, Capability, CapabilityStatus, Rejected, WriteEntry, register_capability

class Here(Capability):
    def prepare(self, turn):
        return {"is": "here"}
"""
SAYS = """
@register_capability
class {kind}(Here):
    name = "{name}"
    after = {after}
    handles = (WriteEntry,)
    def intercept(self, effect, turn):
        return (yield replace(effect, payload={{**effect.payload, "text": effect.payload["text"] + " {word}"}}))
"""
CALLS = """
@register_capability
class House(Here):
    name = "house"
    handles = (CallTool,)
    def intercept(self, effect, turn):
        return Rejected("not in this house") if effect.args["path"] == "secret.txt" else None
"""
REFUSES = """
@register_capability
class House(Here):
    name = "house"
    handles = (WriteEntry,)
    def intercept(self, effect, turn):
        return Rejected("too long, write it shorter\\nsecond line")
"""
BREAKS = """
def find_trouble(subject):
    raise KeyError(type(subject).__name__)

@register_capability
class Breaks(Capability):
    name = "breaks"
    handles = (WriteEntry,)
    def prepare(self, turn):
        if turn.agent.name == "cid":
            raise KeyError("prepare")
        return {"is": "here"} if turn.agent.name == "ada" else None
    def intercept(self, effect, turn):
        raise KeyError("intercept")
    provides = {"checks": {"agent": find_trouble}}
    describes = (CapabilityStatus,)
    def describe(self, query):
        raise KeyError(query.kind.__name__)
"""
FACTS = """
    describes = (CapabilityStatus,)
    def describe(self, query):
        yield from (CapabilityStatus(name, "waits" if name == "bob" else "wrote") for name in query.agents)
"""
NOTE = CallNote("noted", "", "")
NAMES = ("mark", "early", "late", "house", "breaks")


@pytest.fixture(autouse=True)
def _for_one_test() -> Iterator[None]:
    yield
    for name in NAMES:
        unregister("capability", name)


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for modules that can be imported."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def says(kind: str, name: str, word: str, after: tuple[str, ...] = ()) -> str:
    return SAYS.format(kind=kind, name=name, word=word, after=after)


def org_with(base: Path, code: Path, text: str, *names: str, script: Any = None, more: Any = (), **ada: Any) -> Path:
    """Return an organisation of ada and bob with a module of its own, whose capabilities all agents use."""
    module = f"own_{base.parent.name}_{base.name}".replace("-", "_")
    (code / f"{module}.py").write_text(HEAD + text)
    settings = {"plugins": [module], "capabilities": {name: {} for name in names}}
    return make_org(base, resume("ada", **ada), resume("bob"), *more, org=settings, script=script)


def texts(base: Path, name: str = "ada") -> list[str]:
    return [str(entry.payload["text"]) for entry in read_outbox_entries(base, name)]


def test_each_organisation_has_its_own_of_a_name(tmp_path: Path, code: Path) -> None:
    one = org_with(tmp_path / "one", code, says("Mark", "mark", "(one)"), "mark")
    two = org_with(tmp_path / "two", code, says("Mark", "mark", "(two)"), "mark")
    for base in (one, two):
        run_once(base, clock=FrozenClock())
    assert (texts(one), texts(two)) == (["hello (one)"], ["hello (two)"])
    assert [it.turns for base in (one, two) for it in replay_ticks(base, [1])] == [2, 2]


def test_the_order_is_the_one_that_they_declare(tmp_path: Path, code: Path) -> None:
    both = says("Early", "early", "early", after=("late",)) + says("Late", "late", "late")
    base = org_with(tmp_path / "org", code, both, "early", "late")
    run_once(base, clock=FrozenClock())
    assert texts(base) == ["hello late early"]
    (started, _) = (it for it in journal_lines(base, 1) if it["type"] == "turn_started")
    assert started["given"] == {"early": {"is": "here"}, "late": {"is": "here"}}


def test_those_that_come_after_each_other_are_refused(tmp_path: Path, code: Path) -> None:
    both = says("Early", "early", "", after=("late",)) + says("Late", "late", "", after=("early",))
    base = org_with(tmp_path / "org", code, both, "early", "late")
    with pytest.raises(ConfigError, match=r'in a circle: "early", "late"'):
        run_once(base, clock=FrozenClock())


def test_a_call_is_refused_before_it_is_made_and_the_model_is_told(tmp_path: Path, code: Path) -> None:
    calls = [{"tool": "file_write", "args": {"path": it, "content": "x"}} for it in ("secret.txt", "b.txt")]
    script, may = [{"reply": say("hello", tool_calls=calls)}], {"tools": ["file_write"], "read_outboxes": []}
    base = org_with(tmp_path / "org", code, CALLS, "house", script=script, permissions=may)
    run_once(base, clock=FrozenClock())
    assert [it.name for it in base.glob("agents/ada/workspace/*")] == ["b.txt"]
    run_once(base, clock=FrozenClock())
    started = next(it for it in journal_lines(base, 2) if it["type"] == "turn_started")
    assert "not in this house" in started["prompt"][-1]["content"]


def test_why_an_entry_was_refused_stands_beside_its_turn(
    tmp_path: Path, code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = org_with(tmp_path / "org", code, REFUSES, "house")
    for command in (["run-once", "--trust"], ["tick"]):
        assert run(["-C", str(base), *command]) == 0
        said = "".join(capsys.readouterr())
        assert "outbox_entries: too long, write it shorter" in said
        assert "second line" not in said
    assert [it.turns for it in replay_ticks(base, [1])] == [2]


def test_one_that_breaks_fails_its_turn_and_says_so_on_screens(
    tmp_path: Path, code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = org_with(tmp_path / "org", code, BREAKS, "breaks", more=[resume("cid")])
    ada, bob, cid = run_once(base, clock=FrozenClock()).turns
    assert (ada.status, bob.status, cid.status) == ("failed", "done", "failed")
    module = next(code.glob("*.py"))
    for turn, hook in ((ada, "intercept"), (cid, "prepare")):
        line = 1 + module.read_text().splitlines().index(f'        {"    " * (turn is cid)}raise KeyError("{hook}")')
        assert turn.reason == (
            f"KeyError: '{hook}', in the capability breaks, {module.name}:{line} "
            "(fix the capability, or remove its block; the other agents continue)"
        )
    rows = {row["name"]: row for row in build_view(base, "agents")["rows"]}
    assert "KeyError: 'prepare'" in rows["cid"]["text"]
    assert run(["-C", str(base), "plan"]) == 0
    run(["-C", str(base), "status"])
    assert "breaks: broke: KeyError: 'CapabilityStatus', at " in capsys.readouterr().out
    run(["-C", str(base), "validate"])
    said = capsys.readouterr().err
    assert "capability \"breaks\" failed: KeyError: 'AgentSubject', at " in said
    (line,) = (
        it for it in said.splitlines() if "capability \"breaks\" failed: KeyError: 'CapabilityStatus', at " in it
    )
    assert line.startswith("warning")


def test_what_is_so_of_several_agents_is_one_fact(
    tmp_path: Path, code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = says("Mark", "mark", "") + FACTS
    base = org_with(tmp_path / "org", code, text, "mark", more=[resume("cid")])
    run_once(base, clock=FrozenClock())
    run(["-C", str(base), "status"])
    assert "mark: ada, cid: wrote; bob waits\n" in capsys.readouterr().out


def test_a_look_does_not_import_what_nobody_has_agreed_to(
    tmp_path: Path, code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = org_with(tmp_path / "org", code, says("Mark", "mark", "(one)"), "mark")
    assert run(["-C", str(base), "status"]) == 0
    assert 'mark: no status: capability "mark" comes from a plugin' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (says("Mark", "Not a name", ""), "a capability's name must be"),
        (says("Mark", "windows", ""), "that name is taken by"),
        (
            says("Mark", "mark", "") + "    org_settings_type = dict\n",
            "settings of capability mark must be a dataclass",
        ),
    ],
)
def test_what_cannot_be_one_is_refused_as_it_is_registered(tmp_path: Path, code: Path, text: str, words: str) -> None:
    base = org_with(tmp_path / "org", code, text, "mark")
    with pytest.raises(ConfigError, match=words):
        run_once(base, clock=FrozenClock())


def test_a_look_does_not_say_that_who_uses_one_of_a_module_fails(base: Path) -> None:
    make_org(base, resume("ada", capabilities={"elsewhere": {}}), org={"plugins": ["a_module_of_mine"]})
    (ada,) = (it for it in build_view(base, "agents")["rows"] if it["name"] == "ada")
    assert (ada["state"], "this command imports none" in ada["text"]) == ("due", True)


def test_a_capability_that_describes_declares_the_kinds_and_is_asked_for_no_other() -> None:
    with pytest.raises(TypeError, match=r"Silent\.describes must list the kinds that describe yields, got none"):
        type("Silent", (Capability,), {"name": "silent", "describe": lambda self, query: ()})
    queries: list[StateQuery[Any]] = []
    members = {"name": "noted", "describes": (CallNote,), "describe": lambda self, query: [queries.append(query), NOTE]}
    noted = type("Noted", (Capability,), members)()
    assert [*StateQuery(AuxiliaryPrompt, {}).ask(noted)] == []
    assert [*StateQuery(CallNote, {"a": 1}).ask(noted)] == [NOTE], "None, which is no note, is dropped"
    assert queries == [StateQuery(CallNote, {"a": 1})]
