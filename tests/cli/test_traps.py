"""An organisation that is full of traps: no command that looks springs one, and running asks first."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from terminal import Lemming

from lemming.cli import make_app
from lemming.commands.command_table import SUBCOMMANDS
from lemming.dashboard.page_actions import run_action
from lemming.engine import run_once
from lemming.kernel.base.errors import LemmingError
from lemming.kernel.base.jsontext import dump_pretty
from lemming.kernel.files import fs
from lemming.kernel.org.organisation import Organisation
from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.obligations.org_requests import load_requests
from lemming.queries.views.view_registry import VIEWS, build_view
from lemming.testing import FrozenClock, make_org, resume, say

LOOKS = [
    "status", "status --check", "schedule", "schedule 5", "schedule --why ada bob", "plans show", "plans show planner",
    "calendar", "prompt ada", "prompt bob", "inbox ada", "outbox ada", "channels", "tick", "tick 1",
    "tick 1 --prompts", "why ada", "logs", "logs ada", "cost", "findings", "agents graph", "status --watch",
    "requests", "waiting", "workers list",
    "agents list", "agents show ada", "memory list ada", "memory get ada key", "credits show", "skills list",
    "skills show pdf", "tools list", "tools show file_read", "tools show trap", "models list",
    "models show", "mcp list", "export org", "export otel", "export otel --include-content", "export metrics",
    "events", "events --ticks 1..2",
    "history", "history show 1", "diff 1 2", "diff . .", "validate", "validate ada",
    "doctor", "verify", "replay", "export schema resume", "trust", "run-once --dry-run", "service --print", "repair",
    "prune", "rewind 1", "upgrade", "mcp serve --help", "check",
    "gates list", "gates defaults",
]  # fmt: skip
WAIT = [
    "run-once", "run-forever --max-ticks 1", "channels serve", "ask ada hello", "tools call trap", "mcp test",
    "tools call file_list", "models test program", "mcp test own", "mcp accept --yes", "mcp serve --write",
    "check chaos --kills 1 --seed 7", "eval first", "rehearse --dry-run",
]  # fmt: skip
NOT_LOOKING = {
    "run-once", "run-forever", "channels serve", "ask", "chat", "tools call", "models test", "mcp test", "mcp accept",
    "mcp serve", "check chaos", "eval", "rehearse",  # they wait for an agreement
    "dash",  # answers for the person who clicks
    "init", "restore", "answer", "approve", "deny", "cancel", "pause", "unpause", "backup", "send", "say",
    "trust endorse", "workers stop",  # the last: a file in the folder of a run
    "agents new", "agents copy", "agents rename", "agents rm", "memory set", "memory rm", "credits grant",
    "tools new", "models use", "models pull", "models add-weights", "import claude", "apply",
    "fork", "skills export", "export report",  # they write files, and nothing else: `CHANGES`
}  # fmt: skip
CHANGES = [
    "pause ada", "unpause ada", "send --to ada hello", "say ada hello", "trust endorse ada", "agents new cyd --instructions x",
    "agents copy ada dan", "agents rename dan eve", "agents rm eve --yes", "memory set ada key 1",
    "apply ../idea.yaml --yes",
    "memory rm ada key", "credits grant ada 5", "tools new other", "models use ada program", "fork 1 ../fork",
    "backup ../backup.tar.gz", "cancel abc", "answer abc x", "approve abc", "deny abc",
    "skills export ../skills", "export report --output ../report",
]  # fmt: skip


APPROVING = ["approve ID", "approve", "deny ID", "answer ID x", "requests ID", "waiting ID", "cancel ID"]


TRAPS = """
[core]
    fsmonitor = "SCRIPT"
    pager = "SCRIPT"
    sshCommand = "SCRIPT"
    editor = "SCRIPT"
[diff]
    external = "SCRIPT"
[diff "trap"]
    textconv = "SCRIPT"
[filter "trap"]
    clean = "SCRIPT"
    smudge = "SCRIPT"
"""
"""What a repository's configuration says of programs that git starts."""


class Trap(Tool):
    """A tool like the one that a file of tools brings later."""

    name = "trap"
    description = "Writes."
    tool_class = "write"

    def execute(self, agent_name: str, base_path: Path, path: str) -> ToolResult:
        """Do nothing: a person is asked first."""
        return ToolResult(True)


def all_commands() -> Iterator[str]:
    """Yield the words of every command there is."""
    app: Any = make_app()
    pending = [("", app if isinstance(app, click.Command) else typer.main.get_command(app))]
    while pending:
        words, command = pending.pop()
        if not hasattr(command, "list_commands"):
            yield words
            continue
        context = click.Context(command)
        for name in command.list_commands(context):
            pending.append((f"{words} {name}".strip(), command.get_command(context, name)))
    yield from (f"{group} {name}" for group, names in SUBCOMMANDS.items() for name in names)


def test_every_command_looks_or_is_known_not_to() -> None:
    looking = {words for words in all_commands() if any(f"{each} ".startswith(f"{words} ") for each in LOOKS)}
    assert {*all_commands()} == looking | NOT_LOOKING


@pytest.fixture
def trapped(base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An organisation that leaves a word beside its folder for whatever of it is run."""
    sprung = base.parent / "sprung"
    (base.parent / "idea.yaml").write_text("agents: {fay: {does: Sum up., tools: ['*']}}\n")

    def command(name: str) -> list[str]:
        return ["sh", "-c", f"echo {name} >> '{sprung}'"]

    def code(name: str) -> bytes:
        return f"with open({str(sprung)!r}, 'a') as file:\n    print({name!r}, file=file)\n".encode()

    models = {
        "program": {"provider": "cli", "options": {"command": command("cli model"), "cwd": "."}},
        "channel": {"provider": "command", "options": {"command": command("channel")}},
    }
    ada = resume(
        "ada",
        permissions={"tools": ["*", "mcp.own.*", "mcp.shared.*"], "read_outboxes": ["*"]},
        verify={"by": {"command": command("judge")}},
        skills=["*"],
    )
    bob = resume("bob", model={"key": "program"})
    asks = [{"at": "call", "class": "write", "then": "ask"}]
    waits = say("wait", tool_calls=[{"tool": "trap", "args": {"path": "x"}}])
    before = resume("ada", permissions={"tools": ["trap"], "read_outboxes": ["*"]})
    human = resume("human", model={"key": "human"})
    make_org(base, before, resume("bob"), human, models={"human": {"provider": "human"}},
             script=[{"agent": "ada", "tick": 1, "reply": waits}, {"reply": say("fine")}],
             org={"history": "git", "gates": asks})  # fmt: skip
    ToolRegistry.register(Trap())
    for _ in range(2):
        run_once(base, clock=FrozenClock())
    ToolRegistry.unregister("trap")
    others = [resume("desk", model={"key": "channel"}), resume("human", model={"key": "human"})]
    make_org(base, ada, bob, *others, models=models, org={
        "history": "git", "plugins": ["trap_plugin"], "tool_files": ["tools/*.py", "agents/*/tools/*.py"],
        "on_failure": command("on_failure"), "on_waiting": command("on_waiting"),
        "gates": [*asks, {"at": "in", "check": "trap_check", "then": "block"}],
    })  # fmt: skip
    fs.write_atomic(base, "agents/ada/skills/pdf/SKILL.md", b"---\nname: pdf\ndescription: x\n---\n")
    fs.write_atomic(base, "agents/ada/skills/pdf/run.py", code("skill"))
    case = {"at": 1, "expect": [{"command": {"run": command("eval")}}]}
    fs.write_atomic(base, "evals/first/case.json", dump_pretty(case))
    fs.write_atomic(base, "trap_plugin.py", code("plugin"))
    fs.write_atomic(base, "tools/trap.py", code("tools"))
    fs.write_atomic(base, "agents/ada/tools/trap.py", code("tools of an agent"))
    fs.write_atomic(base, "config/mcp.json", dump_pretty({"servers": {"own": {"command": command("mcp server")}}}))
    shared = {"command": "sh", "args": command("shared server")[1:]}
    fs.write_atomic(base, ".mcp.json", dump_pretty({"mcpServers": {"shared": shared}}))
    for name in ("sitecustomize", "usercustomize", "lemming_tools_trap"):
        fs.write_atomic(base, f"{name}.py", code(name))
    for repository in (".git", "agents/ada/workspace/.git"):
        subprocess.run(["git", "init", "-q", str((base / repository).parent)], check=True)
        set_traps(base / repository, command("git"))
    (base / ".gitattributes").write_text("* diff=trap filter=trap\n")
    monkeypatch.syspath_prepend(base)
    return base


def set_traps(repository: Path, command: list[str]) -> None:
    """Have git start a program whatever it is asked."""
    script = repository / "hooks/trap"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"#!/bin/sh\n{command[2]}\n")
    for name in ("trap", "pre-commit", "post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"):
        (repository / "hooks" / name).write_text(script.read_text())
        (repository / "hooks" / name).chmod(0o755)
    with (repository / "config").open("a") as config:
        config.write(TRAPS.replace("SCRIPT", str(script)))


def sprung(base: Path) -> list[str]:
    file = base.parent / "sprung"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.sample(2)
@pytest.mark.parametrize("as_json", [False, True], ids=["for people", "as JSON"])
def test_looking_springs_none(trapped: Path, lemming: Lemming, as_json: bool) -> None:
    for words in LOOKS:
        ran = lemming(*words.split(), *(["--json"] if as_json and "--help" not in words else []))
        assert (words, sprung(trapped)) == (words, [])
        assert ran.status not in (70, 130), (words, ran)


def test_no_view_of_the_page_springs_one(trapped: Path) -> None:
    wanted = {"why": {"target": "ada/memory/key"}, "agent": {"name": "ada", "prompt": "1"}, "tick": {"number": "1"}}
    for name in VIEWS:
        with contextlib.suppress(LemmingError):
            build_view(trapped, name, wanted.get(name))
        assert (name, sprung(trapped)) == (name, [])


def test_nor_does_changing_files(trapped: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trapped)
    for words in CHANGES:
        lemming(*words.split())
        assert (words, sprung(trapped)) == (words, [])


def every_option(words: str) -> Iterator[list[str]]:
    """Yield the words of a command with each of its options in turn."""
    command = command_of(words)
    for option in command.params:
        if option.param_type_name == "option" and option.name not in ("help", "as_json"):
            yield [*words.split(), option.opts[-1], *values_for(option)]


def command_of(words: str) -> Any:
    """Return the command that these words begin with."""
    app: Any = make_app()
    command = app if isinstance(app, click.Command) else typer.main.get_command(app)
    for word in words.split():
        if not hasattr(command, "list_commands"):
            break
        command = command.get_command(click.Context(command), word)
    return command


def values_for(option: Any) -> list[str]:
    """Return what may be typed behind an option."""
    if option.is_flag:
        return []
    by_name = {"edit": ["path=z"], "ahead": ["ada", "trap", "{}"], "for_": ["tool"], "agent": ["ada"]}
    return by_name.get(option.name, ["1"])


@pytest.mark.sample(3)
@pytest.mark.parametrize("words", APPROVING)
def test_no_option_of_a_command_that_decides_springs_one(
    trapped: Path, lemming: Lemming, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.chdir(trapped)
    (request,) = load_requests(trapped).requests.unresolved_requests
    for typed in every_option(words):
        lemming(*(request.id if word == "ID" else word for word in typed))
        assert (typed, sprung(trapped)) == (typed, [])


def test_a_decision_on_the_page_springs_none(trapped: Path) -> None:
    org = Organisation(trapped)
    (request,) = load_requests(org).requests.unresolved_requests
    for more in ({"edits": {"path": "z"}}, {"always": True}, {}):
        with contextlib.suppress(LemmingError):
            run_action(org, "decide", {"id": request.id, "word": "approve", **more}, None)
        assert (more, sprung(trapped)) == (more, [])


def test_looking_at_a_history_that_is_not_ours_starts_no_git(trapped: Path, lemming: Lemming) -> None:
    repository = next((trapped / ".lemming").glob("history*"))
    set_traps(repository, ["sh", "-c", f"echo history >> '{trapped.parent / 'sprung'}'"])
    for words in ("history", "show 1", "diff 1 2", "status", "doctor", "verify", "fork 1 ../fork", "rewind 1 --yes"):
        lemming(*words.split())
        assert (words, sprung(trapped)) == (words, [])


@pytest.mark.sample(3)
@pytest.mark.parametrize("words", WAIT)
def test_running_waits_for_agreement(trapped: Path, lemming: Lemming, words: str) -> None:
    ran = lemming(*words.split())
    assert (ran.status, sprung(trapped)) == (2, []), ran
    assert "the workspace is not trusted" in ran.err


@pytest.mark.long
def test_the_traps_are_live(trapped: Path, lemming: Lemming) -> None:
    assert lemming("trust", "--yes").status == 0
    lemming("run-once")
    lemming("mcp", "test")
    assert {"plugin", "tools", "tools of an agent", "cli model", "mcp server"} <= {*sprung(trapped)}
