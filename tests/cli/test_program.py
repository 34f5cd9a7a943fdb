"""The program as a whole: quick to start, complete in its help, documented as it is."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from forked import lemming_in
from patience import PATIENCE_S
from terminal import REPOSITORY, Lemming

from docs.reference import generate_pages
from lemming import __version__
from lemming.cli import load_command
from lemming.commands.command_table import COMMANDS, DASHBOARD_VIEWS, GROUPS, SECTIONS, SUBCOMMANDS, load_suggestions
from lemming.engine import run_once
from lemming.testing import make_org, resume, say

MODELS = {"openai", "anthropic", "ollama", "xllamacpp", "httpx", "httpx2"}
LATER = MODELS | {"asyncio", "logging", "pydantic", "rich", "structlog", "tenacity"}
LOOKING = ("findings", "telemetry", "views", "dashboard", "rehearsal", "evals")
AFTER = "import sys; from lemming.cli import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
NAMES = [name for section in COMMANDS.values() for name in section]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (["--help"], LATER | {"pydantic_core"}),
        (["status"], LATER | {"pydantic_core"}),
        (["run-once"], LATER | {"pydantic_core"}),
        (["run-once", "--json"], LATER),
    ],
    ids=["help", "status", "idle tick", "idle tick as JSON"],
)
def test_start_up_imports_only_what_it_needs(base: Path, words: list[str], unwanted: set[str]) -> None:
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 9}))
    assert unwanted & imported(base, words) == set()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("words", "most", "unwanted"),
    [
        (["--help"], 20, ("capabilities", "engine", "queries", "operations", "kernel.journal", "kernel.org")),
        (["status"], 162, ("kernel.turn", "kernel.tick.runtime", "engine")),
        (["run-once"], 139, ("kernel.turn", "kernel.inboxes", "kernel.messages", "kernel.memory")),
    ],
    ids=["help", "status", "idle tick"],
)
def test_start_up_loads_few_modules_of_ours(base: Path, words: list[str], most: int, unwanted: tuple[str, ...]) -> None:
    """Each takes about half a millisecond, and a dataclass in it as much again."""
    make_org(base, resume("ada", schedule={"run_every_n_ticks": 9}))
    run_once(base)  # the first of all looks for entries that are there
    ours = {name for name in imported(base, words) if name.partition(".")[0] == "lemming"}
    parts = {name.removeprefix("lemming.") for name in ours}
    assert [name for name in parts if name.startswith(unwanted)] == []
    assert len(ours) <= most


def test_a_tick_with_turns_imports_neither_what_calls_servers_nor_what_asks_again(base: Path) -> None:
    make_org(base, resume("ada"), script=[{"reply": say("hello")}])
    unwanted = MODELS | {"asyncio", "logging", "rich", "structlog", "tenacity"}
    assert unwanted & imported(base, ["run-once", "--trust"]) == set()
    assert (base / "logs/engine.log").exists()


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    "words",
    [
        ["run-once", "--trust"],
        ["run-forever", "--until-tick", "2", "--interval", "0"],
        ["validate"],
        ["schedule"],
        ["tick", "1"],
        ["why", "1/ada"],
        ["send", "ada", "hello"],
        ["ask", "ada", "hello?", "--timeout", "0"],
        ["serve", "--port", "0"],
    ],
    ids=lambda words: words[0],
)
def test_who_does_not_look_imports_nothing_of_it(spoken: Path, words: list[str]) -> None:
    """`tick` and `why` show the facts of the views of these names, and nothing else of them."""
    rooms = {f"lemming.{room}" for room in LOOKING if room != "views" or words[0] not in ("tick", "why")}
    packages = rooms | {"starlette", "uvicorn", "google.protobuf"}
    assert packages & imported(spoken, words, check=words[0] not in ("ask", "serve")) == set()


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One tick in which ada says hello to a person."""
    base = tmp_path_factory.mktemp("program") / "spoken"
    person = resume("human", model={"key": "human"})
    script = [{"reply": say("hello")}]
    make_org(base, resume("ada"), person, script=script, models={"human": {"provider": "human"}})
    run_once(base)
    return base


def imported(base: Path, words: list[str], *, check: bool = True) -> set[str]:
    """Return the modules that a command has imported when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", AFTER, "-C", str(base), *words],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=check,
        timeout=PATIENCE_S,
    )
    return set(done.stderr.split())


def test_help_shows_what_people_use_by_what_they_want_to_do(bare: Lemming) -> None:
    ran = bare("--help")
    shown = [name for name in NAMES if f"\n  {name} " in ran.out]
    used = [name for section in SECTIONS.values() for name in section]
    assert (ran.status, sorted(shown)) == (0, sorted(used))
    assert len(used) <= 25
    assert f"{len(NAMES) - len(used)} more commands belong to these groups:\n  lemming --help --all" in ran.out
    assert bare() == ran


def test_what_stands_within_another_command_is_there_alone_too(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada"), resume("outbox"))
    assert lemming("check", "validate", "ada") == lemming("validate", "ada")
    assert lemming("agents", "inbox", "ada", "--json") == lemming("inbox", "ada", "--json")
    assert lemming("agents", "memory", "list", "ada") == lemming("memory", "ada")
    assert "outbox" in lemming("agents", "outbox").out  # an agent of that name
    assert lemming("map", "--json") == lemming("graph", "--json")
    assert lemming("-C", "nowhere", "export", "schema", "tick") == lemming("schema", "tick")
    for words in (["history", "dif", "1", "2"], ["agents", "diff"], ["backup", "prun"], ["history", "sho"]):
        ran = lemming(*words)
        assert (ran.status, "did you mean" in ran.err) == (2, words[0] != "agents"), ran
    for name in (*GROUPS, *SUBCOMMANDS):
        text = lemming(name, "--help").out
        assert [
            it
            for it in (*GROUPS.get(name, ()), *SUBCOMMANDS.get(name, ()))
            if f"\n    lemming {name} {it} " not in text
        ] == []


def test_what_the_page_calls_something_leads_to_the_command_that_shows_it() -> None:
    pages = (REPOSITORY / "lemming/dashboard/static").rglob("*.js")
    titles = {it.lower() for page in pages for it in re.findall(r'title: "([A-Z][a-z]+)"', page.read_text())}
    assert {"money", "waiting"} <= titles - {"agent"} <= {*NAMES, *DASHBOARD_VIEWS, *load_suggestions()["commands"]}


@pytest.mark.parametrize("words", [["--help", "--all"], ["--all", "--help"], ["--all"], ["-h", "--all"]])
def test_all_commands_are_in_the_help_when_asked_for(bare: Lemming, words: list[str]) -> None:
    ran = bare(*words)
    assert ran.status == 0
    assert [name for name in NAMES if not re.search(f"\n +{name} ", ran.out)] == []


def test_an_option_of_a_command_does_not_change_what_help_shows(bare: Lemming) -> None:
    assert "lemming validate" in bare("validate", "--all", "--help").out


def test_the_version_is_told(bare: Lemming) -> None:
    assert bare("--version").out == f"lemming {__version__}\n"


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_and_takes_json(bare: Lemming, name: str) -> None:
    assert bare(name, "--help").status == 0
    command = load_command(name)
    for one in getattr(command, "commands", {"": command}).values():
        assert one.help, one.name
        assert "Examples:" not in one.help or "\b\nExamples:\n" in one.help, one.name
        assert any("--json" in parameter.opts for parameter in one.params), one.name


@pytest.mark.parametrize("name", ["agents", "memory", "credits", "models"])
def test_a_noun_is_described_as_in_the_table(name: str) -> None:
    about = next(section[name] for section in COMMANDS.values() if name in section)
    assert load_command(name).help == about


@pytest.mark.parametrize("name", ["agents", "memory", "credits", "models"])
def test_a_noun_alone_shows_its_help(bare: Lemming, name: str) -> None:
    ran = bare(name)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == bare(name, "--help").out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("lemming pro", ["prompt"]),
        ("lemming ver", ["verify"]),
        ("lemming prompt a", ["ada", "amy"]),
        ("lemming outbox ada --k", ["--kind"]),
        ("lemming memory ", ["list", "get", "set", "rm"]),
        ("lemming agents in", ["inbox"]),
        ("lemming export re", ["report"]),
        ("lemming history a", ["ada", "amy"]),
        ("lemming history d", ["diff"]),
    ],
)
def test_the_shell_completes_commands_and_agents(base: Path, typed: str, offered: list[str]) -> None:
    make_org(base, resume("ada"), resume("amy"), resume("bob"))
    words = typed.split(" ")
    asked = {"_LEMMING_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    done = lemming_in(LEMMING_ROOT=str(base), **asked)
    assert (done.returncode, done.stdout.split()) == (0, offered)


def test_the_generated_pages_are_up_to_date() -> None:
    docs = REPOSITORY / "docs"
    pages = generate_pages(docs)
    assert {"cli.md", "settings.md", "plans.md"} <= pages.keys()
    for page, text in pages.items():
        assert (docs / page).read_text() == text, "run `make docs`"


def test_every_type_of_object_that_json_prints_is_documented() -> None:
    sources = (REPOSITORY / "lemming/commands").glob("*.py")
    types = {
        kind
        for file in sources
        for kind in re.findall(r'(?:print_json|print_object|print_as_json)\(\s*"(\w+)"', file.read_text())
    }
    assert len(types) > 30
    text = (REPOSITORY / "docs/cli.md").read_text()
    assert {kind for kind in types if f"`{kind}`" not in text} == set()


def test_every_exit_status_is_documented() -> None:
    from lemming.commands import error_reporting, run_output
    from lemming.kernel.base import errors

    known = {kind.exit_status for _, kind in inspect.getmembers(errors) if hasattr(kind, "exit_status")}
    known |= {error_reporting.INTERNAL_ERROR, error_reporting.INTERRUPTED, error_reporting.BROKEN_PIPE}
    known |= {run_output.NO_PROVIDER, run_output.NO_CREDITS, run_output.TURN_FAILED}
    table = (REPOSITORY / "docs/cli.md").read_text().partition("## Exit status")[2].partition("## ")[0]
    assert [status for status in sorted(known) if str(status) not in table] == []


def test_a_folder_that_does_not_exist_is_not_taken_for_the_organisation_above_it(base: Path, bare: Lemming) -> None:
    make_org(base, resume("ada"))
    (base / "shared").mkdir()
    (base / "notes.txt").touch()
    assert bare("status", "-C", str(base / "shared")).status == 0
    for name, said in (("elsewhere", "the folder does not exist"), ("notes.txt", "not a folder")):
        ran = bare("status", "-C", str(base / name))
        assert ran.status == 2
        assert f"{base / name}: {said}" in ran.err


@pytest.mark.parametrize("words", [["status", "-C"], ["status", "--json", "--root"], ["-C"]])
def test_the_folder_may_be_named_anywhere(base: Path, bare: Lemming, words: list[str]) -> None:
    make_org(base, resume("ada"))
    rest = [] if "status" in words else ["status"]
    ran = bare(*words, str(base), *rest)
    assert ran.status == 0
    assert str(base) in ran.out


@pytest.mark.parametrize(
    ("word", "said"), [("run", "run-once"), ("stop", "Ctrl-C"), ("ls", "agents list"), ("version", "--version")]
)
def test_a_command_of_another_name_is_led_to_the_right_one(bare: Lemming, word: str, said: str) -> None:
    ran = bare(word)
    assert (ran.status, said in ran.err) == (2, True)


@pytest.mark.parametrize("words", [[], ["check"], ["agents", "new"]])
def test_help_is_a_word_too(bare: Lemming, words: list[str]) -> None:
    asked, flagged = bare("help", *words), bare(*words, "--help")
    assert (asked.status, asked.out) == (0, flagged.out)
    assert "Usage: lemming" in asked.out


def test_help_about_no_command_names_the_nearest(bare: Lemming) -> None:
    ran = bare("help", "chek")
    assert (ran.status, 'did you mean "check"' in ran.err) == (2, True)


def test_a_person_does_not_fire(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("human", model={"key": "human"}))
    assert "a person speaks" in lemming("agents", "list").out


def test_what_comes_next_is_said_and_kept_out_of_json(base: Path, lemming: Lemming) -> None:
    make_org(base, resume("ada", credits={"max_credits": 5}))
    assert lemming("validate").err.endswith("next: `lemming run-once`\n")
    assert lemming("credits", "grant", "ada", "2").err.endswith(
        "`lemming credits grant ada -2` takes it back; `lemming run-once` runs the next tick\n"
    )
    assert lemming("run-once").err.endswith(
        "next: `lemming tick` shows this tick in full, `lemming run-once` runs the next\n"
    )
    assert "next:" not in lemming("run-once").err
    assert lemming("validate", "--json").err == ""
