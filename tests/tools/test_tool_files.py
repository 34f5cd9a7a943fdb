"""Files of tools: which are loaded, for whom, and what is said of those that are not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from workshop import Workshop, call

from lemming.capabilities.toolbox.functions import worker_pool
from lemming.cli import run
from lemming.engine import run_once
from lemming.kernel.base.errors import ConfigError, NoSuchTool, Problem
from lemming.kernel.org.config import load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import get_toolset, refresh_tools
from lemming.queries.permissions_required import list_required_permissions
from lemming.testing import FrozenClock, make_org, say

FILE_READ = "lemming.capabilities.toolbox.file_tools.FileReadTool"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    shop = Workshop(tmp_path / "org")
    yield shop
    shop.org.close()


WRONG = [
    ("@tool\ndef f(x) -> str: ...\n", 4, 'parameter "x" of f must have a type'),
    ("@tool\ndef f(*args: int) -> str: ...\n", 4, "*args of f must not be variadic"),
    ("@tool\ndef f(**more: int) -> str: ...\n", 4, "**more of f must not be variadic"),
    ("@tool\ndef f(x: int, /) -> str: ...\n", 4, "x of f must not be positional-only"),
    ("@tool\ndef f(x: Unheard) -> str: ...\n", 4, "name 'Unheard' is not defined"),
    ("import threading\n@tool\ndef f(x: threading.Lock) -> str: ...\n", 5, "a type that JSON can express"),
    ("import io\n@tool\ndef f(x: io.StringIO) -> str: ...\n", 5, "a type that JSON can express"),
    ("@tool\ndef f(: int): ...\n", 5, "SyntaxError"),
    ("def g():\n    return 1 / 0\ng()\n", 5, "ZeroDivisionError: division by zero; {file}:6 in <module>"),
    ("import not_there_at_all\n", 4, "ModuleNotFoundError"),
    ("sys.exit(3)\n", 4, "SystemExit: 3"),
    ("@tool(tool_class='raed')\ndef f() -> str: ...\n", 4, 'did you mean "read"?'),
    ("@tool(repeatabel=True)\ndef f() -> str: ...\n", 4, 'did you mean "repeatable"?'),
    ("@tool(timeout_s=0)\ndef f() -> str: ...\n", 4, "timeout_s must be more than 0"),
    ("@tool(name='a b')\ndef f() -> str: ...\n", 4, "a tool's name has"),
    ("@tool(reads='shared')\ndef f() -> str: ...\n", 4, 'write ["shared"]'),
    ("@tool\nclass F: ...\n", 4, "must decorate a function"),
]
"""What a file holds after its header, in which line something is wrong, and what is said of it."""


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> list[Problem]:
    """What is said of the files in `WRONG`, all in one organisation."""
    shop = Workshop(tmp_path_factory.mktemp("wrong") / "org")
    for number, (code, _, _) in enumerate(WRONG):
        shop.file(code, f"tools/wrong{number:02}.py")
    with pytest.raises(ConfigError) as raised:
        _ = shop.toolset
    shop.org.close()
    return [*raised.value.problems]


@pytest.mark.parametrize("number", range(len(WRONG)), ids=[code for code, _, _ in WRONG])
def test_what_is_wrong_in_a_file_is_told_with_its_line(problems: list[Problem], number: int) -> None:
    file, (_, line, said) = f"tools/wrong{number:02}.py", WRONG[number]
    (problem,) = [problem for problem in problems if problem.where.startswith(f"{file}:")]
    assert said.format(file=file) in problem.message, problem.message
    assert problem.where.startswith(f"{file}:{line}")


def test_all_that_is_wrong_in_all_files_is_told_at_once(shop: Workshop) -> None:
    shop.file("@tool\ndef f(x) -> str: ...\n")
    shop.file("1 / 0\n", "tools/other.py")
    with pytest.raises(ConfigError) as raised:
        _ = shop.toolset
    assert [problem.file for problem in raised.value.problems] == ["tools/mine.py", "tools/other.py"]


def test_files_in_one_folder_may_import_each_other(shop: Workshop) -> None:
    shop.file("def twice(text: str) -> str:\n    return text * 2\n", "tools/common.py")
    shop.file("from .common import twice\n@tool\ndef double(text: str) -> str:\n    return twice(text)\n")
    assert shop.call("double", text="a").output == "aa"
    shop.file("def twice(text: str) -> str:\n    return text * 3\n", "tools/common.py")
    assert shop.call("double", text="a").output == "aa"


@pytest.mark.sample(2)
@pytest.mark.parametrize("beside", ["sub/__init__.py", "sub/__init__.pyc", "sub.so"])
def test_nothing_is_imported_from_beside_that_nobody_agreed_to(shop: Workshop, beside: str) -> None:
    shop.file("print('EVIL')\nx = 1\n", f"tools/{beside}", header="")
    shop.file("from .sub import x\n@tool\ndef double(text: str) -> str:\n    return text * x\n")
    with pytest.raises(ConfigError) as raised:
        _ = shop.toolset
    assert "sub.py does not exist beside it; folders are not imported" in raised.value.problems[0].message


def test_a_tool_of_an_agents_own_folder_is_there_for_that_agent_only(shop: Workshop) -> None:
    make_org(shop.base, shop.resume(), shop.resume("bob"), script=[], org=shop.settings)
    shop.file("@tool\ndef mine() -> str:\n    return 'of bob'\n", "agents/bob/tools/mine.py")
    assert "mine" not in shop.toolset
    assert "mine" in shop.toolset.for_agent("bob")
    assert shop.call("mine").outcome == "not_found"
    assert "bob" not in shop.call("mine").output


def test_two_agents_may_have_each_a_tool_of_one_name(shop: Workshop) -> None:
    make_org(shop.base, shop.resume(), shop.resume("bob"), script=[], org=shop.settings)
    for name in ("ada", "bob"):
        shop.file(f"@tool\ndef mine() -> str:\n    return 'of {name}'\n", f"agents/{name}/tools/mine.py")
    assert shop.call("mine").output == "of ada"


@pytest.mark.parametrize(
    ("first", "second", "name", "both"),
    [
        ("tools/a.py", "tools/b.py", "twin", ("tools/a.py:4", "tools/b.py:4")),
        ("tools/a.py", "tools/b.py", "file_read", ("tools/a.py:4", FILE_READ)),
    ],
)
def test_one_name_twice_is_an_error_that_names_both(
    shop: Workshop, first: str, second: str, name: str, both: tuple[str, str]
) -> None:
    for file in (first, second):
        shop.file(f"@tool\ndef {name}() -> str: ...\n", file)
    if name == "file_read":
        (shop.base / second).unlink()
    with pytest.raises(ConfigError) as raised:
        _ = shop.toolset
    assert all(where in str(raised.value) for where in both), str(raised.value)
    assert f'two tools have the name "{name}"' in str(raised.value)


TWIN = "@tool\ndef twin() -> str: ...\n"
TEAM = {"team": {"ask": ["ada"]}}
OUT: list[tuple[dict[str, str], dict[str, Any], str]] = [
    ({"tools/mine.py": "def f(:"}, {}, "SyntaxError"),
    ({"tools/mine.py": "1 / 0"}, {}, "division by zero"),
    ({"tools/mine.py": "import os; os._exit(3)"}, {}, "its process ended with exit status 3"),
    ({"tools/mine.py": "class E(BaseException): ...\nraise E"}, {}, "its process ended"),
    ({"tools/mine.py": "\0"}, {}, "null bytes"),
    ({"tools/mine.py": TWIN, "tools/other.py": TWIN}, {}, 'two tools have the name "twin"'),
    ({"tools/mine.py": TWIN.replace("twin", "of_all")}, {}, "that of tools/a.py:4"),
    ({"tools/mine.py": TWIN.replace("twin", "file_read")}, {}, FILE_READ),
    ({"tools/my-own.py": TWIN}, {}, "must be named like a Python module"),
    ({}, TEAM, "and that of the team of bob9"),
    ({"workspace/mine.py": TWIN}, {}, "bob10 may write the file: it is in the agent's workspace"),
    ({"tools/mine.py": TWIN + f"# {'x' * (1 << 20)}"}, {}, "must have at most 1048576 bytes"),
]


def test_what_is_wrong_with_an_agents_own_tools_keeps_that_agent_out(tmp_path: Path) -> None:
    places = ["tools/*.py", "agents/*/tools/*.py", "agents/*/workspace/*.py"]
    shop = Workshop(tmp_path / "org", gates=[{"at": "call", "tool": "bobs_own", "then": "block"}], tool_files=places)
    shop.file("@tool\ndef of_all() -> str: ...\n@tool\ndef ask_ada() -> str: ...\n", "tools/a.py")
    shop.file(TWIN.replace("twin", "good"), "agents/ada/tools/good.py")
    for number, (files, _, _) in enumerate(OUT):
        for file, code in files.items():
            shop.file(code, f"agents/bob{number}/{file}")
    bobs = [shop.resume(f"bob{number}", **more) for number, (_, more, _) in enumerate(OUT)]
    script = [{"agent": "ada", "reply": say("here", tool_calls=[call("good")])}]
    make_org(shop.base, shop.resume(), *bobs, script=script, org=shop.settings)
    turns = {turn.agent: turn for turn in run_once(shop.base, clock=FrozenClock()).turns}
    assert [used["success"] for used in turns["ada"].tools] == [True], turns["ada"]
    for number, (_, _, said) in enumerate(OUT):
        turn = turns[f"bob{number}"]
        assert (turn.status, turn.error) == ("failed", "ConfigError"), turn
        assert said in turn.reason, turn.reason
    shop.org.close()


def test_a_gate_that_names_no_tool_stops_the_run_once_all_tools_are_known(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "org", gates=[{"at": "call", "tool": "bobs_own", "then": "block"}])
    shop.file(TWIN, "agents/ada/tools/good.py")
    with pytest.raises(ConfigError, match='tool "bobs_own" does not exist'):
        run_once(shop.base, clock=FrozenClock())


@pytest.mark.parametrize("look", ["status", "agents", "findings", "graph"])
def test_a_look_loads_no_file_that_nobody_agreed_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: str) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shop = Workshop(tmp_path / "org", gates=[{"at": "call", "tool": "file_read", "then": "block"}])
    shop.file(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    assert run(["-C", str(shop.base), look]) == 0
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("files", "pattern", "grant"),
    [
        ("lib/mine.py", "lib/*.py", "{base}/lib"),
        ("lib/in/mine.py", "lib/*/*.py", "{base}/lib"),
        ("shared/mine.py", "shared/*.py", "./shared"),
    ],
)
def test_a_file_that_an_agent_may_write_is_refused_by_name(
    tmp_path: Path, files: str, pattern: str, grant: str
) -> None:
    shop = Workshop(tmp_path / "org", tool_files=[pattern])
    shop.file("@tool\ndef mine() -> str: ...\n", files)
    access = {"allow_read": [], "allow_write": [grant.format(base=shop.base)]}
    make_org(shop.base, shop.resume(permissions={"file_access": access}), script=[], org=shop.settings)
    with pytest.raises(ConfigError) as raised:
        _ = shop.toolset
    assert raised.value.problems[0].file in (files, str(Path(files).parent))
    assert "ada may write the file" in str(raised.value)


@pytest.mark.parametrize("pattern", ["/etc/*.py", "../*.py", "tools/../../x.py", "tools/*"])
def test_a_pattern_that_leads_elsewhere_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(ConfigError, match="must name Python files"):
        _ = Workshop(tmp_path / "org", tool_files=[pattern]).toolset


def test_a_link_is_refused(shop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("")
    (shop.base / "tools").mkdir()
    (shop.base / "tools/linked.py").symlink_to(tmp_path / "other.py")
    with pytest.raises(ConfigError, match="symbolic link refused"):
        _ = shop.toolset


def test_no_bytecode_is_left_beside_the_files(shop: Workshop) -> None:
    shop.file("@tool\ndef mine() -> str:\n    return 'x'\n")
    assert shop.call("mine").output == "x"
    assert sorted(path.name for path in (shop.base / "tools").rglob("*")) == ["mine.py"]


def test_nothing_is_loaded_that_no_setting_names(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "org", tool_files=[])
    shop.file("raise SystemExit\n")
    assert "mine" not in shop.toolset


def test_patterns_in_a_resume_stand_for_all_tools_that_fit(tmp_path: Path) -> None:
    shop = Workshop(tmp_path / "org", tools=["weather_*", "file_rea"])
    shop.file("@tool\ndef weather_now() -> str:\n    return 'rain'\n@tool\ndef climate() -> str:\n    return 'x'\n")
    assert shop.call("weather_now").output == "rain"
    assert shop.call("climate").outcome == "denied"
    assert run(["-C", str(shop.base), "validate"]) == 3
    shop.org.close()


def test_a_pattern_that_fits_nothing_is_told_with_the_nearest_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Workshop(tmp_path / "org", tools=["wether_*"])
    shop.file("@tool\ndef weather_now() -> str:\n    return 'rain'\n")
    assert run(["-C", str(shop.base), "validate", "--json"]) == 3
    problems = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (problem,) = [it for it in problems if it.get("pointer") == "/permissions/tools/0"]
    assert problem["message"] == 'no tool "wether_*"'


def test_trust_says_which_code_runs(shop: Workshop) -> None:
    shop.file("@tool\ndef mine() -> str: ...\n")
    (reach,) = list_required_permissions(shop.base, load_config(shop.base), [])
    assert (reach.does, reach.needs_agreement) == ("runs the Python code in tools/mine.py", True)


def test_what_nobody_agreed_to_is_not_loaded_to_look_at_it(
    shop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shop.file(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    for look in (["tools", "list"], ["validate"], ["plan"]):
        run(["-C", str(shop.base), *look])
    assert "not imported: tools/*.py" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
    run(["-C", str(shop.base), "trust", "--yes"])
    run(["-C", str(shop.base), "tools", "list"])
    assert (tmp_path / "ran").exists()


def test_a_class_in_a_file_of_tools_belongs_to_its_organisation(shop: Workshop, tmp_path: Path) -> None:
    shop.file(
        """
        from lemming.tools import Tool, ToolRegistry
        class Old(Tool):
            name = "old_style"
            description = "Works beside functions."
            def execute(self, agent_name: str, base_path: str) -> ToolResult:
                return ToolResult(True, agent_name)
        ToolRegistry.register(Old())
        """
    )
    assert shop.call("old_style").output == "ada"
    other = Workshop(tmp_path / "other")
    assert "old_style" not in other.toolset


def test_functions_of_a_plugin_register_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    code = "from lemming.tools import tool\nimport os\n@tool\ndef of_a_plugin() -> str:\n"
    code += "    return str(os.getpid())\n"
    (tmp_path / "plugin_with_a_function.py").write_text(code)
    shop = Workshop(tmp_path / "org", tool_files=[], plugins=["plugin_with_a_function"])
    from lemming.kernel.plugins.plugin_registry import load_plugins
    from lemming.kernel.tools import ToolRegistry

    load_plugins(("plugin_with_a_function",))
    import os

    try:
        assert shop.call("of_a_plugin").output not in ("", str(os.getpid()))
        assert "of_a_plugin" not in Workshop(tmp_path / "two").toolset
    finally:
        shop.org.close()
        ToolRegistry.unregister("of_a_plugin")


HANGS = "threading.Event().wait()"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("code", "limit_s", "why"),
    [
        (HANGS, 0.3, "its import took longer than 0.3 s (tool_timeout_s)"),
        ("os._exit(3)", PATIENCE_S, "its process ended with exit status 3"),
        ("os.kill(os.getpid(), 9)", PATIENCE_S, "its process was ended by SIGKILL"),
    ],
)
def test_a_file_that_hangs_or_ends_its_process_is_named(tmp_path: Path, code: str, limit_s: float, why: str) -> None:
    shop = Workshop(tmp_path / "org", tool_timeout_s=limit_s)
    shop.file(f"import threading\n{code}\n", "tools/bad.py")
    with pytest.raises(ConfigError) as raised:
        get_toolset(load_config(base := Organisation(shop.base)).org, base)
    assert [(problem.file, problem.message) for problem in raised.value.problems] == [
        ("tools/bad.py", f"cannot be loaded: {why}")
    ]
    base.close()


def test_an_engine_goes_on_without_a_file_that_ends_its_process_until_it_is_mended(shop: Workshop) -> None:
    shop.file("@tool\ndef good() -> str:\n    return 'fine'\n", "tools/good.py")
    assert shop.call("good").output == "fine"
    bad = shop.file("os._exit(3)\n@tool\ndef bad() -> str: ...\n", "tools/bad.py")
    problems = refresh_tools(load_config(shop.org).org, shop.org)
    assert [problem.file for problem in problems] == ["tools/bad.py"]
    assert refresh_tools(load_config(shop.org).org, shop.org) == problems
    assert "bad" not in shop.toolset
    bad.write_text(bad.read_text().replace("os._exit(3)", ""))
    assert refresh_tools(load_config(shop.org).org, shop.org) == []
    assert "bad" in shop.toolset
    assert shop.call("good").output == "fine"


def test_the_same_files_are_tried_in_a_process_once_however_often_it_is_opened(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.file("@tool\ndef mine() -> str:\n    return 'one'\n")
    assert "mine" in shop.toolset
    monkeypatch.setattr(worker_pool, "WorkerProcess", lambda *_: pytest.fail("a process is started"))
    opened = Organisation(shop.base)
    assert "mine" in get_toolset(load_config(opened).org, opened)
    shop.file("@tool\ndef other() -> str:\n    return 'two'\n")
    with pytest.raises(pytest.fail.Exception, match="a process is started"):
        refresh_tools(load_config(opened).org, opened)


def test_a_pattern_that_matches_no_file_is_named_where_a_tool_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Workshop(tmp_path / "org", tool_files=["tools/*.py", "tols/*.py"], tools=["look", "look_*"])
    shop.file("@tool\ndef book() -> str:\n    return 'x'\n")
    gap = '"tols/*.py" in tool_files matches no file'
    with pytest.raises(NoSuchTool) as raised:
        shop.toolset.find("look")
    assert gap in raised.value.hint
    assert run(["-C", str(shop.base), "trust", "--yes"]) == 0
    capsys.readouterr()
    assert run(["-C", str(shop.base), "validate", "--json"]) == 3
    problems = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [it["pointer"] for it in problems if gap in it.get("message", "")] == ["/tool_files/1"]
    assert not any("tools/*.py" in it.get("message", "") for it in problems)
    report = run_once(shop.base, clock=FrozenClock())
    assert gap in report.turns[0].reason  # "look" is close to "book", so that the agent takes no turn
