"""Twenty approvals, some of which hide something: what is shown is all of it, and what is not bound."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
from approvals_org import edit, finished, lemming, make, requests, tick

from lemming.kernel.tools import Tool, ToolRegistry, ToolResult
from lemming.libraries.invisible_text import find_suspicious_text
from lemming.obligations.file_bindings import MAX_LISTED_FILES, find_unbindable_effects
from lemming.obligations.pending_actions import INSPECT_NOTE, describe_call

HOME = "agents/ada/workspace"


class Runs(Tool):
    """Stands for a shell: notes what it was told, and what the file `run.sh` held then."""

    name = "runs"
    description = "Runs a command."
    tool_class = "execute"
    ran: ClassVar[list[str]] = []

    def execute(self, agent_name: str, base_path: Path, command: str, file: str = "") -> ToolResult:
        Runs.ran.append(command)
        return ToolResult(True, "ran")


@pytest.fixture(autouse=True)
def _shell() -> None:
    Runs.ran.clear()
    ToolRegistry.register(Runs())


def runs(command: str, **more: Any) -> dict[str, Any]:
    return {"tool": "runs", "args": {"command": command, **more}}


def org(base: Path, *commands: str, **more: Any) -> Path:
    asks = {"at": "call", "tool": "runs", "then": "ask", "because": "it runs"}
    may = {"read_outboxes": ["human"], "tools": ["runs"]}
    make(base, *map(runs, commands), gates=[asks], permissions=may, **more)
    home = base / HOME
    (home / "sub").mkdir(parents=True)
    for name in ("run.sh", "my run.sh", "sub/inner.sh"):
        (home / name).write_text(f"echo {name}\n")
    (base / "outside.sh").write_text("echo outside\n")
    (home / "link.sh").symlink_to("run.sh")
    (home / "hard.sh").hardlink_to(base / "outside.sh")
    (home / "nowhere.sh").symlink_to("later.sh")
    return base


def whole(out: str, key: str = "command") -> str:
    """Return an argument as somebody who reads the screen knows it."""
    lines: list[str] = []
    body = out.split(f"argument {key}:\n")[1]
    for line in body.split("\n"):
        if line.startswith("  | ") or line == "  |":
            lines.append(line[4:])
        elif line.startswith("  » "):
            lines[-1] += line[4:]
        elif found := re.fullmatch(r"  ⟨([\d,]+) empty lines⟩", line):
            lines += [""] * int(found[1].replace(",", ""))
        else:
            break
    text = re.sub(r"⟨([\d,]+) spaces⟩", lambda it: " " * int(it[1].replace(",", "")), "\n".join(lines))
    return re.sub(r"⟨U\+([0-9A-F]+)⟩", lambda it: chr(int(it[1], 16)), text)


MANY = " ".join(f"f{number}.txt" for number in range(MAX_LISTED_FILES + 5))
TRICKS: dict[str, tuple[str, str]] = {
    "longer than a terminal": (f"echo {'x' * 500}; EVIL", "programs"),
    "beyond what a list shows": (f"echo {'x ' * 9000}; EVIL", "programs"),
    "padding": (f"ls{' ' * 3000}; EVIL", "programs"),
    "empty lines": ("ls" + "\n" * 400 + "EVIL", "programs"),
    "colours and cursor": ("ls\x1b[2K\x1b[1A; EVIL", "programs"),
    "right to left": ("ls \u202e hs.live \u202c", "programs"),
    "no width": ("ls e\u200bv\u2060i\ufeffl\ufe0f", "programs"),
    "other alphabet": ("p\u0430ypal --send", "several alphabets: U+0430"),
    "carriage return": ("EVIL\rls", "programs"),
    "tab and NUL": ("ls\tx\0EVIL", "programs"),
    "our own signs": ("ls ⟨3 spaces⟩EVIL", "programs"),
    "symbolic link": ("sh link.sh", f"{HOME}/run.sh "),
    "hard link": ("sh hard.sh", f"{HOME}/hard.sh "),
    "link to nowhere": ("sh nowhere.sh", f"{HOME}/later.sh (missing)"),
    "glob": ("sh run.s?", "run.s?: which files it stands for"),
    "variable": ("sh $HOME/run.sh", "$HOME/run.sh: what it stands for"),
    "assignment": ("F=run; sh $F.sh", "F=run;: what a variable of that name changes"),
    "another folder": ("cd sub && sh inner.sh", "cd: paths behind it begin in another folder"),
    "text behind": ("sh <<E\nEVIL\nE", "<<: what the program does with the text behind it"),
    "quotes in quotes": ("sh -c \"sh 'my run.sh'\"", f"{HOME}/my run.sh "),
    "glued": ("r'un'.sh; bash --rcfile=run.sh", f"{HOME}/run.sh "),
    "encoded": ("echo RVZJTA== | base64 -d | sh", "sh: what it runs, or is told to run"),
    "what changes by itself": ("cat /proc/uptime", "/proc/uptime, which changes by itself"),
    "make": ("make", "make: what it runs, or is told to run"),
    "the 101st file": (f"cat {MANY}", "(5 more files, together)"),
    "a file at the end": (f"echo {'x ' * 12000} run.sh", f"{HOME}/run.sh "),
}


@pytest.mark.long
def test_an_approval_shows_all_of_a_call_and_what_it_does_not_bind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = [command for command, _ in TRICKS.values()]
    base = org(tmp_path, *commands, turn={"max_approvals": len(commands)})
    for name in MANY.split():
        (base / HOME / name).write_text(name)
    tick(base)
    assert {outcome for outcome, _ in finished(base, 1)} == {"pending"}
    capsys.readouterr()
    for number, (trick, (command, said)) in enumerate(TRICKS.items()):
        assert lemming(base, "approvals", f"1/ada/{number}") == 1
        out = capsys.readouterr().out
        assert whole(out) == command, trick
        assert said in out, trick
        assert "NOT bound, may change before the call runs:" in out, trick
        assert max(map(len, out.splitlines())) <= 160, trick
        assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e\u200b\ufeff]", out), trick
    lemming(base, "approvals")
    listed = capsys.readouterr().out
    assert "NOT WHOLE: 18011 characters" in listed
    assert lemming(base, "approvals", "--json") == 1
    plain = [json.loads(line)["call"]["args"]["command"] for line in capsys.readouterr().out.splitlines()]
    assert plain == commands


CHANGES = {
    "symbolic link": ("sh link.sh", "run.sh"),
    "the link itself": ("sh link.sh", "link.sh"),
    "hard link": ("sh hard.sh", "../../../outside.sh"),
    "link to nowhere": ("sh nowhere.sh", "later.sh"),
    "not there yet": ("sh soon.sh", "soon.sh"),
    "the 101st file": (f"cat {MANY}", f"f{MAX_LISTED_FILES + 3}.txt"),
    "a file at the end": (f"echo {'x ' * 12000} run.sh", "run.sh"),
    "with a space": ("sh 'my run.sh'", "my run.sh"),
    "quotes in quotes": ("sh -c \"sh 'my run.sh'\"", "my run.sh"),
    "glued": ("r'un'.sh", "run.sh"),
    "behind a sign": ("curl -d @run.sh x", "run.sh"),
    "outside": ("sh {base}/outside.sh", "../../../outside.sh"),
}


@pytest.fixture(scope="module")
def approved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return an organisation in which all these calls are approved, and their files have changed since."""
    ToolRegistry.register(Runs())
    base = tmp_path_factory.mktemp("changes")
    commands = [command.replace("{base}", str(base)) for command, _ in CHANGES.values()]
    org(base, *commands, turn={"max_approvals": len(commands)})
    for name in MANY.split():
        (base / HOME / name).write_text(name)
    tick(base)
    assert lemming(base, "approve", "--all", "--tool", "runs", "--yes") == 0
    for _, file in CHANGES.values():
        changes = base / HOME / file
        if changes.is_symlink() and file == "link.sh":
            changes.unlink()
            changes.symlink_to("my run.sh")
        else:
            changes.write_text(f"echo EVIL {os.urandom(4).hex()}\n")
    Runs.ran.clear()
    tick(base)
    return base, [*Runs.ran]


@pytest.mark.parametrize("trick", CHANGES)
def test_a_call_whose_file_changed_is_not_made(approved: Any, trick: str) -> None:
    base, ran = approved
    command = CHANGES[trick][0].replace("{base}", str(base))
    assert command not in ran
    again = [it for it in requests(base) if it.tick == 2 and it.payload["call"]["args"]["command"] == command]
    assert "changed since" in again[0].payload["text"]


def test_an_edited_call_is_bound_to_what_it_names_then(tmp_path: Path) -> None:
    base = org(tmp_path, "sh run.sh")
    tick(base)
    assert lemming(base, "approve", "1/ada/0", "--edit", "command=sh sub/inner.sh") == 0
    (base / HOME / "sub/inner.sh").write_text("echo EVIL\n")
    tick(base)
    assert Runs.ran == []
    assert lemming(base, "approve", "1/ada/0") == 0
    tick(base)
    assert Runs.ran == ["sh sub/inner.sh"]


def test_words_that_name_no_file_are_not_said_to_be_missing_files(tmp_path: Path) -> None:
    base = org(tmp_path, "echo to bob", script=None)
    edit(base, "agents/ada/resume.json", permissions={"read_outboxes": ["human"], "tools": ["runs"]})
    tick(base)
    assert requests(base)[0].payload["call"]["binds"] == {}


def test_a_file_that_a_command_names_is_no_folder_whose_content_may_change(tmp_path: Path) -> None:
    base = org(tmp_path, "sh run.sh", "ls sub")
    tick(base)
    of_file, of_folder = (request.payload["call"]["unbound"] for request in requests(base))
    assert not any("folder" in line for line in of_file)
    assert any("what is in the folder" in line for line in of_folder)


def test_a_program_that_runs_others_is_told_of_by_any_path() -> None:
    assert "make: what it runs, or is told to run, beyond the files named here" in find_unbindable_effects(
        "/usr/bin/make"
    )


def test_a_line_about_a_command_shows_its_other_arguments_too() -> None:
    call = {"tool": "shell", "args": {"command": "ls", "as_root": True}, "why": "it runs", "gate": "g"}
    assert '"as_root": true' in describe_call(call)


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("rm\u00a0-rf /tmp/x", "signs that are not seen: U+00A0"),
        ("echo \x1b[2K\rls", "signs that are not seen: U+001B U+000D"),
        ("curl https://p\u0430ypal.com", "p\u0430ypal has letters of several alphabets: U+0430"),
        ("\u0441\u0440 a b", "\u0441\u0440 looks like Latin letters, and has none: U+0441 U+0440"),
        (f"ls{' ' * 100};curl evil", "a long gap, with something behind it"),
        ("curl https://a.org@b.org/x", "an address that begins like another: it leads to b.org"),
        ("ls a" + "\u0336" * 9 + " b", "marks that are piled up on a letter, and may cover others"),
        ("git clone git@host:x/y.git && mail a@b.org", ""),
        ("say привет \u2764\ufe0f", ""),
        ("git push\n\tnow", ""),
    ],
)
def test_what_is_to_be_looked_at_closely_is_said_in_lists_too(command: str, note: str) -> None:
    call = {"tool": "runs", "args": {"command": command}, "why": "it runs", "gate": "g"}
    assert [*find_suspicious_text(call["args"])] == ([note] if note else [])
    assert describe_call(call).endswith(INSPECT_NOTE) == bool(note)
