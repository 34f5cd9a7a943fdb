"""Old names work and warn once: docs/capabilities.md. The files beside this one are programs as 0.2.0 documented them."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import lemming
from lemming.engine import run_once, ticks
from lemming.kernel.base import aliases
from lemming.kernel.base.errors import ConfigError
from lemming.kernel.journal.ledger import read_state
from lemming.kernel.tools import ToolResult
from lemming.kernel.turn.turn_hooks import Capability
from lemming.testing import FrozenClock, make_org, resume, say

HERE = Path(__file__).parent
TABLE = aliases.load_table()
GONE = """from lemming.ext import Capability

class Old(Capability):
    name = "old"
    def problems(self, agent, config):
        return ()
"""


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The warnings of a test, as in a fresh process."""
    monkeypatch.setattr(aliases, "_warned", set())
    texts: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda message, *_: texts.append(str(message)))
        yield texts


def load_class(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


@pytest.mark.parametrize(("old", "new"), TABLE["modules"].items())
def test_an_old_module_is_the_new_one(old: str, new: str, warned: list[str]) -> None:
    sys.modules.pop(old, None)
    assert import_module(old).__name__ == old
    assert f"{old} is now {new}" in warned
    assert import_module(new)


@pytest.mark.parametrize("name", TABLE["kernel_folders"])
def test_an_old_folder_leads_to_the_kernel_with_each_of_its_modules(name: str, warned: list[str]) -> None:
    folder = import_module(f"lemming.kernel.{name}")
    modules = [path.stem for path in Path(folder.__path__[0]).glob("*.py") if path.stem != "__init__"]
    for old in (f"lemming.{name}", f"lemming.{name}.{min(modules)}"):
        sys.modules.pop(old, None)
        assert import_module(old).__name__ == old
    assert f"lemming.{name}.{min(modules)} is now lemming.kernel.{name}.{min(modules)}" in warned


@pytest.mark.parametrize("name", TABLE["moved"])
def test_a_module_that_was_moved_before_says_where_it_is(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"{name} is now (.*)") as refused:
        import_module(name)
    assert find_spec(str(refused.value).split()[-1])


def test_a_name_in_a_module_that_was_moved_before_says_where_it_is() -> None:
    with pytest.raises(ImportError, match=r"lemming\.schedule is now lemming\.kernel\.org\.schedule"):
        from lemming.schedule import is_due  # type: ignore[import-not-found]  # noqa: F401


def test_a_module_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named"):
        import_module("lemming.nothing")


@pytest.mark.parametrize("owner", TABLE["members"])
def test_each_new_attribute_is_there_and_no_old_one_is(owner: str) -> None:
    cls = load_class(owner)
    assert f"{cls.__module__}.{cls.__qualname__}" == owner
    assert getattr(cls, "_is_protocol", False) or "__getattr__" in vars(cls), "it accepts no old names"
    source = Path(sys.modules[cls.__module__].__file__ or "").read_text()
    for old, new in TABLE["members"][owner].items():
        is_there = hasattr(cls, new) or f"def {new}(" in source or f"{new}: " in source or f".{new}" in source
        assert is_there or new == "get_batch_progress", f"{owner}.{new}"
        assert isinstance(vars(cls).get(old, aliases._OldName(cls, old, new)), aliases._OldName), old


@pytest.mark.parametrize("owner", TABLE["keywords"])
def test_each_new_keyword_is_there(owner: str) -> None:
    path, _, name = owner.rpartition(".")
    function = getattr(load_class(path), name) if path.rpartition(".")[2][0].isupper() else load_class(owner)
    assert f"{function.__module__}.{function.__qualname__}" == owner
    assert {*TABLE["keywords"][owner].values()} <= inspect.signature(function).parameters.keys()


def test_each_new_name_is_in_a_module_that_passes_it_on() -> None:
    modules = {*TABLE["modules"].values(), "lemming.kernel.org.config", "lemming.capabilities.channels.channel"}
    doors = {
        f"lemming.{name}" for name in ("agents", "errors", "memory", "messages", "providers", "strategies", "tools")
    }
    names = {name for module in modules | doors for name in vars(import_module(module))} | {*lemming.__all__}
    assert {*TABLE["names"].values()} - names == set()


def test_an_old_name_warns_once_and_says_where_it_was_typed(warned: list[str]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert lemming.waiting is lemming.waiting is lemming.list_person_inbox  # type: ignore[attr-defined]
    (warning,) = caught
    assert str(warning.message) == "lemming.waiting is now list_person_inbox"
    assert (warning.category, warning.filename) == (DeprecationWarning, __file__)


def test_old_attributes_and_keywords_work(warned: list[str]) -> None:
    result: Any = ToolResult(True, kept={"a": {}})  # type: ignore[call-arg]
    assert result.kept == {"a": {}}
    assert [text.partition(" is ")[0] for text in warned] == ["ToolResult(kept=)", "ToolResult.kept"]


def test_an_unknown_attribute_or_keyword_is_refused_as_ever() -> None:
    with pytest.raises(AttributeError, match="'ToolResult' object has no attribute 'keeps'"):
        ToolResult(True).keeps  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(TypeError, match="keeps"):
        ToolResult(True, keeps={})  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="module 'lemming' has no attribute 'nothing'"):
        lemming.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_an_old_keyword_of_a_function_works(tmp_path: Path, warned: list[str]) -> None:
    base = make_org(tmp_path, resume("ada"))
    reports = list(ticks(base, max_ticks=1, interval_s=0, hurried=True, clock=FrozenClock()))  # type: ignore[call-arg]
    assert len(reports) == 1
    assert warned == ["ticks(hurried=) is now immediate="]


@pytest.mark.parametrize(
    ("owner", "old", "new"),
    [(owner, old, new) for owner, names in TABLE["replaced"].items() for old, new in names.items()],
)
def test_a_hook_that_is_gone_is_refused_and_never_ignored(owner: str, old: str, new: str, tmp_path: Path) -> None:
    base = load_class(owner)
    assert not hasattr(base, old)
    assert not new or hasattr(base, new), "the table names a hook that exists"
    fix = f"be written as {base.__name__}.{new}" if new else "be removed"
    refusal = f"Old.{old} must {fix}: the hook {old} was removed, see docs/capabilities.md"
    with pytest.raises(TypeError, match=re.escape(refusal)):
        type("Old", (base,), {"name": "old", old: lambda self: ()})


def test_a_plugin_with_a_hook_that_is_gone_stops_the_run_with_its_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warned: list[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "gone_hooks.py").write_text(GONE)
    base = make_org(tmp_path / "org", resume("ada"), org={"plugins": ["gone_hooks"]})
    with pytest.raises(ConfigError, match=r"Old\.problems must be .* see docs/capabilities\.md.*gone_hooks\.py:3"):
        run_once(base, clock=FrozenClock())


def test_a_call_of_a_hook_that_is_gone_names_the_new_one() -> None:
    with pytest.raises(
        AttributeError, match=r"no attribute 'problems': it was replaced by provides, see docs/capabilities\.md"
    ):
        Capability().problems  # type: ignore[attr-defined]  # noqa: B018


def test_old_plugins_take_turns_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warned: list[str]) -> None:
    monkeypatch.syspath_prepend(HERE)
    strategy = {"turn": {"strategy": "best_of"}}
    tools = {"permissions": {"read_outboxes": ["*"], "tools": ["weekday", "where"]}}
    base = make_org(
        tmp_path,
        resume("ada", **strategy, **tools),
        resume("gate", model={"key": "gate"}),
        resume("polly", model={"key": "polly"}),
        org={"plugins": ["old_plugins"], "gates": [{"at": "out", "check": "no_prices", "then": "block"}]},
        models={"gate": {"provider": "door"}, "polly": {"provider": "parrot", "model": "polly"}},
        script=[
            {
                "agent": "ada",
                "step": 2,
                "reply": say("5 EUR", outbox_entries=[*map(entry, ("5 EUR", "haste", "calm"))]),
            },
            {"agent": "ada", "reply": "a draft"},
        ],
    )
    report = run_once(base, clock=FrozenClock())
    turns = {turn.agent: turn for turn in report.turns}
    assert [turns[name].status for name in ("ada", "polly", "gate")] == ["done", "done", "skipped"]
    assert turns["ada"].verdicts[0]["why"] == "it names a price"
    assert [used["tool"] for used in turns["ada"].tools[1:]] == ["weekday", "where"]
    state = read_state(base, "ada")
    assert state.results[-1]["output"] == f"Thursday {base / 'agents/ada/workspace/x'} False {{}}"
    seen = import_module("old_plugins").SEEN
    assert sorted(seen) == ["ada done", "out: calm ", "out: haste ", "polly done"]
    assert len(warned) == len({*warned})


def entry(text: str) -> dict[str, Any]:
    return {"kind": "message", "payload": {"text": text, "target": "gate"}, "tags": []}


def test_a_program_with_the_new_names_loads_no_table_of_old_ones(tmp_path: Path) -> None:
    make_org(tmp_path, resume("ada"))
    code = "from lemming import engine; from lemming.kernel.base.aliases import load_table as table; "
    code += "engine.run_once('.'); print(table.cache_info().misses)"
    done = subprocess.run((sys.executable, "-c", code), cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
