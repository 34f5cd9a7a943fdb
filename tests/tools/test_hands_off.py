"""Whatever `file_access` says: no tool writes what says who an agent is, what runs, or what has happened."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sandboxed import Sandbox, org_with
from tool_desk import Desk

from lemming.kernel.access import allowed_paths
from lemming.kernel.agents import load_agent
from lemming.kernel.base.errors import ConfigError, LemmingError
from lemming.kernel.files.file_effects import FileEffect
from lemming.kernel.org.config import OrgSettings, load_config
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tick.runtime import Runtime
from lemming.kernel.tools import SHIPPED, ToolRegistry
from lemming.kernel.tools.tool_call import call_tool
from lemming.kernel.tools.tool_definition import require_writable
from lemming.testing import make_org, resume

PLACES = [
    "config/org.json", "config/models.json", "config/credits.json", "config/mcp.json", "config/mcp.lock.json",
    "config/calendar.json", "config/new.json", "logs/engine.log", "logs/ticks/00000001.jsonl", "tick.json",
    ".lemming/lock", ".lemming/made-here", ".lemming/history/config", ".mcp.json", ".git/hooks/pre-commit",
    ".claude/skills/pdf/SKILL.md", ".agents/skills/pdf/SKILL.md", "AGENTS.md", "conftest.py", "myplugin.py",
    "myplugin/__init__.py", "tools/mine.py", "tools/new.py", "skills/pdf/SKILL.md",
    "trust/agents/alpha/workspace/a.txt.json",
    "agents/alpha/resume.json", "agents/alpha/tools/mine.py", "agents/alpha/skills/pdf/SKILL.md",
    "agents/alpha/outbox/00000001_x.json", "agents/alpha/memory/goals.json", "agents/alpha/turns.jsonl",
    "agents/alpha/plan.json", "agents/alpha/AGENTS.md", "agents/alpha/logs/activity.log",
    "agents/beta/resume.json", "agents/beta/tools/mine.py", "agents/beta/outbox/00000001_x.json",
    "agents/beta/memory/goals.json", "agents/beta/turns.jsonl", "agents/beta/plan.json",
    "agents/gamma/resume.json",
]  # fmt: skip
EVERYTHING = os.environ.get("LEMMING_CRASH_POINTS") == "all"
STRIDE = 1 if EVERYTHING else 4
"""Of the spellings of a place `make test` takes every fourth with a grant, others with another grant."""
NOT_BY_PATH = {
    "create_agent": "makes an agent by the rules of the organisation",
    "keep_job": "keeps a note of the agent's own, in its outbox",
    "remind_me": "the same",
    "memory_write": "writes a memory of the agent's own, by its key",
    "store_write": "writes below shared/store, by a key",
    "http_get": "sends",
    "http_post": "sends",
    "shell": "is confined to the workspace: below",
    "merge": "writes a branch of a repository, from a recorded patch",
    "permit": "writes nothing: its result is a grant",
}
BY_PATH: dict[str, Callable[[str], dict[str, Any]]] = {
    "file_write": lambda path: {"path": path, "content": "forged"},
    "file_append": lambda path: {"path": path, "content": "forged"},
    "file_edit": lambda path: {"path": path, "old": "real", "new": "forged"},
    "file_move": lambda path: {"path": "mine.txt", "to": path, "over": True},
}


def test_every_tool_that_writes_is_held_against_every_place() -> None:
    writing = {name for name in SHIPPED if ToolRegistry.get(name).tool_class != "read"}
    assert writing == {*NOT_BY_PATH, *BY_PATH}


def grants(base: Path) -> Iterator[list[str]]:
    """Yield what careless or hostile resumes grant, from all there is to the very folder."""
    yield ["/"]
    yield [str(base)]
    yield [str(base.parent)]
    yield [str(base / "agents"), str(base / "agents/alpha"), str(base / "agents/beta")]
    named = [place for place in PLACES if "/" in place and not place.startswith("myplugin/")]
    yield [*dict.fromkeys(str((base / place).parent) for place in named)]
    yield ["./workspace", "./shared"]


def spellings(base: Path, place: str) -> Iterator[str]:
    """Yield ways to write the path of a place, those that only some systems take for the same included."""
    path = f"{base}/{place}"
    folder, _, name = path.rpartition("/")
    yield path
    yield f"{base}/shared/../{place}"
    yield f"shared/../{place}"
    yield f"../../../{place}"
    yield f"workspace/../../../{place}"
    yield f"{base}//./{place}"
    yield f"{base}/{place.upper()}"
    yield f"{base}/{place.replace('/', './')}"
    yield f"{base}/{place.replace('/', ' /')}"
    yield f"{folder}./{name}"
    yield f"{path}\0.txt"
    yield path.replace("/", "\\")


def links(place: str) -> Iterator[str]:
    """Yield the names that `link_to` gives a place."""
    name = place.rpartition("/")[2]
    yield f"link/{name}"
    yield f"shared/link/{name}"
    yield "link.txt"
    yield "hard.txt"


@pytest.fixture
def everything(tmp_path: Path) -> Desk:
    """An organisation in which every place is there."""
    desk = Desk(tmp_path / "org", tools=["*"])
    Desk(desk.base, name="beta")
    for place in PLACES:
        if not (desk.base / place).exists() and not (desk.base / place).parent.is_file():
            desk.write(place, "real")
    (desk.base / "shared").mkdir()
    return desk


def contents(base: Path) -> dict[str, bytes]:
    ours = ("agents/alpha/workspace", "agents/alpha/resume.json")
    files = (path for path in base.rglob("*") if path.is_file() and not path.is_symlink())
    return {
        name: path.read_bytes()
        for path in files
        if not (name := str(path.relative_to(base))).startswith((*ours, "shared/"))
    }


def link_to(desk: Desk, place: str) -> None:
    for link, target in (
        (desk.workspace / "link", (desk.base / place).parent),
        (desk.base / "shared/link", (desk.base / place).parent),
        (desk.workspace / "link.txt", desk.base / place),
    ):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    (desk.workspace / "hard.txt").unlink(missing_ok=True)
    if (desk.base / place).exists():
        os.link(desk.base / place, desk.workspace / "hard.txt")


@pytest.mark.sample(5)
@pytest.mark.crash
@pytest.mark.parametrize("place", PLACES)
def test_no_tool_writes_moves_or_removes_it_however_it_is_spelled(
    everything: Desk, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is granted is all of the disk, in which a name near to each missing one would be looked for.
    monkeypatch.setattr(allowed_paths, "nearest_readable", lambda *_, **__: "")
    desk, before = everything, contents(everything.base)
    # Links come second, for a file with two names is refused anyway.
    for paths in (list(spellings(desk.base, place)), list(links(place))):
        for first, granted in enumerate(grants(desk.base), PLACES.index(place)):
            desk = Desk(desk.base, tools=["*"], allow_read=["/"], allow_write=granted)
            (desk.workspace / "mine.txt").write_text("mine")
            for path in paths[first % STRIDE :: STRIDE]:
                for tool, arguments in BY_PATH.items():
                    assert_nothing_is_written(desk, tool, arguments(path))
                assert_nothing_is_written(desk, "file_move", {"path": path, "to": "taken.txt"})
        link_to(desk, place)
    assert contents(desk.base) == before


def assert_nothing_is_written(desk: Desk, tool: str, arguments: dict[str, Any]) -> None:
    """Make a call, and see that it would write into the workspace, `shared/`, or really elsewhere."""
    result = call_tool(tool, arguments, desk.context())
    for effect in result.effects:
        is_open = effect.path_key.startswith((f"agents/{desk.name}/workspace/", "shared/"))
        is_open &= (desk.base / effect.path_key).resolve() == desk.base / effect.path_key
        is_elsewhere = effect.root != "" and not Path(effect.path_key).resolve().is_relative_to(desk.base)
        assert is_open or is_elsewhere, (tool, arguments, effect.path_key)
        assert "hard" not in effect.path_key or not (desk.base / effect.path_key).exists()


@pytest.mark.sample(5)
@pytest.mark.parametrize("place", PLACES)
def test_no_journal_has_it_written_when_a_tick_goes_on(everything: Desk, place: str) -> None:
    base = everything.base
    for granted in grants(base):
        Desk(base, allow_write=granted)
        agent = load_agent(base, "alpha")
        for effect in (
            FileEffect(place, b"forged"),
            FileEffect(place, b"forged", str(base)),
            FileEffect(f"{base.name}/{place}", b"forged", str(base.parent)),
            FileEffect(place.rpartition("/")[2], b"forged", str((base / place).parent)),
            FileEffect(f"shared/../{place}", b"forged"),
            FileEffect(place.upper(), b"forged"),
            FileEffect(place, b"", "", ("0" * 64,)),
        ):
            if effect.path.startswith("agents/alpha/memory/"):
                continue  # the agent's own memory, which the engine writes by its key
            with pytest.raises(LemmingError):
                require_writable(agent, base, OrgSettings(), effect, caller="file_write")


def test_a_folder_of_the_organisation_is_opened_by_its_own_name_only(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "org", allow_write=[str(tmp_path), str(tmp_path / "org/reports")])
    assert desk.call("file_write", path=f"{desk.base}/reports/a.txt", content="x").success
    assert desk.call("file_write", path=f"{tmp_path}/elsewhere.txt", content="x").success
    assert desk.call("file_write", path=f"{desk.base}/shared/a.txt", content="x").success
    assert "where no grant names the folder itself" in desk.refusal(
        "file_write", path=f"{desk.base}/plans/a.txt", content="x"
    )


# --- the shell ---------------------------------------------------------------------------------


def test_no_command_changes_any_of_it(tmp_path: Path, sandbox: Sandbox) -> None:
    desk = Desk(tmp_path / "org", org=org_with(sandbox, timeout_s=60), allow_write=["/"], allow_read=["/"])
    for place in PLACES:
        if not (desk.base / place).exists() and not (desk.base / place).parent.is_file():
            desk.write(place, "real")
    before, lines = contents(desk.base), []
    for place in PLACES:
        for path in (f"{desk.base}/{place}", f"../../../{place}"):
            lines += [f"echo forged > {path}", f"echo forged >> {path}", f"rm -f {path}", f"mv {path} ."]
            lines += [f"ln {path} hard; echo forged > hard", f"ln -s {path} soft; echo forged > soft"]
            lines += [f"cp /dev/null {path}; chmod 777 {path}; rm -f hard soft"]
    (desk.workspace / "attack.sh").write_text("\n".join(["exec 2>/dev/null", *lines, "echo done", ""]))
    assert "done" in desk.do("shell", command="sh attack.sh")
    assert contents(desk.base) == before


USERS = ("test_shell_tool.py", "test_confine.py", "test_which_sandbox.py")
SOME = "" if EVERYTHING else "test_confine or test_which_sandbox or nothing_outside or out_of_reach"


@pytest.mark.crash
def test_every_sandbox_holds_for_an_ordinary_user_as_well() -> None:
    """The attacks are made by root where the suite runs as root; here they are made by nobody's processes."""
    python = "/usr/bin/python3"
    if os.geteuid() != 0 or not os.path.exists(python):
        pytest.skip("needs root, and a Python that others may run")
    packages = [str(Path(__file__).parents[2]), *(path for path in sys.path if path.endswith("site-packages"))]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(packages)}
    can_import = [python, "-c", "import pytest, pydantic, lemming"]
    nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}
    if subprocess.run(can_import, env=environment, capture_output=True, check=False, **nobody).returncode:
        pytest.skip(f"what is installed here is not for {python}")
    files = [str(Path(__file__).with_name(name)) for name in USERS]
    with tempfile.TemporaryDirectory() as folder:  # above it nothing is closed to others
        os.chown(folder, 65534, 65534)
        environment |= {"HOME": folder, "TMPDIR": folder}
        words = [python, "-m", "pytest", "-v", "-k", SOME, *files]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, **nobody)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


# --- code ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "found_in", "grant"),
    [
        ("shared/a_plugin.py", "shared", "./shared"),
        ("agents/ada/workspace/a_plugin/__init__.py", "agents/ada/workspace", "./shared"),
        ("lib/a_plugin.py", "lib", "{base}/lib"),
        ("lib/a_plugin/inner.py", "lib", "{base}/lib/a_plugin"),
    ],
)
def test_a_plugin_that_an_agent_may_write_is_not_imported(
    base: Path, monkeypatch: pytest.MonkeyPatch, file: str, found_in: str, grant: str
) -> None:
    access = {"allow_read": [], "allow_write": [grant.format(base=base)]}
    make_org(base, resume("ada", permissions={"file_access": access}), org={"plugins": ["a_plugin"]})
    (base / file).parent.mkdir(parents=True, exist_ok=True)
    (base / file).write_text(f"open({str(base.parent / 'fired')!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(base / found_in)
    with pytest.raises(ConfigError, match="ada may write the file"):
        Runtime(Organisation(base)).load_config()
    assert "a_plugin" not in sys.modules
    assert not (base.parent / "fired").exists()


def test_a_plugin_that_no_agent_may_write_is(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = {"allow_read": [], "allow_write": [str(base), "./shared"]}
    plugin = {"plugins": ["held_plugin"]}
    make_org(base, resume("ada", permissions={"file_access": access}), org=plugin)
    (base / "held_plugin.py").write_text(f"open({str(base.parent / 'fired')!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(base)
    runtime = Runtime(Organisation(base))
    assert runtime.load_config().org.plugins == load_config(base).org.plugins
    assert (base.parent / "fired").exists()
    access["allow_write"].append("./workspace")
    make_org(base, resume("ada", permissions={"file_access": access}), org=plugin)
    runtime.load_config()
    shutil.rmtree(base / "agents/ada")
    assert json.loads((base / "config/org.json").read_text()) == plugin
